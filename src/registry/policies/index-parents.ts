import { fromBinary } from '@bufbuild/protobuf'
import { RecentMap } from '../../base/recent-map.ts'
import { untilAborted } from '../../base/timing.ts'
import type { Uid } from '../../base/uid.ts'
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

/** An answer that pulls wait for. */
interface ReadIndexes {
  readonly generations: string
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

/** Which indexes of a repo contain a manifest. Nothing in the store says that, so all manifests of the repo are read after each push of an index. */
export class IndexParents {
  readonly #services: Services
  readonly #known: RecentMap<Uid, KnownIndexes>
  readonly #reading = new Map<Uid, ReadIndexes>()

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

  /** Reads the indexes of a repo. Pulls that wait at the same time share the answer. */
  #read(repo: Uid, generations: string): Promise<KnownIndexes> {
    const reading = this.#reading.get(repo)
    if (reading?.generations === generations) return reading.known
    const made = { generations, known: this.#collect(repo, generations, AbortSignal.timeout(timeoutMs)) }
    this.#reading.set(repo, made)
    const forget = (): void => {
      if (this.#reading.get(repo) === made) this.#reading.delete(repo)
    }
    made.known.then((known) => {
      this.#known.set(repo, known)
      forget()
    }, forget)
    return made.known
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
