import type { Digest } from '../../base/digest.ts'
import { trustedUid } from '../../base/uid.ts'
import { DomainError } from '../../base/errors.ts'
import type { CachedRecord } from '../../cache/records/cached-record.ts'
import { messageOf } from '../../cache/records/record-types.ts'
import type { LifecycleSource } from '../../cache/lists/lifecycle-source.ts'
import { oneByOne } from '../../engine/jobs/one-by-one.ts'
import type { Services } from '../../engine/services.ts'
import { EolTag_TagStatus as Status } from '../../gen/taproot/registry/v2/eol_tags_pb.ts'
import { followLifeCycle, isDeprecatedByLifeCycle, mayDeprecate, tagNamed, tagOf } from '../../registry/index.ts'
import { TagLooks, type FollowedChanges, type TagLook } from '../tag-looks.ts'
import { dayText, eolStatuses, tagLifeCycles, type TagLifeCycle } from './life-cycles.ts'

/** How often all tags are looked at, whatever changed, in milliseconds. */
const lookEveryMs = 6 * 3_600_000
/** Number of tags whose life cycles are looked up together. */
const tagsAtOnce = 64
/** The turns of this job at threads that answer requests too. */
const turnKey = 'life cycles'

/** No repo holds this image. */
const noImage = { repo: trustedUid('-'), digest: `sha256:${'0'.repeat(64)}` as Digest } // a cast: a digest

/** A tag that exists, and how it came to be looked at. */
interface FoundTag {
  readonly look: TagLook
  readonly record: CachedRecord
  /** Of the contents of its repo, before the look. */
  readonly edition: string | undefined
}

/** Repos whose rules on products change. */
const ruleChanges: FollowedChanges = {
  restMs: 0,
  placeOf: (kind, old, record) => {
    if (kind !== 'Repo' || old === undefined || record === undefined) return undefined
    const [before, after] = [old, record].map((one) => messageOf(one, 'Repo').productRules)
    return JSON.stringify(before) === JSON.stringify(after) ? undefined : record.uid
  },
}

function* batchesOf(looks: Iterable<TagLook>): Generator<readonly TagLook[], void> {
  let batch: TagLook[] = []
  for (const look of looks) {
    batch.push(look)
    if (batch.length < tagsAtOnce) continue
    yield batch
    batch = []
  }
  if (batch.length > 0) yield batch
}

/** Sets `deprecated` of tags whose versions are no longer supported, and takes it back if they are (docs/adr/0042). The active worker runs it. */
export class LifeCycleDeprecation {
  readonly #services: Services
  readonly #readsContents: boolean
  readonly #looks: TagLooks
  /** The catalogue and the day for which all tags were looked at, or are. */
  #looked: { readonly source: LifecycleSource; readonly today: string; readonly atMs: number } | undefined

  /** `readsContents`: pushed images are read, so that an image without contents gets some. */
  constructor(services: Services, { readsContents }: { readonly readsContents: boolean }) {
    this.#services = services
    this.#readsContents = readsContents
    this.#looks = new TagLooks(services, ruleChanges)
  }

  /** Notes changes of tags from now on. Returns a function that ends this. */
  follow(): () => void {
    return this.#looks.follow()
  }

  /** Follows what changed. Tags that could not be looked at are tried again in the next run. Rejects with the first failure, StoreError, or the signal's reason. */
  async run(signal: AbortSignal): Promise<void> {
    const source = this.#source()
    if (source === undefined || (await this.#isLoading(signal))) return
    await this.#begin(source, signal)
    await oneByOne(batchesOf(this.#looks.all()), (looks) => this.#lookAtBatch(source, looks, signal), { signal })
  }

  /** Looks at tags together, and at each on its own if that fails: one of them must not keep the others from being looked at. */
  async #lookAtBatch(source: LifecycleSource, looks: readonly TagLook[], signal: AbortSignal): Promise<void> {
    try {
      await this.#lookAt(source, looks, signal)
    } catch {
      signal.throwIfAborted()
      await oneByOne(looks, (look) => this.#looks.at([look], () => this.#lookAt(source, [look], signal)), { signal })
    }
  }

  /** Resolves with true while this process loads the contents of images. */
  async #isLoading(signal: AbortSignal): Promise<boolean> {
    try {
      await this.#services.imageContents?.imagesAmong([noImage], { key: turnKey, signal })
      return false
    } catch (error) {
      if (error instanceof DomainError && error.code === 14) return true
      throw error
    }
  }

  /** Returns the life cycles; undefined if there are none yet. */
  #source(): LifecycleSource | undefined {
    try {
      return this.#services.catalogue('lifecycle')
    } catch (error) {
      // They are being loaded.
      if (error instanceof DomainError && error.code === 14) return undefined
      throw error
    }
  }

  /** Begins a look at all tags if one is due. */
  async #begin(source: LifecycleSource, signal: AbortSignal): Promise<void> {
    const { clock, cache } = this.#services
    const atMs = clock.now()
    const today = dayText(atMs)
    const looked = this.#looked
    if (!this.#looks.isDue && looked?.source === source && looked.today === today && atMs - looked.atMs < lookEveryMs) return
    await cache.barrier(signal)
    this.#looked = { source, today, atMs }
    this.#looks.begin()
  }

  async #lookAt(source: LifecycleSource, looks: readonly TagLook[], signal: AbortSignal): Promise<void> {
    const { tables } = this.#services.cache
    const tags = looks.flatMap((look): FoundTag[] => {
      const record = tagNamed(tables, look.tag.repo, look.tag.name)
      return record === undefined ? [] : [{ look, record, edition: this.#looks.editionOf(look.tag.repo) }]
    })
    const named = tags.map(({ look, record }) => ({ ...look.tag, digest: tagOf(record).digest as Digest | '' })) // checked when the tag was written
    const lifeCycles = await tagLifeCycles(this.#services, { source, tags: named }, { key: turnKey, signal })
    await oneByOne(tags.entries(), ([at, tag]) => this.#decide(tag, lifeCycles[at], signal), { signal })
  }

  async #decide({ look, record, edition }: FoundTag, lifeCycle: TagLifeCycle | undefined, signal: AbortSignal): Promise<void> {
    const { found, mayChange = false, isRead = true } = lifeCycle ?? {}
    if (mayChange && !isRead && this.#readsContents) {
      this.#looks.waitFor(look.tag, edition)
      return
    }
    const { tagStatus } = eolStatuses(found?.cycle, dayText(this.#services.clock.now()))
    const deprecated = tagStatus === Status.TAG_INACTIVE
    if (deprecated ? mayDeprecate(record) : isDeprecatedByLifeCycle(record)) await this.#follow({ record, deprecated }, signal)
  }
  async #follow(change: { readonly record: CachedRecord; readonly deprecated: boolean }, signal: AbortSignal): Promise<void> {
    const { record, deprecated } = change
    if (!(await followLifeCycle(this.#services, change, signal))) return
    this.#services.log.info('the life cycle changed a tag', { repo: record.parent, tag: record.name, deprecated })
  }
}
