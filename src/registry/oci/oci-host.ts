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
import type { ReportedRequest } from './traffic-events.ts'

/** Where the bytes of a blob come from: this process, the upstream, or storage that the client is sent to. */
export type BlobSource = 'memory' | 'upstream' | 'redirect'

/** What the routes work with. */
export interface OciHost {
  readonly services: Services
  readonly upstream: Upstream
  readonly gate: Gate
  readonly auditLog: AuditTrail
  /** Seals the state of uploads, so that any replica can go on with them. */
  readonly sealer: Keyring
  readonly cache: ManifestCache
  readonly blobs: BlobCache
  /** The name under which clients reach this host: the source of events. */
  readonly registryHost: string
  /** Whether `_catalog` is served. */
  readonly catalog: boolean
  /** How long a client may send, or take, nothing of a body, in milliseconds. */
  readonly idleMs: number
  /** Called with the source of each blob that is pulled. */
  readonly observeBlob?: (source: BlobSource) => void
  /** Notes a request for its event. */
  report(request: ReportedRequest): void
}

/** An entry whose repo is there. */
export interface RepoEntry {
  readonly entry: AdmittedRequest
  readonly repo: Uid
}

/** Lets the caller in, and notes it for the audit trail. */
async function enter({ gate }: OciHost, exchange: RegistryExchange, request: EntryRequest): Promise<AdmittedRequest> {
  // The gate itself records what it refuses.
  exchange.admitted = undefined
  return (exchange.admitted = await gate.enter(exchange, request))
}

/** Lets the caller in to a repo that is there. Throws what the gate throws. */
export async function enterRepo(host: OciHost, exchange: RegistryExchange, request: { repository: string; action: RegistryAction }): Promise<RepoEntry> {
  const entry = await enter(host, exchange, { repository: request.repository, actions: [request.action] })
  if (entry.target.kind === 'absent') throw new RegistryError('NAME_UNKNOWN', 'there is no such repository')
  return { entry, repo: entry.target.uid }
}

/** What a mutation needs of an entry: the rights are looked at again with every attempt. */
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

/** Lets the caller in to push, to a repo that may still have to be made: that only `create` does. */
export async function enterToPush(
  host: OciHost,
  exchange: RegistryExchange,
  { repository, mountFrom }: { repository: string; mountFrom?: string | undefined },
): Promise<AdmittedRequest> {
  return enter(host, exchange, { repository, actions: ['push'], mountFrom })
}

/** The repo of an entry to push; a first push makes it. Throws what the gate throws, or DomainError. */
export async function repoOfPush(host: OciHost, exchange: RegistryExchange, entry: AdmittedRequest): Promise<RepoEntry> {
  const { target, repository } = entry
  if (target.kind === 'repo') return { entry, repo: target.uid }
  await createRepoByPush(host.services, mutationOf(entry, exchange, 'push'), { ...target, path: repository, host: host.registryHost })
  // Enters again: the caller's permissions on the repo differ from those on its group.
  return enterRepo(host, exchange, { repository, action: 'push' })
}
