import { create, fromBinary, toBinary } from '@bufbuild/protobuf'
import type { Keyring } from '../../auth/keys/sealing.ts'
import type { Random } from '../../base/runtime.ts'
import type { Uid } from '../../base/uid.ts'
import { WebhookSecretsSchema, type WebhookSecrets } from '../../gen/taproot/store/v1/events_pb.ts'
import type { Put, Store } from '../../store/store.ts'
import { createWebhookSecret } from '../delivery/standard-webhooks.ts'

/** Key prefix of the secrets of all subscriptions. */
export const secretsPrefix = 'x/events/secret/'

/** Returns the key of a subscription's secrets; the value is a WebhookSecrets. Absent unless the subscription uses Standard Webhooks. */
export function secretsKey(subscription: Uid): string {
  return `${secretsPrefix}${subscription}`
}

/** A new secret, and the write that stores it. */
export interface NewSecret {
  readonly text: string
  readonly write: Put
}

/** Creates a secret. With `before`, the previous one also signs until `untilMs`, in milliseconds since 1970. */
export function newSecret(
  { keyring, random }: { readonly keyring: Keyring; readonly random: Random },
  subscription: Uid,
  before?: { readonly secrets: WebhookSecrets; readonly untilMs: number },
): NewSecret {
  const key = secretsKey(subscription)
  const text = createWebhookSecret(random)
  const secrets = create(WebhookSecretsSchema, {
    current: keyring.seal(Buffer.from(text), key),
    ...(before === undefined ? {} : { previous: before.secrets.current, previousUntilMs: BigInt(before.untilMs) }),
  })
  return { text, write: { kind: 'put', key, value: toBinary(WebhookSecretsSchema, secrets) } }
}

/** Returns the encrypted secrets in an entry. */
export function secretsIn({ value }: { readonly value: Uint8Array }): WebhookSecrets {
  return fromBinary(WebhookSecretsSchema, value)
}

/** Reads the currently valid secrets, newest first; empty if there are none. Rejects with SealingError, StoreError or the signal's reason. */
export async function readSecrets(
  { store, keyring, nowMs }: { readonly store: Store; readonly keyring: Keyring; readonly nowMs: number },
  subscription: Uid,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const key = secretsKey(subscription)
  const entry = await store.get(key, signal)
  if (entry === undefined) return []
  const { current, previous, previousUntilMs } = secretsIn(entry)
  const valid = previous.length > 0 && nowMs < Number(previousUntilMs) ? [current, previous] : [current]
  return valid.map((sealed) => Buffer.from(keyring.open(sealed, key)).toString())
}
