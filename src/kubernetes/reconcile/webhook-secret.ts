import { readSecrets } from '../../events/index.ts'
import { isSecretName } from '../../base/pull-secret.ts'
import type { Uid } from '../../base/uid.ts'
import type { KubeObject, ObjectDraft } from '../kube-api.ts'
import { objectTypes } from '../object-types.ts'
import type { PlatformObject } from '../platform-object.ts'
import type { World } from '../world.ts'
import { verdicts, type ConditionStatus } from './condition-status.ts'

/** Label of the Secrets that contain the shared secrets of subscriptions. */
const webhookSecretLabel = 'taproot.dev/webhook-secret'
/** The most names that an annotation is read for. */
const maxNames = 16
/** Annotation of a subscription: the Secrets that the controller may have made for it, separated by commas. */
export const webhookSecretsAnnotation = 'taproot.dev/webhook-secrets'

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

function isOwn(secret: KubeObject, { metadata: { uid } }: PlatformObject): boolean {
  return secret.metadata.ownerReferences?.some((owner) => owner.uid === uid) === true
}

/** Returns the names in the annotation. Anyone who may edit the object may change it. */
export function secretsMadeFor({ metadata }: PlatformObject): readonly string[] {
  const names = metadata.annotations?.[webhookSecretsAnnotation]?.split(',') ?? []
  return names.filter(isSecretName).slice(0, maxNames)
}

/** Deletes a Secret that was made for the object. One of another owner, or without the label, stays. Rejects with KubeError. */
export async function removeWebhookSecret(world: World, { object, name }: { object: PlatformObject; name: string }, signal: AbortSignal): Promise<void> {
  const ref = { namespace: object.metadata.namespace, name }
  const current = await world.api.get(objectTypes.secret, ref, signal)
  if (current === undefined || !isOwn(current, object) || current.metadata.labels?.[webhookSecretLabel] !== 'true') return
  await world.api.delete(objectTypes.secret, ref, { uid: current.metadata.uid }, signal)
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
  if (!isOwn(current, object)) return verdicts.secretInUse(name)
  const kept = current['data'] as Readonly<Record<string, string>> | undefined // as Secrets are
  const { data } = draft as ObjectDraft & { readonly data: { readonly secret: string } } // as built above
  if (kept?.['secret'] !== data.secret) await world.api.patch(objectTypes.secret, { namespace, name }, { data }, signal)
  return undefined
}
