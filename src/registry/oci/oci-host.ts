import type { AuditTrail } from '../../base/audit-line.ts'
import { DomainError } from '../../base/errors.ts'
import type { Uid } from '../../base/uid.ts'
import type { Keyring } from '../../auth/keys/sealing.ts'
import { createRepoByPush } from '../records/repo-by-push.ts'
import { apiOwnership, type MutationContext, type Services } from '../../engine/services.ts'
import type { AdmittedRequest, EntryRequest, Gate, RegistryAction } from '../gate.ts'
import { RegistryError } from '../registry-error.ts'
import type { Upstream } from '../upstream/upstream.ts'
import type { BlobCache } from './blobs/blob-cache.ts'
import type { RegistryExchange } from './exchange.ts'
import type { ManifestCache } from './manifests/manifest-cache.ts'
import type { PullChecks } from '../policies/pull-checks.ts'
import type { PullVerdict } from '../policies/verdict.ts'
import type { RequestDetails, RequestKey } from './traffic-events.ts'

/** Source of a blob's bytes: this process, the upstream, or a storage URL that the client is redirected to. */
export type BlobSource = 'memory' | 'upstream' | 'redirect'

/** Dependencies of the routes. */
export interface OciHost {
  readonly services: Services
  readonly upstream: Upstream
  readonly gate: Gate
  readonly auditLog: AuditTrail
  /** Encrypts the state of uploads, so that any replica can continue them. */
  readonly sealer: Keyring
  readonly cache: ManifestCache
  readonly blobs: BlobCache
  readonly pullChecks: PullChecks
  /** The name by which clients reach this host; also the source of events. */
  readonly registryHost: string
  /** True if `_catalog` is enabled. */
  readonly catalog: boolean
  /** How long a client may send or read nothing of a body, in milliseconds. */
  readonly idleMs: number
  /** Called with the source of each blob that is pulled. */
  readonly observeBlob?: (source: BlobSource) => void
  /** Called with what the pull policies above a repo decide about each pull of a manifest. */
  readonly observeVerdict?: (decision: PullVerdict['decision']) => void
  /** Records a request for its event. Asks for its details at once, or not at all. */
  report(request: RequestKey, details: () => RequestDetails): void
}

/** An admitted request whose repo exists. */
export interface RepoEntry {
  readonly entry: AdmittedRequest
  readonly repo: Uid
}

/** Admits the request through the gate, and stores the result for the audit trail. */
async function enter({ gate }: OciHost, exchange: RegistryExchange, request: EntryRequest): Promise<AdmittedRequest> {
  // The gate records the requests that it refuses.
  exchange.admitted = undefined
  return (exchange.admitted = await gate.enter(exchange, request))
}

/** A request to an existing repo. */
interface RepoRequest extends Pick<EntryRequest, 'repository' | 'content'> {
  readonly action: RegistryAction
}

/** Admits a request to an existing repo. Throws the errors of the gate, or NAME_UNKNOWN. */
export async function enterRepo(host: OciHost, exchange: RegistryExchange, request: RepoRequest): Promise<RepoEntry> {
  const { repository, action, content } = request
  const entry = await enter(host, exchange, { repository, actions: [action], content })
  if (entry.target.kind === 'absent') throw new RegistryError('NAME_UNKNOWN', 'there is no such repository')
  return { entry, repo: entry.target.uid }
}

/** Returns the context for a mutation. Each attempt of its transaction checks the caller's rights again. */
export function mutationOf(entry: AdmittedRequest, exchange: RegistryExchange, action: RegistryAction): MutationContext {
  if (entry.caller === undefined) throw new RegistryError('DENIED', 'sign in first')
  return {
    caller: entry.caller,
    signal: exchange.signal,
    validateOnly: false,
    ownership: apiOwnership,
    authorize() {
      if (!entry.may(action)) throw new DomainError(7, `permission denied: ${action} is needed`)
    },
  }
}

/** Admits a push to a repo that may not exist yet. Only `create` creates it. */
export async function enterToPush(
  host: OciHost,
  exchange: RegistryExchange,
  { repository, mountFrom }: { repository: string; mountFrom?: string | undefined },
): Promise<AdmittedRequest> {
  return enter(host, exchange, { repository, actions: ['push'], mountFrom })
}

/** Returns the repo of a push, and creates it on its first push. Throws the errors of the gate, or DomainError. */
export async function repoOfPush(host: OciHost, exchange: RegistryExchange, entry: AdmittedRequest): Promise<RepoEntry> {
  const { target, repository } = entry
  if (target.kind === 'repo') return { entry, repo: target.uid }
  await createRepoByPush(host.services, mutationOf(entry, exchange, 'push'), { ...target, path: repository, host: host.registryHost })
  // Admits the request again: the caller's permissions at the new repo differ from those at its group.
  return enterRepo(host, exchange, { repository, action: 'push' })
}
