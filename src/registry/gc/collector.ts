import { errorText } from '../../base/error-text.ts'
import { setTimeout as delay } from 'node:timers/promises'
import type { Digest } from '../../base/digest.ts'
import { trustedUid, type Uid } from '../../base/uid.ts'
import { collectKey } from '../records/content-epoch.ts'
import type { ContentSort } from '../records/pending-deletes.ts'
import { removedRepoKey, removedRepoPrefix } from '../records/repos.ts'
import type { Services } from '../../engine/services.ts'
import { indexesKey, manifestsKey, referrersKey } from '../../store/keys.ts'
import { entriesOf } from '../../store/pages.ts'
import type { Write } from '../../store/store.ts'
import type { DiskUpstream } from '../upstream/disk/disk-upstream.ts'
import { platformRepository, UpstreamError, type Upstream } from '../upstream/upstream.ts'
import { MarkLost } from './mark.ts'
import { ByteRemoval } from './byte-removal.ts'
import { nothingCollected, RepoCollection, type RepoCollected } from './repo-collection.ts'
import { DigestNumbers } from './digest-numbers.ts'
import { readContent, upstreamDigests } from './repo-content.ts'

/** The result of a garbage collection, or of a dry run: numbers of objects, and total size of blobs in bytes. */
export interface Collected extends RepoCollected {
  readonly repos: number
  /**
   * Number of these repos that were not finished: the upstream failed, or another process worked on them. The next collection continues
   * with them.
   */
  readonly left: number
  /** Number of abandoned uploads that were removed; 0 if the upstream removes them itself. */
  readonly uploads: number
}

/** Settings of a garbage collection. */
export interface CollectOptions {
  /** How long content is kept after it is no longer needed, in milliseconds. */
  readonly graceMs: number
  /** If true, removes nothing and only counts. */
  readonly dryRun?: boolean
}

/** How long a collection that ends waits until its lease is released, in milliseconds. */
const resignTimeoutMs = 500

/** True for the embedded upstream. For that one the collection also removes abandoned uploads and unrecorded bytes. */
export function isEmbedded(upstream: Upstream): upstream is DiskUpstream {
  return 'collectUploads' in upstream
}

/**
 * Garbage collector (docs/spec/registry.md#garbage-collection). Only one collection runs on a store at a time, on the leader or in a
 * command; others wait.
 */
export class Collector {
  readonly #services: Services
  readonly #upstream: Upstream
  readonly #graceMs: number
  readonly #dryRun: boolean

  constructor(services: Services, upstream: Upstream, options: CollectOptions) {
    this.#services = services
    this.#upstream = upstream
    this.#graceMs = options.graceMs
    this.#dryRun = options.dryRun === true
  }

  /**
   * Collects garbage of all repos, including deleted ones. If the upstream fails for one repo, continues with the others. Rejects with
   * StoreError, with UpstreamError if the upstream does not answer at all, or with the signal's reason. What was removed until then stays
   * removed.
   */
  async collect(signal: AbortSignal): Promise<Collected> {
    return this.#exclusively(signal, (own) => this.#collect(own))
  }

  /**
   * Removes bytes that have no record, because a process stored them and ended before it wrote the record. Keeps bytes that are younger
   * than the grace period. Rejects like `collect`.
   */
  async collectOrphans(upstream: Pick<DiskUpstream, 'stored'>, signal: AbortSignal): Promise<Pick<Collected, 'manifests' | 'blobs'>> {
    return this.#exclusively(signal, (own) => this.#collectOrphans(upstream, own))
  }

  async #exclusively<T>(signal: AbortSignal, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    if (this.#dryRun) return work(signal)
    const leadership = await this.#services.store.elect('collect', signal)
    try {
      return await work(AbortSignal.any([signal, leadership.lost]))
    } finally {
      // If the store cannot be reached, the lease expires without this call, so the wait is limited.
      await Promise.race([leadership.resign(), delay(resignTimeoutMs, undefined, { ref: false })])
    }
  }

  async #collect(signal: AbortSignal): Promise<Collected> {
    let sum = { ...nothingCollected, repos: 0, left: 0 }
    const add = (one: RepoCollected | undefined): void => {
      const { manifests, blobs, bytes, refused } = one ?? nothingCollected
      sum = {
        repos: sum.repos + 1,
        left: sum.left + (one === undefined ? 1 : 0),
        manifests: sum.manifests + manifests,
        blobs: sum.blobs + blobs,
        bytes: sum.bytes + bytes,
        refused: sum.refused + refused,
      }
    }
    await this.#services.cache.barrier(signal)
    const repos = [...this.#services.cache.tables.table('Repo').records()].map((record) => record.uid)
    for (const repo of repos) {
      signal.throwIfAborted()
      add(await this.#orLeft(repo, () => this.collectRepo(repo, signal), signal))
    }
    const goneBeforeMs = this.#services.clock.now() - this.#graceMs
    for await (const { key, value } of entriesOf(this.#services.store, { prefix: removedRepoPrefix }, signal)) {
      if (Number(Buffer.from(value).toString()) > goneBeforeMs) continue
      const repo = trustedUid(key.slice(removedRepoPrefix.length))
      add(await this.#orLeft(repo, () => this.#collectRemoved(repo, signal), signal))
    }
    // Other registries remove abandoned uploads by themselves.
    const uploads = !this.#dryRun && isEmbedded(this.#upstream) ? await this.#upstream.collectUploads(this.#graceMs, signal) : 0
    return { ...sum, uploads }
  }

  /** Collects garbage of one existing repo. Rejects with MarkLost if another process removes bytes of it. */
  async collectRepo(repo: Uid, signal: AbortSignal): Promise<RepoCollected> {
    return new RepoCollection(this.#services, this.#upstream, repo).collect({ graceMs: this.#graceMs, dryRun: this.#dryRun }, signal)
  }

  /**
   * Resolves with undefined if the repo is skipped until the next collection. A mark that an earlier collection left stays for a minute,
   * and so does the mark of a removal with unknown outcome. Rejects if the upstream does not answer at all, since every other repo would
   * get such a mark too.
   */
  async #orLeft(repo: Uid, work: () => Promise<RepoCollected>, signal: AbortSignal): Promise<RepoCollected | undefined> {
    try {
      return await work()
    } catch (error) {
      if (!(error instanceof MarkLost || error instanceof UpstreamError)) throw error
      this.#services.log.warn('a repo was skipped; the next garbage collection continues with it', { repo, error: errorText(error) })
      if (error instanceof UpstreamError) await this.#upstream.ready(signal)
      return undefined
    }
  }

  async #collectRemoved(repo: Uid, signal: AbortSignal): Promise<RepoCollected> {
    const done = await new RepoCollection(this.#services, this.#upstream, repo).collectAll({ dryRun: this.#dryRun }, signal)
    // The records of a deleted repo stay while the upstream refuses removals, so that the next collection tries again.
    if (this.#dryRun || done.refused > 0) return done
    const writes = [removedRepoKey(repo), collectKey(repo), manifestsKey(repo), indexesKey(repo), referrersKey(repo)].map((key): Write => ({
      kind: 'delete',
      key,
    }))
    await this.#services.store.transact({ guards: [], writes }, signal)
    return done
  }

  async #collectOrphans(upstream: Pick<DiskUpstream, 'stored'>, signal: AbortSignal): Promise<Pick<Collected, 'manifests' | 'blobs'>> {
    const youngAfterMs = this.#services.clock.now() - this.#graceMs
    const sum = { manifests: 0, blobs: 0 }
    let at: { repo: Uid; digests: DigestNumbers; held: ReturnType<typeof upstreamDigests>; orphans: { kind: ContentSort; digest: Digest }[] } | undefined
    const finish = async (): Promise<void> => {
      if (at !== undefined && !this.#dryRun) await new ByteRemoval(this.#services, this.#upstream, at).removeOrphans(at.orphans, signal)
    }
    for await (const { repo, kind, digest, modifiedMs } of upstream.stored()) {
      signal.throwIfAborted()
      // Taproot removes its own content itself.
      if (repo === platformRepository) continue
      // The entries are sorted by repo.
      if (at?.repo !== repo) {
        await finish()
        const digests = new DigestNumbers()
        at = { repo, digests, held: upstreamDigests(await readContent(this.#services, { repo, digests }, signal)), orphans: [] }
      }
      if (modifiedMs > youngAfterMs || at.held[kind].has(at.digests.of(digest))) continue
      sum[kind === 'manifest' ? 'manifests' : 'blobs'] += 1
      at.orphans.push({ kind, digest })
    }
    await finish()
    return sum
  }
}
