import { fromBinary } from '@bufbuild/protobuf'
import { RecentMap } from '../../base/recent-map.ts'
import type { Uid } from '../../base/uid.ts'
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

/** The indexes of a repo, by the digests that they contain, as of two generations. */
interface KnownIndexes {
  readonly generations: string
  readonly parents: ReadonlyMap<string, readonly ParentIndex[]>
  readonly children: number
}

/** Number of manifests that are read from the store at once. */
const manifestsAtOnce = 500
/** The most entries of indexes to remember, of all repos. */
const rememberedChildren = 200_000

/** Returns a text that changes when an index is pushed to a repo, and when a manifest is deleted. */
function generationsOf({ cache: { tables } }: Services, repo: Uid): string {
  return `${manifestGeneration(tables, repo)} ${indexGeneration(tables, repo)}`
}

/** Which indexes of a repo contain a manifest. Nothing in the store says that, so all manifests of the repo are read after each push of an index. */
export class IndexParents {
  readonly #services: Services
  readonly #known = new RecentMap<Uid, KnownIndexes>(rememberedChildren, ({ children }) => children + 1)

  constructor(services: Services) {
    this.#services = services
  }

  /** Resolves with the indexes that contain a manifest. Rejects with StoreError or the signal's reason. */
  async of({ repo, digest }: { readonly repo: Uid; readonly digest: string }, signal: AbortSignal): Promise<readonly ParentIndex[]> {
    const generations = generationsOf(this.#services, repo)
    let known = this.#known.get(repo)
    if (known?.generations !== generations) {
      known = await this.#read(repo, generations, signal)
      this.#known.set(repo, known)
    }
    return known.parents.get(digest) ?? []
  }

  async #read(repo: Uid, generations: string, signal: AbortSignal): Promise<KnownIndexes> {
    const prefix = manifestKey(repo, '')
    const parents = new Map<string, ParentIndex[]>()
    let children = 0
    for (let after: string | undefined; ;) {
      const { entries, more } = await this.#services.store.range({ prefix, ...(after === undefined ? {} : { after }), limit: manifestsAtOnce }, signal)
      for (const { key, value } of entries) {
        const record = fromBinary(ManifestRecordSchema, value)
        if (record.deleteTimeMs !== 0n) continue
        const { upstreamDigest, firstPushTimeMs, createTimeMs } = record
        for (const child of record.children) {
          const asImage = child.architecture !== '' && child.architecture !== 'unknown'
          const parent = { digest: key.slice(prefix.length), record: { upstreamDigest, firstPushTimeMs, createTimeMs }, asImage }
          parents.set(child.digest, [...(parents.get(child.digest) ?? []), parent])
          children++
        }
      }
      after = entries.at(-1)?.key
      if (!more || after === undefined) return { generations, parents, children }
    }
  }
}
