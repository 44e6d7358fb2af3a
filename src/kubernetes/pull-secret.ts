import { objectKinds } from './object-kinds.ts'
import type { Cluster, World } from './world.ts'
import type { KubeObject, ObjectDraft } from './kube-api.ts'
import { objectTypes } from './object-types.ts'
import type { Informer } from './runtime/informer.ts'
import type { WorkResult } from './runtime/work-queue.ts'
import { managedByText } from '../engine/ownership.ts'
import { dockerConfigSecret, expiresAnnotation, isSecretName } from '../base/pull-secret.ts'
import type { Uid } from '../base/uid.ts'
import type { CachedRecord } from '../cache/records/cached-record.ts'
import { authorityAt } from './reconcile/authority.ts'
import { ownedUid } from './reconcile/references.ts'
import { asPlatformObject, isMirror } from './platform-object.ts'
import { messageOf } from '../cache/records/record-types.ts'

/** Annotation of a service account with the name of the pull Secret that it requests. */
export const pullSecretAnnotation = 'taproot.dev/pull-secret'
/** Label of the Secrets that the controller maintains. */
export const pullSecretLabel = 'taproot.dev/pull-secret'
/** Annotation of such a Secret with the identity for which its token was issued. */
const identityAnnotation = 'taproot.dev/identity'

/** A token for the registry host. */
export interface SecretToken {
  readonly token: string
  readonly expiresAtMs: number
}

/** Options for pull secrets. */
export interface PullSecretOptions {
  readonly world: World
  readonly accounts: Informer
  /** The registry host, as in image references. */
  readonly registryHost: string
  mint(identity: Uid, managedBy: string): Promise<SecretToken>
}

/** Maintains Secrets of type dockerconfigjson for service accounts that request one. */
export interface PullSecrets {
  /** Reconciles one service account; `key` is `ServiceAccount/<namespace>/<name>`. Rejects if it must be retried. */
  reconcile(key: string, signal: AbortSignal): Promise<WorkResult | undefined>
  /** Calls `add` with the key of each changed service account, until the returned function is called. */
  watch(add: (key: string) => void): () => void
  /** Returns the keys of all service accounts that request a Secret. */
  keys(): Iterable<string>
}

/**
 * Returns true if only tokens of the service account can sign in as this identity. Checks the stored record, which may differ from its
 * object.
 */
function isSignInOf(record: CachedRecord, account: { namespace: string; name: string }, { issuer }: Cluster): boolean {
  const { relationship } = messageOf(record, 'Identity')
  if (relationship.case !== 'claimMatch') return false
  const { iss, sub, claims, claimPatterns } = relationship.value
  const isPlain = Object.keys(claims).length === 0 && Object.keys(claimPatterns).length === 0
  return (
    isPlain &&
    iss.case === 'issuer' &&
    iss.value === issuer &&
    sub.case === 'subject' &&
    sub.value === `system:serviceaccount:${account.namespace}:${account.name}`
  )
}

/** Returns the identity of a service account: the record of the first object in its namespace whose `serviceAccountRef` names it. */
function identityOf(world: World, account: { namespace: string; name: string }): { uid: Uid; managedBy: string } | undefined {
  const { objects, cluster, services } = world
  const candidates = [...objects.Identity.byNamespace(account.namespace)]
    .filter((object) => !isMirror(object) && object.metadata.deletionTimestamp === undefined)
    .map(asPlatformObject)
    .filter(({ spec }) => {
      const ref = spec['serviceAccountRef'] as { name: string; namespace?: string } | undefined
      return ref?.name === account.name && (ref.namespace ?? account.namespace) === account.namespace
    })
    .sort((a, b) => (a.metadata.name < b.metadata.name ? -1 : 1))
  const { tables } = services.cache
  for (const object of candidates) {
    const managedBy = managedByText({ clusterId: cluster.id, namespace: object.metadata.namespace, name: object.metadata.name })
    const record = tables.get('Identity', ownedUid(tables, 'Identity', managedBy) ?? '')
    if (record === undefined || !isSignInOf(record, account, cluster)) continue
    if (authorityAt(world, { row: objectKinds.Identity, object }, record.parent).granted) return { uid: record.uid, managedBy }
  }
  return undefined
}

function secretOf(
  options: PullSecretOptions,
  account: KubeObject,
  { name, identity, minted }: { name: string; identity: Uid; minted: SecretToken },
): ObjectDraft {
  const { namespace = '', name: accountName, uid } = account.metadata
  const { token, expiresAtMs } = minted
  return {
    metadata: {
      namespace,
      name,
      labels: { [pullSecretLabel]: 'true' },
      annotations: { [expiresAnnotation]: new Date(expiresAtMs).toISOString(), [identityAnnotation]: identity },
      // Makes Kubernetes delete the Secret together with the service account.
      ownerReferences: [{ apiVersion: 'v1', kind: 'ServiceAccount', name: accountName, uid }],
    },
    ...dockerConfigSecret(options.registryHost, { username: '_token', password: token }),
  }
}

/** Returns how long the token in `secret` is valid for `identity`, in milliseconds; 0 if it is missing or belongs to another identity. */
function validForMs({ world }: PullSecretOptions, secret: KubeObject | undefined, identity: Uid): number {
  const { annotations = {} } = secret?.metadata ?? {}
  if (annotations[identityAnnotation] !== identity) return 0
  const expiresAtMs = Date.parse(annotations[expiresAnnotation] ?? '')
  return Number.isNaN(expiresAtMs) ? 0 : Math.max(0, expiresAtMs - world.clock.now())
}

/** Reasons for refusing a Secret, which are reported as an Event of the service account. */
const refusals = {
  InvalidSecretName: (name) => `the annotation ${pullSecretAnnotation} is not a valid Secret name: ${name}`,
  NoIdentity: () =>
    'found no suitable PlatformIdentity in this namespace. The grants must allow it, its serviceAccountRef must name this service account, and it must accept no other sign-in',
  SecretInUse: (name) => `the Secret ${name} exists, and the controller did not create it. Choose another name, or delete the Secret`,
} as const satisfies Record<string, (name: string) => string>

function refuse({ world }: PullSecretOptions, { metadata }: KubeObject, { reason, name }: { reason: keyof typeof refusals; name: string }): undefined {
  const note = refusals[reason](name)
  world.events.record({ type: objectTypes.serviceAccount, metadata, severity: 'Warning', reason, action: 'KeepPullSecret', note })
}

/** How long before its expiry a token is replaced, in milliseconds: half of its lifetime of one hour. */
const renewBeforeMs = 1_800_000

/** Creates the PullSecrets. The caches must be synced. */
export function createPullSecrets(options: PullSecretOptions): PullSecrets {
  const { world, accounts } = options
  const keyOf = ({ metadata }: KubeObject): string => `ServiceAccount/${metadata.namespace ?? ''}/${metadata.name}`
  return {
    *keys() {
      for (const account of accounts.list()) if (account.metadata.annotations?.[pullSecretAnnotation] !== undefined) yield keyOf(account)
    },
    watch(add) {
      const addNamespace = (object: KubeObject | undefined): void => {
        for (const account of accounts.byNamespace(object?.metadata.namespace ?? ''))
          if (account.metadata.annotations?.[pullSecretAnnotation]) add(keyOf(account))
      }
      const stops = [
        accounts.onChange((_before, after) => {
          if (after !== undefined) add(keyOf(after))
        }),
        world.objects.Identity.onChange((before, after) => addNamespace(after ?? before)),
      ]
      return () => {
        for (const stop of stops) stop()
      }
    },
    async reconcile(key, signal) {
      const [, namespace = '', accountName = ''] = key.split('/')
      const account = accounts.get({ namespace, name: accountName })
      const name = account?.metadata.annotations?.[pullSecretAnnotation]
      if (account === undefined || name === undefined || account.metadata.deletionTimestamp !== undefined) return undefined
      if (!isSecretName(name)) return refuse(options, account, { reason: 'InvalidSecretName', name })
      const found = identityOf(world, { namespace, name: accountName })
      if (found === undefined) return refuse(options, account, { reason: 'NoIdentity', name })
      // Secrets are read one by one, so that the controller needs no right to list all Secrets.
      const secret = await world.api.get(objectTypes.secret, { namespace, name }, signal)
      if (secret !== undefined && secret.metadata.labels?.[pullSecretLabel] === undefined) {
        world.services.log.warn('the controller did not create the Secret of this name, and does not change it', { namespace, name })
        return refuse(options, account, { reason: 'SecretInUse', name })
      }
      const leftMs = validForMs(options, secret, found.uid)
      if (leftMs > renewBeforeMs) return { againAfterMs: leftMs - renewBeforeMs }
      const draft = secretOf(options, account, { name, identity: found.uid, minted: await options.mint(found.uid, found.managedBy) })
      await (secret === undefined ? world.api.create(objectTypes.secret, draft, signal) : renew(options, draft, signal))
      return { againAfterMs: renewBeforeMs }
    },
  }
}

/** Writes a new token into a Secret that the controller maintains. */
function renew({ world }: PullSecretOptions, { metadata, data }: ObjectDraft, signal: AbortSignal): Promise<KubeObject> {
  const { namespace = '', name, labels, annotations } = metadata
  return world.api.patch(objectTypes.secret, { namespace, name }, { metadata: { labels, annotations }, data }, signal)
}
