import { fromBinary } from '@bufbuild/protobuf'
import { RecentMap } from '../../base/recent-map.ts'
import { untilAborted } from '../../base/timing.ts'
import { rootOf, type Uid } from '../../base/uid.ts'
import { CooperativeTask } from '../../cache/cooperative-task.ts'
import type { Services } from '../../engine/services.ts'
import { ManifestRecordSchema, type ManifestRecord } from '../../gen/taproot/store/v1/registry_pb.ts'
import { manifestKey } from '../records/manifest-keys.ts'
import { indexGeneration, manifestGeneration } from '../records/manifests.ts'

/** An index that contains a manifest. */
export interface ParentIndex {
  readonly digest: string
  readonly record: Pick<ManifestRecord, 'upstreamDigest' | 'firstPushTimeMs' | 'createTimeMs'>
  /** True if it lists the manifest as an image of a platform. */
  readonly asImage: boolean
}

type Parents = ReadonlyMap<string, readonly ParentIndex[]>

/** The indexes of a repo, by the digests that they contain, as of two generations. */
interface KnownIndexes {
  readonly generations: string
  readonly parents: Parents
  readonly weight: number
}

/** A look at all manifests of a repo. Pulls wait for its answer. */
interface Scan {
  /** The generations that it reads; undefined until it begins. */
  generations: string | undefined
  readonly known: Promise<KnownIndexes>
}

/** How many manifests are read from the store at once: few at first, then as many as have about this size in bytes. A large index has a megabyte. */
const manifestsAtOnce = { first: 2, most: 500, bytes: 1024 * 1024 }
/** The most digests in indexes to remember, of all repos. The last repo is remembered however many it has: its manifests have a limit of their own. */
const rememberedDigests = 400_000
/** Number of indexes that contain a digest that take as much memory as the digest. */
const parentsPerDigest = 16
/** Time for reading the manifests of a repo, in milliseconds. */
const timeoutMs = 60_000

/** Number of repos whose manifests are read at the same time, and how many of them are of one organisation. */
const scansAtOnce = { all: 8, organisation: 2 }

/** Returns a text that changes when an index is pushed to a repo, and when a manifest is deleted. */
function generationsOf({ cache: { tables } }: Services, repo: Uid): string {
  return `${manifestGeneration(tables, repo)} ${indexGeneration(tables, repo)}`
}

/** Collects the indexes of a repo while its manifests are read. */
class IndexCollector {
  readonly #parents = new Map<string, ParentIndex[]>()
  /** The SHA-256 digests of manifests that the repo holds by another digest. */
  readonly #upstream = new Map<string, string>()
  #entries = 0

  add(digest: string, record: ManifestRecord): void {
    const { upstreamDigest, firstPushTimeMs, createTimeMs } = record
    if (upstreamDigest !== digest) this.#upstream.set(digest, upstreamDigest)
    const parent = { digest, record: { upstreamDigest, firstPushTimeMs, createTimeMs } }
    const [asImage, asOther] = [
      { ...parent, asImage: true },
      { ...parent, asImage: false },
    ]
    const children = new Map<string, boolean>()
    for (const child of record.children) {
      const isImage = child.architecture !== '' && child.architecture !== 'unknown'
      children.set(child.digest, isImage || children.get(child.digest) === true)
    }
    for (const [child, isImage] of children) this.#put(child, [isImage ? asImage : asOther])
  }

  /** Returns the indexes by the SHA-256 digests that they contain, whatever digests they name. */
  finish(generations: string): KnownIndexes {
    for (const [digest, upstreamDigest] of this.#upstream) {
      const parents = this.#parents.get(digest)
      this.#parents.delete(digest)
      if (parents !== undefined) this.#put(upstreamDigest, parents)
    }
    return { generations, parents: this.#parents, weight: this.#parents.size + Math.ceil(this.#entries / parentsPerDigest) }
  }

  #put(digest: string, parents: ParentIndex[]): void {
    const known = this.#parents.get(digest)
    this.#entries += parents.length
    if (known === undefined) this.#parents.set(digest, parents)
    else for (const parent of parents) known.push(parent)
  }
}

/** Lets few scans run at the same time. Organisations take turns. */
class ScanTurns {
  /** Scans that wait, by organisation. The first organisation is the next one. */
  readonly #waiting = new Map<Uid, (() => void)[]>()
  /** The number of scans that run, by organisation. */
  readonly #running = new Map<Uid, number>()
  #count = 0

  /** Resolves with what the scan returns, or rejects with its error. */
  async take<T>(root: Uid, scan: () => Promise<T>): Promise<T> {
    const turn = Promise.withResolvers<void>()
    this.#waiting.set(root, [...(this.#waiting.get(root) ?? []), turn.resolve])
    this.#begin()
    await turn.promise
    try {
      return await scan()
    } finally {
      this.#add(root, -1)
      this.#begin()
    }
  }

  #add(root: Uid, count: number): void {
    this.#count += count
    const left = (this.#running.get(root) ?? 0) + count
    if (left === 0) this.#running.delete(root)
    else this.#running.set(root, left)
  }

  #begin(): void {
    for (const [root, [first, ...others]] of [...this.#waiting]) {
      if (this.#count >= scansAtOnce.all) return
      if ((this.#running.get(root) ?? 0) >= scansAtOnce.organisation) continue
      this.#waiting.delete(root)
      if (others.length > 0) this.#waiting.set(root, others)
      this.#add(root, 1)
      first?.()
    }
  }
}

/** Which indexes of a repo contain a manifest. Nothing in the store says that, so all manifests of the repo are read after each push of an index. */
export class IndexParents {
  readonly #services: Services
  readonly #known: RecentMap<Uid, KnownIndexes>
  /** The last scan of each repo that has not ended. */
  readonly #scans = new Map<Uid, Scan>()
  readonly #turns = new ScanTurns()

  /** `remembered` is the most digests in indexes to remember. */
  constructor(services: Services, remembered = rememberedDigests) {
    this.#services = services
    this.#known = new RecentMap(remembered, ({ weight }) => Math.min(weight + 1, remembered))
  }

  /** Resolves with the indexes that contain a manifest, by its SHA-256 digest. Rejects with StoreError or the signal's reason. */
  async of({ repo, upstreamDigest }: { readonly repo: Uid; readonly upstreamDigest: string }, signal: AbortSignal): Promise<readonly ParentIndex[]> {
    const generations = generationsOf(this.#services, repo)
    const known = this.#known.get(repo)
    const { parents } = known?.generations === generations ? known : await untilAborted(this.#read(repo, generations), signal)
    return parents.get(upstreamDigest) ?? []
  }

  /**
   * Reads the indexes of a repo: one scan at a time. Pulls that come when it is out of date wait for its end and share one more. So pushes cannot have the
   * manifests of a repo read many times at once.
   */
  #read(repo: Uid, generations: string): Promise<KnownIndexes> {
    const last = this.#scans.get(repo)
    if (last !== undefined && (last.generations ?? generations) === generations) return last.known
    const known = Promise.withResolvers<KnownIndexes>()
    const scan: Scan = { generations: undefined, known: known.promise }
    this.#scans.set(repo, scan)
    const forget = (): void => {
      if (this.#scans.get(repo) === scan) this.#scans.delete(repo)
    }
    const begin = (): Promise<KnownIndexes> => {
      scan.generations = generationsOf(this.#services, repo)
      return this.#collect(repo, scan.generations, AbortSignal.timeout(timeoutMs))
    }
    known.promise.then((found) => {
      this.#known.set(repo, found)
      forget()
    }, forget)
    const take = (): void => known.resolve(this.#turns.take(rootOf(repo), begin))
    if (last === undefined) take()
    else last.known.then(take, take)
    return known.promise
  }

  async #collect(repo: Uid, generations: string, signal: AbortSignal): Promise<KnownIndexes> {
    const prefix = manifestKey(repo, '')
    const task = new CooperativeTask()
    const collector = new IndexCollector()
    let limit = manifestsAtOnce.first
    for (let after: string | undefined; ;) {
      const { entries, more } = await this.#services.store.range({ prefix, ...(after === undefined ? {} : { after }), limit }, signal)
      const bytes = entries.reduce((sum, { value }) => sum + value.length, 0)
      limit = Math.min(manifestsAtOnce.most, Math.ceil((manifestsAtOnce.bytes * entries.length) / Math.max(1, bytes)))
      for (const { key, value } of entries) {
        const record = fromBinary(ManifestRecordSchema, value)
        if (record.deleteTimeMs === 0n) collector.add(key.slice(prefix.length), record)
        if (task.shouldYield) await task.pause()
      }
      after = entries.at(-1)?.key
      if (!more || after === undefined) return collector.finish(generations)
    }
  }
}
