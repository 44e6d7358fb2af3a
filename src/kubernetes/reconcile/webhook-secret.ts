import { readSecrets } from '../../events/index.ts'
import type { Uid } from '../../base/uid.ts'
import type { ObjectDraft } from '../kube-api.ts'
import { objectTypes } from '../object-types.ts'
import type { PlatformObject } from '../platform-object.ts'
import type { World } from '../world.ts'
import { verdicts, type ConditionStatus } from './condition-status.ts'

/** Label of the Secrets that contain the shared secrets of subscriptions. */
const webhookSecretLabel = 'taproot.dev/webhook-secret'

function draftOf({ metadata }: PlatformObject, name: string, secret: string): ObjectDraft {
  const { group, version, kind } = objectTypes.subscription
  return {
    metadata: {
      namespace: metadata.namespace,
      name,
      labels: { [webhookSecretLabel]: 'true' },
      // Makes Kubernetes delete the Secret together with the object.
      ownerReferences: [{ apiVersion: `${group}/${version}`, kind, name: metadata.name, uid: metadata.uid }],
    },
    type: 'Opaque',
    data: { secret: Buffer.from(secret).toString('base64') },
  }
}

/**
 * Writes the current shared secret of a subscription to the Secret that its object names. Resolves with the condition that prevents this,
 * or undefined. Rejects with KubeError, StoreError or SealingError.
 */
export async function keepWebhookSecret(
  world: World,
  { object, uid }: { object: PlatformObject; uid: Uid },
  signal: AbortSignal,
): Promise<ConditionStatus | undefined> {
  const name = object.spec.secretName
  if (name === undefined) return undefined
  if (!world.writesSecrets) return verdicts.secretsDisabled()
  const { store, keyring } = world.services
  const [secret] = await readSecrets({ store, keyring, nowMs: world.clock.now() }, uid, signal)
  if (secret === undefined) return undefined
  const { namespace } = object.metadata
  const draft = draftOf(object, name, secret)
  const current = await world.api.get(objectTypes.secret, { namespace, name }, signal)
  if (current === undefined) {
    await world.api.create(objectTypes.secret, draft, signal)
    return undefined
  }
  const isOwn = current.metadata.ownerReferences?.some((owner) => owner.uid === object.metadata.uid) === true
  if (!isOwn) return verdicts.secretInUse(name)
  const kept = current['data'] as Readonly<Record<string, string>> | undefined // as Secrets are
  const { data } = draft as ObjectDraft & { readonly data: { readonly secret: string } } // as built above
  if (kept?.['secret'] !== data.secret) await world.api.patch(objectTypes.secret, { namespace, name }, { data }, signal)
  return undefined
}
