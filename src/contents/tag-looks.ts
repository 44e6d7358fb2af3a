import { rootOf, type Uid } from '../base/uid.ts'
import type { RecordListener } from '../cache/record-tables.ts'
import type { Services } from '../engine/services.ts'
import { tagIn, tagsInTurns, TagWalks, type LookedTag, type TagPlace } from './tag-walks.ts'

/** A tag to look at. */
export interface TagLook {
  readonly tag: LookedTag
  /** False in a look at all tags: then nothing is known of an image that is still not read. Else it will soon be. */
  readonly isChanged: boolean
}

/** The most tags that wait in memory. */
const maxQueued = 100_000
/** An organisation has at most this part of them. So one with very many tags does not hold up the others. */
const shareOfOne = 0.1

/** Tags, each once. Organisations take turns. Those of one are in the order in which they were added. */
class TagQueue {
  readonly #byRoot = new Map<Uid, Map<string, LookedTag>>()
  readonly #max: number
  #count = 0

  /** `max` is the most tags of all organisations. */
  constructor(max: number) {
    this.#max = max
  }

  /** Returns false if there is no room. */
  add({ repo, name }: LookedTag): boolean {
    const root = rootOf(repo)
    const key = `${repo}:${name}`
    const tags = this.#byRoot.get(root) ?? new Map<string, LookedTag>()
    if (tags.has(key)) return true
    if (this.#count >= this.#max || tags.size >= this.#max * shareOfOne) return false
    this.#byRoot.set(root, tags)
    tags.set(key, { repo, name })
    this.#count += 1
    return true
  }

  /** Removes the first tag and returns it. */
  take(): LookedTag | undefined {
    for (const [root, tags] of this.#byRoot) {
      this.#byRoot.delete(root)
      for (const [key, tag] of tags) {
        tags.delete(key)
        this.#count -= 1
        if (tags.size > 0) this.#byRoot.set(root, tags)
        return tag
      }
    }
    return undefined
  }

  /** Takes all tags. */
  takeAll(): readonly LookedTag[] {
    const all = [...this.#byRoot.values()].flatMap((tags) => [...tags.values()])
    this.#byRoot.clear()
    this.#count = 0
    return all
  }
}

/** Tags that wait for the contents of an image in their repo. */
class WaitingTags {
  readonly #repos = new Map<Uid, { readonly edition: string | undefined; readonly names: Set<string> }>()
  /** The number of tags of each organisation. */
  readonly #counts = new Map<Uid, number>()
  readonly #max: number
  #count = 0

  /** `max` is the most tags of all organisations. */
  constructor(max: number) {
    this.#max = max
  }

  /** `edition` is that of the contents of the repo which were looked at. Without room, the tag waits for the next look at all tags. */
  add({ repo, name }: LookedTag, edition: string | undefined): void {
    const waiting = this.#repos.get(repo) ?? { edition, names: new Set() }
    if (waiting.names.has(name) || this.#count >= this.#max || (this.#counts.get(rootOf(repo)) ?? 0) >= this.#max * shareOfOne) return
    waiting.names.add(name)
    this.#repos.set(repo, waiting)
    this.#addCount(repo, 1)
  }

  #addCount(repo: Uid, count: number): void {
    const root = rootOf(repo)
    const left = (this.#counts.get(root) ?? 0) + count
    if (left === 0) this.#counts.delete(root)
    else this.#counts.set(root, left)
    this.#count += count
  }

  /** Takes the tags of repos whose contents have another edition now. */
  takeChanged(editionOf: (repo: Uid) => string | undefined): readonly LookedTag[] {
    const changed = [...this.#repos].filter(([repo, { edition }]) => editionOf(repo) !== edition)
    for (const [repo, { names }] of changed) {
      this.#repos.delete(repo)
      this.#addCount(repo, -names.size)
    }
    return changed.flatMap(([repo, { names }]) => [...names].map((name) => ({ repo, name })))
  }
}

/** What else than its tags a job follows. */
export interface FollowedChanges {
  /** Returns the place whose tags are to be looked at after the change of a record. Undefined if it does not matter. */
  readonly placeOf: (...change: Parameters<RecordListener>) => TagPlace | undefined
  /** The least time between two looks at the tags of an organisation because of such changes, in milliseconds. */
  readonly restMs: number
}

/** The tags that a job of the active worker looks at. They changed, or lie below a place that changed. All of them come when the job says so. */
export class TagLooks {
  readonly #services: Services
  readonly #placeOf: FollowedChanges['placeOf']
  readonly #walks: TagWalks
  /** Tags that changed. */
  readonly #changed: TagQueue
  /** Tags about whose images more may become known. */
  readonly #waiting: WaitingTags
  /** Tags that could not be looked at in this run. */
  readonly #failed: TagQueue
  /** The contents of images that were looked at. */
  #edition: unknown
  /** The tags that are still to be looked at. */
  #left: Iterator<LookedTag, void> | undefined
  /** True if changes may have been missed: then all tags are to be looked at. */
  #isDue = true

  /** `max` is the most tags that wait in memory, of each kind. */
  constructor(services: Services, { placeOf, restMs }: FollowedChanges, max = maxQueued) {
    ;[this.#changed, this.#failed, this.#waiting] = [new TagQueue(max), new TagQueue(max), new WaitingTags(max)]
    this.#services = services
    this.#placeOf = placeOf
    this.#walks = new TagWalks(services.cache, services.clock, restMs)
  }

  /** True if changes may have been missed, so that `begin` is needed. */
  get isDue(): boolean {
    return this.#isDue
  }

  /** Notes changes of tags from now on. Returns a function that ends this. */
  follow(): () => void {
    const { cache } = this.#services
    // What was missed before is found by a look at all tags.
    this.#isDue = true
    const ends = [
      cache.onRecord((kind, old, record) => {
        const changed = record ?? old
        if (kind === 'Tag' && changed !== undefined) this.#wake([tagIn(changed)])
        const place = this.#placeOf(kind, old, record)
        if (place !== undefined) this.#walks.add(place)
      }),
      cache.onReset(() => (this.#isDue = true)),
    ]
    return () => {
      for (const end of ends) end()
    }
  }

  /** Begins a look at all tags. */
  begin(): void {
    this.#isDue = false
    this.#left = tagsInTurns(this.#services.cache)
  }

  /**
   * Yields the tags to look at in this run. Every other one changed, or failed in the run before. The rest are those of walks and of a look at all tags, in
   * turns. So none of these holds up another.
   */
  *all(): Generator<TagLook, void> {
    this.#wake(this.#failed.takeAll())
    let isWalk = false
    const nextOfPlaces = (): TagLook | undefined => {
      isWalk = !isWalk
      return isWalk ? (this.#nextOfWalks() ?? this.#nextOfAll()) : (this.#nextOfAll() ?? this.#nextOfWalks())
    }
    for (let isChange = true; ; isChange = !isChange) {
      this.#wakeWaiting()
      const look = isChange ? (this.#nextChanged() ?? nextOfPlaces()) : (nextOfPlaces() ?? this.#nextChanged())
      if (look === undefined) return
      yield look
    }
  }

  #nextChanged(): TagLook | undefined {
    const tag = this.#changed.take()
    return tag && { tag, isChanged: true }
  }

  #nextOfWalks(): TagLook | undefined {
    const tag = this.#walks.next()
    return tag && { tag, isChanged: true }
  }

  #nextOfAll(): TagLook | undefined {
    const tag = this.#left?.next().value
    return tag === undefined ? undefined : { tag, isChanged: false }
  }

  /** Looks at tags. If `work` rejects, they are looked at again in the next run, and the promise rejects with the same error. */
  async at(looks: readonly TagLook[], work: () => Promise<void>): Promise<void> {
    try {
      await work()
    } catch (error) {
      for (const { tag } of looks) this.#queue(tag, this.#failed)
      throw error
    }
  }

  /** Has a tag looked at again when more is known of the images of its repo than `edition`. */
  waitFor(tag: LookedTag, edition: string | undefined): void {
    this.#waiting.add(tag, edition)
  }

  /** Returns the edition of what is known of the images of a repo. Ask before looking at them. */
  editionOf(repo: Uid): string | undefined {
    return this.#services.imageContents?.editionOf(repo)
  }

  /** Has tags looked at soon. */
  #wake(tags: readonly LookedTag[]): void {
    for (const tag of tags) this.#queue(tag, this.#changed)
  }

  /** Without room, all tags of the organisation are walked. Those that are gone then wait for the next look at all tags. */
  #queue(tag: LookedTag, queue: TagQueue): void {
    if (!queue.add(tag)) this.#walks.add(rootOf(tag.repo))
  }

  /** Has tags looked at about whose images more is known now. */
  #wakeWaiting(): void {
    const edition = this.#services.imageContents?.edition
    if (edition === this.#edition) return
    this.#edition = edition
    this.#wake(this.#waiting.takeChanged((repo) => this.editionOf(repo)))
  }
}
