import { isBelow, isWithin, rootOf, rootParent, trustedUid, type Uid } from '../base/uid.ts'
import type { RecordCache } from '../cache/record-cache.ts'
import type { CachedRecord } from '../cache/records/cached-record.ts'
import type { RecordTables } from '../cache/record-tables.ts'
import type { Clock } from '../base/runtime.ts'

/** A tag of a repo, by its name. */
export interface LookedTag {
  readonly repo: Uid
  readonly name: string
}

/** A group, a repo, or `/` for everything. */
export type TagPlace = Uid | typeof rootParent

/** The most places of an organisation that are walked one by one. With more, the whole organisation is walked. */
const maxPlaces = 100

/** Returns the tag of a record. */
export function tagIn({ parent, name }: CachedRecord): LookedTag {
  return { repo: trustedUid(parent), name }
}

/** Returns the first tag below a group or repo after a uid. */
function nextBelow(tables: RecordTables, place: Uid, after: Uid): CachedRecord | undefined {
  const { byUid } = tables.table('Tag')
  const next = byUid.at(byUid.rankBy(({ uid }) => uid <= after))
  return next !== undefined && isBelow(next.uid, place) ? next : undefined
}

/** Yields the tags below a group or repo, also while tags come and go. */
function* tagsBelow(cache: RecordCache, place: Uid): Generator<LookedTag, void> {
  for (let next = nextBelow(cache.tables, place, place); next !== undefined; next = nextBelow(cache.tables, place, next.uid)) yield tagIn(next)
}

/** Yields all tags, one of each organisation in turn, also while tags come and go. */
export function* tagsInTurns({ tables }: Pick<RecordCache, 'tables'>): Generator<LookedTag, void> {
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

/** Yields the tags below places, each once. */
function* tagsAmong(cache: RecordCache, places: ReadonlySet<TagPlace>): Generator<LookedTag, void> {
  let last: TagPlace | undefined
  // What is within a place follows it at once.
  for (const place of [...places].sort()) {
    if (last !== undefined && isWithin(place, last)) continue
    last = place
    if (place === rootParent) yield* tagsInTurns(cache)
    else yield* tagsBelow(cache, place)
  }
}

/**
 * Walks over the tags below places that changed, one tag of each organisation in turn. Places that change while their organisation is walked, or rests after
 * that, are walked together later.
 */
export class TagWalks {
  readonly #cache: RecordCache
  readonly #clock: Clock
  readonly #restMs: number
  /** The places to walk next, by organisation. `/` counts as one. */
  readonly #due = new Map<TagPlace, Set<TagPlace>>()
  readonly #running = new Map<TagPlace, Iterator<LookedTag, void>>()
  readonly #restUntilMs = new Map<TagPlace, number>()

  /** An organisation rests for `restMs` after a walk. */
  constructor(cache: RecordCache, clock: Clock, restMs: number) {
    this.#cache = cache
    this.#clock = clock
    this.#restMs = restMs
  }

  /** Has the tags below a place walked. */
  add(place: TagPlace): void {
    const root = place === rootParent ? place : rootOf(place)
    const places = this.#due.get(root) ?? new Set()
    this.#due.set(root, places.size < maxPlaces ? places.add(place) : new Set([root]))
  }

  /** Returns the next tag. Undefined if none is left for now. */
  next(): LookedTag | undefined {
    this.#begin()
    for (const [root, walk] of this.#running) {
      const { value } = walk.next()
      this.#running.delete(root)
      if (value === undefined) {
        this.#restUntilMs.set(root, this.#clock.now() + this.#restMs)
        continue
      }
      this.#running.set(root, walk)
      return value
    }
    return undefined
  }

  /** Begins the walks of organisations that have rested. */
  #begin(): void {
    if (this.#due.size === 0 && this.#restUntilMs.size === 0) return
    const nowMs = this.#clock.now()
    for (const [root, untilMs] of this.#restUntilMs) if (untilMs <= nowMs) this.#restUntilMs.delete(root)
    for (const [root, places] of this.#due) {
      if (this.#running.has(root) || this.#restUntilMs.has(root)) continue
      this.#due.delete(root)
      this.#running.set(root, tagsAmong(this.#cache, places))
    }
  }
}
