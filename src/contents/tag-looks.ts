import { isBelow, trustedUid, type Uid } from '../base/uid.ts'
import type { CachedRecord } from '../cache/records/cached-record.ts'
import type { RecordTables } from '../cache/record-tables.ts'
import type { Services } from '../engine/services.ts'

/** A tag of a repo, by its name. */
export interface LookedTag {
  readonly repo: Uid
  readonly name: string
}

/** A tag to look at. */
export interface TagLook {
  readonly tag: LookedTag
  /** True if it changed just now: then an image that is not read yet will soon be. */
  readonly isChanged: boolean
}

/** The most tags that wait in memory. Others wait for the next look at all tags. */
const maxQueued = 100_000

/** Tags, each once, in the order in which they were added. */
class TagQueue {
  readonly #tags = new Map<string, LookedTag>()

  /** Returns false if there is no room. */
  add({ repo, name }: LookedTag): boolean {
    if (this.#tags.size >= maxQueued) return false
    this.#tags.set(`${repo}:${name}`, { repo, name })
    return true
  }

  /** Removes the first tag and returns it. */
  take(): LookedTag | undefined {
    for (const [key, tag] of this.#tags) {
      this.#tags.delete(key)
      return tag
    }
    return undefined
  }

  /** Takes all tags. */
  takeAll(): readonly LookedTag[] {
    const all = [...this.#tags.values()]
    this.#tags.clear()
    return all
  }
}

/** Tags that wait for the contents of an image in their repo. */
class WaitingTags {
  readonly #repos = new Map<Uid, { readonly edition: string | undefined; readonly names: Set<string> }>()
  #count = 0

  /** `edition` is that of the contents of the repo which were looked at. Without room, the tag waits for the next look at all tags. */
  add({ repo, name }: LookedTag, edition: string | undefined): void {
    if (this.#count >= maxQueued) return
    const waiting = this.#repos.get(repo) ?? { edition, names: new Set() }
    if (!waiting.names.has(name)) this.#count += 1
    waiting.names.add(name)
    this.#repos.set(repo, waiting)
  }

  /** Takes the tags of repos whose contents have another edition now. */
  takeChanged(editionOf: (repo: Uid) => string | undefined): readonly LookedTag[] {
    const changed = [...this.#repos].filter(([repo, { edition }]) => editionOf(repo) !== edition)
    for (const [repo, { names }] of changed) {
      this.#repos.delete(repo)
      this.#count -= names.size
    }
    return changed.flatMap(([repo, { names }]) => [...names].map((name) => ({ repo, name })))
  }
}

/** Returns the tag of a record. */
function tagIn({ parent, name }: CachedRecord): LookedTag {
  return { repo: trustedUid(parent), name }
}

/** Returns the first tag below a group or repo after a uid. */
function nextBelow(tables: RecordTables, place: Uid, after: Uid): CachedRecord | undefined {
  const { byUid } = tables.table('Tag')
  const next = byUid.at(byUid.rankBy(({ uid }) => uid <= after))
  return next !== undefined && isBelow(next.uid, place) ? next : undefined
}

/** Yields the tags below a repo, also while tags come and go. */
function* tagsBelow(tables: RecordTables, repo: Uid): Generator<LookedTag, void> {
  for (let next = nextBelow(tables, repo, repo); next !== undefined; next = nextBelow(tables, repo, next.uid)) yield tagIn(next)
}

/** Yields all tags, one of each organisation in turn, also while tags come and go. */
function* tagsInTurns(tables: RecordTables): Generator<LookedTag, void> {
  const last = new Map<Uid, Uid>([...tables.table('Group').matching('parent', '/')].map(({ uid }) => [uid, uid]))
  while (last.size > 0) {
    for (const [root, after] of last) {
      const next = nextBelow(tables, root, after)
      if (next === undefined) last.delete(root)
      else {
        last.set(root, next.uid)
        yield tagIn(next)
      }
    }
  }
}

/** True for a change of a repo that matters. */
type RepoChange = (old: CachedRecord, record: CachedRecord) => boolean

/** The tags that a job of the active worker looks at: those that changed at once, and all of them when the job says so. */
export class TagLooks {
  readonly #services: Services
  readonly #isRepoChange: RepoChange
  /** Repos that changed. */
  readonly #repos = new Set<Uid>()
  /** Tags that changed. */
  readonly #changed = new TagQueue()
  /** Tags about whose images more may become known. */
  readonly #waiting = new WaitingTags()
  /** Tags that could not be looked at in this run. */
  readonly #failed = new TagQueue()
  /** The contents of images that were looked at. */
  #edition: unknown
  /** The tags that are still to be looked at. */
  #left: Iterator<LookedTag, void> | undefined
  /** True if changes may have been missed: then all tags are to be looked at. */
  #isDue = true

  /** `isRepoChange` says for which changes of a repo the job looks at its tags; by default, for none. */
  constructor(services: Services, isRepoChange: RepoChange = () => false) {
    this.#services = services
    this.#isRepoChange = isRepoChange
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
        if (kind === 'Repo' && old !== undefined && record !== undefined && this.#isRepoChange(old, record)) this.#repos.add(record.uid)
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
    this.#left = tagsInTurns(this.#services.cache.tables)
  }

  /** Yields the tags to look at in this run: first those that changed, and those that failed in the run before. */
  *all(): Generator<TagLook, void> {
    this.#wake(this.#failed.takeAll())
    for (;;) {
      this.#wakeWaiting()
      const changed = this.#changed.take()
      if (changed !== undefined) {
        yield { tag: changed, isChanged: true }
        continue
      }
      const [repo] = this.#repos
      if (repo !== undefined) {
        this.#repos.delete(repo)
        for (const tag of tagsBelow(this.#services.cache.tables, repo)) yield { tag, isChanged: true }
        continue
      }
      const next = this.#left?.next()
      if (next === undefined || next.done === true) return
      yield { tag: next.value, isChanged: false }
    }
  }

  /** Looks at tags. If `work` rejects, they are looked at again in the next run, and the promise rejects with the same error. */
  async at(looks: readonly TagLook[], work: () => Promise<void>): Promise<void> {
    try {
      await work()
    } catch (error) {
      for (const { tag } of looks) this.#failed.add(tag)
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

  /** Has tags looked at before others. */
  #wake(tags: readonly LookedTag[]): void {
    // Without room, all tags are looked at.
    for (const tag of tags) if (!this.#changed.add(tag)) this.#isDue = true
  }

  /** Has tags looked at about whose images more is known now. */
  #wakeWaiting(): void {
    const edition = this.#services.imageContents?.edition
    if (edition === this.#edition) return
    this.#edition = edition
    this.#wake(this.#waiting.takeChanged((repo) => this.editionOf(repo)))
  }
}
