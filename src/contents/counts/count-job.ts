import { DomainError } from '../../base/errors.ts'
import type { Digest } from '../../base/digest.ts'
import { rootParent, trustedUid } from '../../base/uid.ts'
import type { AdvisorySource } from '../../cache/lists/advisory-source.ts'
import { messageOf } from '../../cache/records/record-types.ts'
import { dayMs } from '../../catalogue/index.ts'
import { oneByOne } from '../../engine/jobs/one-by-one.ts'
import type { Services } from '../../engine/services.ts'
import { publicRoot, tagNamed } from '../../registry/index.ts'
import { entriesOf, pagesOf } from '../../store/pages.ts'
import {
  countsKey,
  countsPrefix,
  decodeStates,
  encodeStates,
  monthBefore,
  monthsBefore,
  monthDay,
  monthPrefix,
  tagOfKey,
  withState,
  type CountedState,
  type CountedTag,
  type TagStates,
} from './tag-month.ts'
import { imageState } from './tag-state.ts'
import { TagLooks, type FollowedChanges, type TagLook } from '../tag-looks.ts'
import { changedEvent } from './changed-event.ts'

/** How long states are kept, in months besides the current one. */
const keptMonths = 13
/** How often all tags are looked at, whatever changed, in milliseconds. */
const lookEveryMs = 6 * 3_600_000
/** The least time between two looks at the tags of an organisation because of hand-made advisories and renames, in milliseconds. */
const restMs = 30_000
/** Number of expired records that one transaction removes. */
const expiredAtOnce = 100
/** Number of times that a record is read again because it changed meanwhile. */
const maxAttempts = 3
/** The turns of this job at threads that answer requests too. */
const turnKey = 'vulnerability counts'

const gone: CountedState = { kind: 'gone' }

/**
 * Hand-made advisories count for the repos below their group, and those of the public organisation itself for all (docs/adr/0036). Statements about images name
 * the paths of repos (docs/adr/0045).
 */
function placeOfChange({ cache, settings }: Services): FollowedChanges['placeOf'] {
  return (kind, old, record) => {
    if ((kind === 'Repo' || kind === 'Group') && old !== undefined && record !== undefined) return old.name === record.name ? undefined : record.uid
    const changed = record ?? old
    if (kind !== 'Advisory' || changed === undefined) return undefined
    const group = trustedUid(changed.parent) // an advisory lies in a group
    return group === publicRoot(cache.tables, settings.registry?.publicOrganization) ? rootParent : group
  }
}

/** Records the vulnerabilities of each tag over time (docs/adr/0029). The active worker runs it. */
export class VulnerabilityCounts {
  readonly #services: Services
  readonly #looks: TagLooks
  /** The advisories and the day for which all tags were looked at, or are. Undefined if they must be. */
  #looked: { readonly source: AdvisorySource; readonly day: number; readonly atMs: number } | undefined

  constructor(services: Services) {
    this.#services = services
    this.#looks = new TagLooks(services, { placeOf: placeOfChange(services), restMs })
  }

  /** Notes changes of tags from now on. Returns a function that ends this. */
  follow(): () => void {
    return this.#looks.follow()
  }

  /** Records what changed. Tags that could not be looked at are tried again in the next run. Rejects with the first failure, StoreError, or the signal's reason. */
  async run(signal: AbortSignal): Promise<void> {
    const source = this.#advisories()
    if (source === undefined) return
    await this.#begin(source, signal)
    await oneByOne(this.#looks.all(), (look) => this.#looks.at([look], () => this.#count(look, signal)), { signal })
  }

  /** Returns the advisories; undefined if there are none yet. */
  #advisories(): AdvisorySource | undefined {
    try {
      return this.#services.imageContents === undefined ? undefined : this.#services.catalogue('advisories')
    } catch (error) {
      // They are being loaded.
      if (error instanceof DomainError && error.code === 14) return undefined
      throw error
    }
  }

  /** Begins a look at all tags if one is due. */
  async #begin(source: AdvisorySource, signal: AbortSignal): Promise<void> {
    const { clock, cache } = this.#services
    const atMs = clock.now()
    const day = Math.floor(atMs / dayMs)
    const looked = this.#looked
    if (!this.#looks.isDue && looked?.source === source && looked.day === day && atMs - looked.atMs < lookEveryMs) return
    await cache.barrier(signal)
    const { month } = monthDay(day)
    await this.#expire(month, signal)
    // A tag that is gone may have no record of this month.
    for (const one of [month, ...monthsBefore(month)]) await this.#endGone(monthPrefix(one), signal)
    this.#looked = { source, day, atMs }
    this.#looks.begin()
  }

  async #count({ tag, isChanged }: TagLook, signal: AbortSignal): Promise<void> {
    const record = tagNamed(this.#services.cache.tables, tag.repo, tag.name)
    if (record === undefined) return this.#record(tag, gone, signal)
    const digest = messageOf(record, 'Tag').digest as Digest // checked when the tag was written
    const edition = this.#looks.editionOf(tag.repo)
    const state = await imageState(this.#services, { repo: tag.repo, digest }, { key: turnKey, signal })
    if (state === 'pending') this.#looks.waitFor(tag, edition)
    if (state !== 'pending') await this.#record({ ...tag, digest }, state, signal)
    else if (!isChanged) await this.#record(tag, { kind: 'unknown' }, signal)
  }

  /** Notes the end of tags that no longer exist, of the records with a prefix. */
  async #endGone(prefix: string, signal: AbortSignal): Promise<void> {
    const { store, cache } = this.#services
    for await (const { key, value } of entriesOf(store, { prefix }, signal)) {
      const tag = tagOfKey(key)
      if (tagNamed(cache.tables, tag.repo, tag.name) === undefined && decodeStates(value).at(-1)?.state.kind !== 'gone') await this.#record(tag, gone, signal)
    }
  }

  /** Removes the records of months that are no longer kept. */
  async #expire(month: string, signal: AbortSignal): Promise<void> {
    const { store } = this.#services
    const range = { prefix: countsPrefix, before: monthPrefix(monthBefore(month, keptMonths)), limit: expiredAtOnce }
    for await (const page of pagesOf(store, range, signal))
      await store.transact({ guards: [], writes: page.map(({ key }) => ({ kind: 'delete', key })) }, signal)
  }

  /** Records a state that differs from the last one, with its event. */
  async #record(tag: CountedTag & { readonly digest?: Digest }, state: CountedState, signal: AbortSignal): Promise<void> {
    const { store, clock } = this.#services
    const { month, day } = monthDay(Math.floor(clock.now() / dayMs))
    const key = countsKey(month, tag)
    for (let attempt = 1; attempt <= maxAttempts; attempt++) {
      const entry = await store.get(key, signal)
      if (entry === undefined && state.kind !== 'known' && !(await this.#wasKnown(tag, month, signal))) return
      const states = entry === undefined ? [] : decodeStates(entry.value)
      const next = withState(states, { day, state })
      if (next === states) return
      const before = state.kind === 'known' ? await this.#knownBefore(states, tag, { month, signal }) : undefined
      const event = changedEvent(this.#services, tag, { before, after: state })
      const { committed } = await store.transact(
        {
          guards: [entry === undefined ? { kind: 'absent', key } : { kind: 'unchanged', key, revision: entry.revision }],
          writes: [{ kind: 'put', key, value: encodeStates(next) }, ...event],
        },
        signal,
      )
      if (committed) return
    }
    throw new Error(`the vulnerability counts of ${tag.repo}:${tag.name} changed too often`)
  }

  /** True if the vulnerabilities of a tag were known at the end of the month before. */
  async #wasKnown(tag: CountedTag, month: string, signal: AbortSignal): Promise<boolean> {
    for (const one of monthsBefore(month)) {
      const entry = await this.#services.store.get(countsKey(one, tag), signal)
      if (entry !== undefined) return decodeStates(entry.value).at(-1)?.state.kind === 'known'
    }
    return false
  }

  /** Resolves with the last state of a tag in which its contents were known, or it was gone. A new image is not read at once. */
  async #knownBefore(states: TagStates, tag: CountedTag, { month, signal }: { month: string; signal: AbortSignal }): Promise<CountedState | undefined> {
    const find = (some: TagStates): CountedState | undefined => some.findLast(({ state }) => state.kind !== 'unknown')?.state
    let found = find(states)
    for (const one of found === undefined ? monthsBefore(month) : []) {
      const entry = await this.#services.store.get(countsKey(one, tag), signal)
      found ??= entry && find(decodeStates(entry.value))
    }
    return found
  }
}
