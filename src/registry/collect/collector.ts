import { fromBinary } from '@bufbuild/protobuf'
import { BlobRecordSchema, HistoryRecordSchema, ManifestRecordSchema, type BlobRecord, type ManifestRecord } from '../../gen/taproot/store/v1/registry_pb.ts'
import type { Digest } from '../../core/digest.ts'
import { trustedUid, type Uid } from '../../core/uid.ts'
import { blobKey, blobPrefix } from '../../resources/registry/blobs.ts'
import { collectKey, collecting } from '../../resources/registry/content-epoch.ts'
import { discardNote, discardPrefix } from '../../resources/registry/discards.ts'
import { manifestKey, manifestPrefix, referrerKeyPrefix } from '../../resources/registry/manifest-keys.ts'
import { removedRepoKey, removedRepoPrefix } from '../../resources/registry/repos.ts'
import { historyPrefix } from '../../resources/registry/tag-history.ts'
import { pagesOf } from '../../resources/trim/pages.ts'
import type { Services } from '../../resources/services.ts'
import { manifestsKey } from '../../store/keys.ts'
import type { Guard, Write } from '../../store/store.ts'
import type { DiskUpstream } from '../upstream/disk/disk-upstream.ts'
import type { Upstream } from '../upstream/upstream.ts'
import { garbageOf, type Garbage, type RepoContent } from './needed.ts'

/** What a collection did, or would do: how many of each, and how many bytes of blobs. */
export interface Collected {
  readonly repos: number
  readonly manifests: number
  readonly blobs: number
  readonly bytes: number
}

/** How a collection goes about it. */
export interface CollectOptions {
  /** How long something stays after nothing needs it any more, in milliseconds. */
  readonly graceMs: number
  /** Counts only. */
  readonly dryRun?: boolean
}

/** Up to this many things go under one mark: whoever puts bytes waits for it. */
const maxAtOnce = 50

/** True for the embedded upstream, which leaves more to us than a registry does. */
export function isEmbedded(upstream: Upstream): upstream is DiskUpstream {
  return 'collectUploads' in upstream
}

/** The mark under which nobody records new bytes of the repo. */
interface Mark {
  readonly guard: Guard
}

/**
 * Removes what nothing needs any more (architecture 8): first the record, with a note of its bytes in the same transaction, then the bytes, then the note. So it
 * may end anywhere: nobody is told of bytes that are gone, and none are forgotten. One at a time per store: it is the leader's, or the offline command's.
 */
export class Collector {
  readonly #services: Services
  readonly #upstream: Upstream
  readonly #options: CollectOptions

  constructor(services: Services, upstream: Upstream, options: CollectOptions) {
    this.#services = services
    this.#upstream = upstream
    this.#options = options
  }

  /** All repos, and those that were deleted. Rejects with StoreError, UpstreamError, or the signal's reason; what was done until then stays done. */
  async collect(signal: AbortSignal): Promise<Collected> {
    let sum: Collected = { repos: 0, manifests: 0, blobs: 0, bytes: 0 }
    const add = (one: Omit<Collected, 'repos'>): void => {
      sum = { repos: sum.repos + 1, manifests: sum.manifests + one.manifests, blobs: sum.blobs + one.blobs, bytes: sum.bytes + one.bytes }
    }
    const repos = [...this.#services.replica.snapshot.table('Repo').rows()].map((row) => row.uid)
    for (const repo of repos) {
      signal.throwIfAborted()
      add(await this.collectRepo(repo, signal))
    }
    const goneBeforeMs = this.#services.clock.now() - this.#options.graceMs
    for await (const page of pagesOf(this.#services.store, { prefix: removedRepoPrefix }, signal)) {
      for (const { key, value } of page) {
        if (Number(Buffer.from(value).toString()) > goneBeforeMs) continue
        add(await this.#collectRemoved(trustedUid(key.slice(removedRepoPrefix.length)), signal))
      }
    }
    // What was uploaded and never finished; other registries have such a rule of their own.
    if (this.#options.dryRun !== true && isEmbedded(this.#upstream)) await this.#upstream.collectUploads(this.#options.graceMs)
    return sum
  }

  /**
   * Removes bytes that no record tells of: put by a process that ended before it recorded them. Only while nobody else uses the upstream: what is younger than the
   * grace period is left alone. Rejects as `collect`.
   */
  async collectOrphans(upstream: Pick<DiskUpstream, 'stored'>, signal: AbortSignal): Promise<Pick<Collected, 'manifests' | 'blobs'>> {
    const { graceMs, dryRun = false } = this.#options
    const youngAfterMs = this.#services.clock.now() - graceMs
    const sum = { manifests: 0, blobs: 0 }
    let of: { repo: Uid; held: { manifests: Set<string>; blobs: Set<string> } } | undefined
    for await (const { repo, kind, digest, modifiedMs } of upstream.stored()) {
      signal.throwIfAborted()
      if (modifiedMs > youngAfterMs) continue
      // They come repo by repo.
      if (of?.repo !== repo) of = { repo, held: await this.#upstreamDigests(repo, signal) }
      const held = kind === 'manifest' ? of.held.manifests : of.held.blobs
      if (held.has(digest)) continue
      sum[kind === 'manifest' ? 'manifests' : 'blobs'] += 1
      if (dryRun) continue
      if (kind === 'manifest') await this.#upstream.deleteManifest(repo, digest, signal)
      else await this.#upstream.deleteBlob(repo, digest, signal)
    }
    return sum
  }

  /** One repo that is there. */
  async collectRepo(repo: Uid, signal: AbortSignal): Promise<Omit<Collected, 'repos'>> {
    const garbage = async (): Promise<{ content: RepoContent; garbage: Garbage }> => {
      const content = await this.#contentOf(repo, signal)
      return { content, garbage: garbageOf(content, this.#services.clock.now() - this.#options.graceMs) }
    }
    return this.#removeAll(repo, garbage, signal)
  }

  async #collectRemoved(repo: Uid, signal: AbortSignal): Promise<Omit<Collected, 'repos'>> {
    const everything = async (): Promise<{ content: RepoContent; garbage: Garbage }> => {
      const content = await this.#contentOf(repo, signal)
      return { content, garbage: { manifests: [...content.manifests.keys()], blobs: [...content.blobs.keys()] } }
    }
    const done = await this.#removeAll(repo, everything, signal)
    if (this.#options.dryRun === true) return done
    const writes = [removedRepoKey(repo), collectKey(repo), manifestsKey(repo)].map((key): Write => ({ kind: 'delete', key }))
    await this.#services.store.transact({ guards: [], writes }, signal)
    return done
  }

  /** Removes garbage until there is none, a batch under each mark. */
  async #removeAll(repo: Uid, find: () => Promise<{ content: RepoContent; garbage: Garbage }>, signal: AbortSignal): Promise<Omit<Collected, 'repos'>> {
    let sum = { manifests: 0, blobs: 0, bytes: 0 }
    const sizeOf = (content: RepoContent, blobs: readonly string[]): number =>
      blobs.reduce((bytes, blob) => bytes + Number(content.blobs.get(blob)?.size ?? 0n), 0)
    const { content, garbage } = await find()
    if (this.#options.dryRun === true) {
      return { manifests: garbage.manifests.length, blobs: garbage.blobs.length, bytes: sizeOf(content, garbage.blobs) }
    }
    let left = garbage.manifests.length + garbage.blobs.length
    while (left > 0 || (await this.#hasDiscards(repo, signal))) {
      await this.#marked(repo, signal, async (mark) => {
        // Anew under the mark: what was needed no longer a moment ago may be needed again.
        const now = await find()
        const manifests = now.garbage.manifests.slice(0, maxAtOnce)
        const blobs = now.garbage.blobs.slice(0, maxAtOnce - manifests.length)
        await this.#forget(repo, { ...now, garbage: { manifests, blobs }, mark }, signal)
        await this.#discard(repo, signal)
        sum = { manifests: sum.manifests + manifests.length, blobs: sum.blobs + blobs.length, bytes: sum.bytes + sizeOf(now.content, blobs) }
        left = now.garbage.manifests.length + now.garbage.blobs.length - manifests.length - blobs.length
      })
    }
    return sum
  }

  /** Everything that the repo holds, and what names it. */
  async #contentOf(repo: Uid, signal: AbortSignal): Promise<RepoContent> {
    const { store, replica } = this.#services
    const manifests = new Map<string, ManifestRecord>()
    const blobs = new Map<string, BlobRecord>()
    const named = new Set<string>()
    // What names comes before what is named: a tag that is made in between is of a manifest that is young, or that a name holds.
    for await (const page of pagesOf(store, { prefix: `${historyPrefix}${repo}:` }, signal)) {
      for (const { value } of page) named.add(fromBinary(HistoryRecordSchema, value).digest)
    }
    await replica.barrier(signal)
    for (const row of replica.snapshot.table('Tag').matching('parent', repo)) named.add((row.message as unknown as { digest: string }).digest)
    const afterPrefix = (key: string, prefix: string): string => key.slice(prefix.length + repo.length + 1)
    for await (const page of pagesOf(store, { prefix: `${manifestPrefix}${repo}/` }, signal)) {
      for (const { key, value } of page) manifests.set(afterPrefix(key, manifestPrefix), fromBinary(ManifestRecordSchema, value))
    }
    for await (const page of pagesOf(store, { prefix: `${blobPrefix}${repo}/` }, signal)) {
      for (const { key, value } of page) blobs.set(afterPrefix(key, blobPrefix), fromBinary(BlobRecordSchema, value))
    }
    return { manifests, blobs, named }
  }

  async #hasDiscards(repo: Uid, signal: AbortSignal): Promise<boolean> {
    const { entries } = await this.#services.store.range({ prefix: `${discardPrefix}${repo}/`, limit: 1 }, signal)
    return entries.length > 0
  }

  /** Sets the mark, works, and sets it back, whatever happens. A mark that is there is that of a leader who went away: there is one at a time. */
  async #marked(repo: Uid, signal: AbortSignal, work: (mark: Mark) => Promise<void>): Promise<void> {
    const { store } = this.#services
    const key = collectKey(repo)
    const set = await store.transact({ guards: [], writes: [{ kind: 'put', key, value: Buffer.from(collecting) }] }, signal)
    if (!set.committed) throw new Error('a write without guards was refused')
    try {
      await work({ guard: { kind: 'unchanged', key, revision: set.revision } })
    } finally {
      // Also where the signal ended the work.
      const patience = AbortSignal.timeout(5_000)
      await store.transact(
        { guards: [{ kind: 'unchanged', key, revision: set.revision }], writes: [{ kind: 'put', key, value: Buffer.from('idle') }] },
        patience,
      )
    }
  }

  /** Removes records, with a note of their bytes each. */
  async #forget(repo: Uid, found: { content: RepoContent; garbage: Garbage; mark: Mark }, signal: AbortSignal): Promise<void> {
    const { content, garbage, mark } = found
    const writes: Write[] = []
    const guards: Guard[] = [mark.guard]
    const groups: Write[][] = []
    for (const digest of garbage.manifests) {
      const manifest = content.manifests.get(digest)
      if (manifest === undefined) continue
      const referrer: Write[] = manifest.subject === '' ? [] : [{ kind: 'delete', key: `${referrerKeyPrefix(repo, manifest.subject)}${digest}` }]
      groups.push([{ kind: 'delete', key: manifestKey(repo, digest) }, discardNote(repo, 'manifest', manifest.upstreamDigest || digest), ...referrer])
    }
    for (const digest of garbage.blobs) {
      groups.push([{ kind: 'delete', key: blobKey(repo, digest) }, discardNote(repo, 'blob', content.blobs.get(digest)?.upstreamDigest || digest)])
    }
    for (const group of groups) writes.push(...group)
    // Two digests may be of the same bytes.
    const distinct = [...new Map(writes.map((write) => [write.key, write])).values()]
    for (let at = 0; at < distinct.length; at += 100) {
      const { committed } = await this.#services.store.transact({ guards, writes: distinct.slice(at, at + 100) }, signal)
      if (!committed) throw new Error('another collection runs')
    }
  }

  /** Removes the bytes that notes tell of, except those that are held again, also under another digest. */
  async #discard(repo: Uid, signal: AbortSignal): Promise<void> {
    const { store } = this.#services
    const held = await this.#upstreamDigests(repo, signal)
    for await (const page of pagesOf(store, { prefix: `${discardPrefix}${repo}/` }, signal)) {
      for (const { key } of page) {
        const [sort = '', digest = ''] = key.slice(discardPrefix.length + repo.length + 1).split('/')
        signal.throwIfAborted()
        if (sort === 'manifest' && !held.manifests.has(digest)) await this.#upstream.deleteManifest(repo, digest as Digest, signal)
        if (sort === 'blob' && !held.blobs.has(digest)) await this.#upstream.deleteBlob(repo, digest as Digest, signal)
        await store.transact({ guards: [], writes: [{ kind: 'delete', key }] }, signal)
      }
    }
  }

  async #upstreamDigests(repo: Uid, signal: AbortSignal): Promise<{ manifests: Set<string>; blobs: Set<string> }> {
    const { manifests, blobs } = await this.#contentOf(repo, signal)
    return {
      manifests: new Set([...manifests].map(([digest, record]) => record.upstreamDigest || digest)),
      blobs: new Set([...blobs].map(([digest, record]) => record.upstreamDigest || digest)),
    }
  }
}
