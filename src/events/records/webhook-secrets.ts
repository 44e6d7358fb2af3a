import { create, fromBinary, toBinary } from '@bufbuild/protobuf'
import type { Keyring } from '../../auth/keys/sealing.ts'
import type { Random } from '../../base/runtime.ts'
import { DomainError } from '../../base/errors.ts'
import type { Uid } from '../../base/uid.ts'
import { EarlierSecretSchema, WebhookSecretsSchema, type EarlierSecret, type WebhookSecrets } from '../../gen/taproot/store/v1/events_pb.ts'
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

/** Maximum number of earlier secrets that sign as well. So the header of signatures stays below 500 bytes. */
const maxEarlier = 8

/**
 * Creates a secret. With `before`, the previous one also signs until `untilMs`, in milliseconds since 1970. Secrets before that one sign as
 * long as they were to, but not after `untilMs`. Throws code 9 if they are too many.
 */
export function newSecret(
  { keyring, random }: { readonly keyring: Keyring; readonly random: Random },
  subscription: Uid,
  before?: { readonly secrets: WebhookSecrets; readonly untilMs: number; readonly nowMs: number },
): NewSecret {
  const key = secretsKey(subscription)
  const text = createWebhookSecret(random)
  const earlier = before === undefined ? [] : earlierOf(before)
  if (earlier.length > maxEarlier)
    throw new DomainError(9, `Precondition failed: ${maxEarlier} earlier secrets still sign; wait until one expires, or rotate with an overlap of 0s`)
  const secrets = create(WebhookSecretsSchema, { current: keyring.seal(Buffer.from(text), key), earlier })
  return { text, write: { kind: 'put', key, value: toBinary(WebhookSecretsSchema, secrets) } }
}

/** Returns the secrets that sign besides a new one, newest first. */
function earlierOf({ secrets, untilMs, nowMs }: { readonly secrets: WebhookSecrets; readonly untilMs: number; readonly nowMs: number }): EarlierSecret[] {
  const until = BigInt(untilMs)
  const shortened = secrets.earlier.map((one) => ({ ...one, untilMs: one.untilMs < until ? one.untilMs : until }))
  return [create(EarlierSecretSchema, { secret: secrets.current, untilMs: until }), ...shortened].filter((one) => nowMs < Number(one.untilMs))
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
  const { current, earlier } = secretsIn(entry)
  const valid = earlier.filter(({ untilMs }) => nowMs < Number(untilMs)).map(({ secret }) => secret)
  return [current, ...valid].map((sealed) => Buffer.from(keyring.open(sealed, key)).toString())
}
