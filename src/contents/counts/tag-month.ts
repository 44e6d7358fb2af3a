import { deflateRawSync, inflateRawSync } from 'node:zlib'
import { create, fromBinary, toBinary } from '@bufbuild/protobuf'
import {
  RecordedVulnerabilitySchema,
  TagMonthSchema,
  TagStateSchema,
  TagState_Kind,
  type RecordedVulnerability,
} from '../../gen/taproot/store/v1/vulnerabilities_pb.ts'
import type { Digest } from '../../base/digest.ts'
import type { Uid } from '../../base/uid.ts'

const dayMs = 24 * 3_600_000
/** The number of severities: those of Vulnerability.SeverityLevel, by their number. */
export const severityCount = 6
/** The most bytes of a record before it is compressed. */
const maxMonthBytes = 500_000
/** Key prefix of all records. */
export const countsPrefix = 'x/vulnerability-counts/'

/** A tag of a repo, by its name. */
export interface CountedTag {
  readonly repo: Uid
  readonly name: string
}

/** What is known of the vulnerabilities of a tag. */
export type CountedState =
  | {
      readonly kind: 'known'
      /** The size of the image in bytes. */
      readonly size: number
      /** The number of vulnerabilities by the number of their severity. */
      readonly counts: readonly number[]
      /** The number of the severity by id. Undefined if there were too many to keep. */
      readonly severities: ReadonlyMap<string, number> | undefined
      /** What the tag pointed to. Undefined if it was not recorded. */
      readonly digest: Digest | undefined
      /** The other names of vulnerabilities that have some, by id. All that were known if `digest` is. */
      readonly aliases: ReadonlyMap<string, readonly string[]>
    }
  /** The contents of the image are not known. */
  | { readonly kind: 'unknown' }
  /** The tag did not exist. */
  | { readonly kind: 'gone' }

/** The state of a tag from a day of a month on. */
export interface DatedState {
  /** From 1 on. */
  readonly day: number
  readonly state: CountedState
}

/** The states of a tag in one month, oldest first, each of another day. The last two may be of one day: known, and then unknown. */
export type TagStates = readonly DatedState[]

/** A day of a month in UTC. */
export interface MonthDay {
  /** For example `202601`. */
  readonly month: string
  /** From 1 on. */
  readonly day: number
}

/** Returns the day, whole days since 1970, as a day of a month. */
export function monthDay(day: number): MonthDay {
  const text = new Date(day * dayMs).toISOString()
  return { month: text.slice(0, 4) + text.slice(5, 7), day: Number(text.slice(8, 10)) }
}

/** Returns the month that is so many months before another one. */
export function monthBefore(month: string, months = 1): string {
  const index = Number(month.slice(0, 4)) * 12 + Number(month.slice(4)) - 1 - months
  return `${String(Math.floor(index / 12)).padStart(4, '0')}${String((index % 12) + 1).padStart(2, '0')}`
}

/** Returns the months in which to look for the state at the start of a month, the newest first. No worker may have run for a whole month. */
export function monthsBefore(month: string): readonly string[] {
  return [monthBefore(month), monthBefore(month, 2)]
}

/** Returns the prefix of the keys of a month. */
export function monthPrefix(month: string): string {
  return `${countsPrefix}${month}/`
}

/** Returns the key of a tag's record of a month. Neither uids nor names of tags contain a colon. */
export function countsKey(month: string, { repo, name }: CountedTag): string {
  return `${monthPrefix(month)}${repo}:${name}`
}

/** Returns the tag of a key. */
export function tagOfKey(key: string): CountedTag {
  const [repo = '', name = ''] = key.slice(monthPrefix('000000').length).split(':')
  return { repo: repo as Uid, name } // of countsKey
}

type KnownState = Extract<CountedState, { kind: 'known' }>

const noImage = { digest: undefined, aliases: new Map<string, readonly string[]>() }

/** Returns the state of vulnerabilities by their severity. */
export function knownState(severities: ReadonlyMap<string, number>, size: number, image: Pick<KnownState, 'digest' | 'aliases'> = noImage): CountedState {
  const counts = Array<number>(severityCount).fill(0)
  for (const severity of severities.values()) counts[severity] = (counts[severity] ?? 0) + 1
  return { kind: 'known', size, counts, severities, ...image }
}

function areEqual(one: CountedState, other: CountedState): boolean {
  if (one.kind !== 'known' || other.kind !== 'known') return one.kind === other.kind
  const [before, after] = [one.severities, other.severities]
  // Records of other versions do not name the image.
  if (one.digest !== undefined && other.digest !== undefined && one.digest !== other.digest) return false
  return (
    one.size === other.size &&
    one.counts.every((count, severity) => count === other.counts[severity]) &&
    (before === undefined || after === undefined || (before.size === after.size && [...before].every(([id, severity]) => after.get(id) === severity)))
  )
}

/** Returns the state that holds on a day of the month; undefined if the month says nothing about it. */
export function stateOn(states: TagStates, day: number): CountedState | undefined {
  return states.findLast((one) => one.day <= day)?.state
}

/**
 * Returns the states with that of a day, which is the last one. Returns `states` itself if nothing changes. If this day's state becomes unknown, what was known
 * before stays in front of it: the next event tells the difference. It goes with the next state.
 */
export function withState(states: TagStates, { day: today, state }: DatedState): TagStates {
  const last = states.at(-1)
  // A clock that goes back does not change what was recorded.
  const day = Math.max(today, last?.day ?? 0)
  if (last !== undefined && areEqual(last.state, state)) return states
  const before = states.filter((one, at) => one.day < day && one.day !== states[at + 1]?.day)
  if (state.kind === 'unknown' && last?.day === day && last.state.kind === 'known') return [...before, last, { day, state }]
  const previous = before.at(-1)
  return previous !== undefined && areEqual(previous.state, state) ? before : [...before, { day, state }]
}

const kinds = { known: TagState_Kind.KNOWN, unknown: TagState_Kind.UNKNOWN, gone: TagState_Kind.GONE } as const satisfies Record<
  CountedState['kind'],
  TagState_Kind
>

/** Returns each vulnerability once for each severity that it had. */
function recordedIn(states: TagStates): RecordedVulnerability[] {
  const found = new Map<string, RecordedVulnerability>()
  for (const [at, { state }] of states.entries()) {
    if (state.kind !== 'known') continue
    const { severities, aliases } = state
    for (const [id, severity] of severities ?? []) {
      const key = `${severity}${id}`
      let one = found.get(key)
      if (one === undefined) found.set(key, (one = create(RecordedVulnerabilitySchema, { id, severity })))
      one.states = (one.states | (1 << at)) >>> 0
      const names = aliases.get(id)
      if (names !== undefined) one.aliases = [...new Set([...one.aliases, ...names])]
    }
  }
  return [...found.values()]
}

function bytesOf(states: TagStates): Uint8Array {
  const month = create(TagMonthSchema, {
    states: states.map(({ day, state }) =>
      state.kind === 'known'
        ? create(TagStateSchema, {
            ...{ day, kind: kinds.known, counts: [...state.counts], size: BigInt(state.size) },
            ...{ withoutIds: state.severities === undefined, digest: state.digest ?? '' },
          })
        : create(TagStateSchema, { day, kind: kinds[state.kind] }),
    ),
    vulnerabilities: recordedIn(states),
  })
  return toBinary(TagMonthSchema, month)
}

function withoutImage({ day, state }: DatedState): DatedState {
  if (state.kind !== 'known') return { day, state }
  const { kind, size, counts, severities } = state
  return { day, state: { kind, size, counts, severities, ...noImage } }
}

/** Returns the bytes to store. If they are too many, images and aliases are left out. If the ids are too many still, those of the last state are left out. */
export function encodeStates(states: TagStates): Uint8Array {
  const bytes = bytesOf(states)
  if (bytes.length <= maxMonthBytes) return deflateRawSync(bytes)
  const hasImage = states.some(({ state }) => state.kind === 'known' && state.digest !== undefined)
  if (hasImage) return encodeStates(states.map(withoutImage))
  const last = states.at(-1)
  if (last?.state.kind !== 'known') return deflateRawSync(bytes)
  const { size, counts } = last.state
  return deflateRawSync(bytesOf([...states.slice(0, -1), { day: last.day, state: { kind: 'known', size, counts, severities: undefined, ...noImage } }]))
}

/** A known state of a record. Its ids are looked up when they are needed: a month may have 31 states of many thousands of ids. */
class RecordedState {
  readonly kind = 'known'
  readonly size: number
  readonly counts: readonly number[]
  readonly digest: Digest | undefined
  readonly #idsOf: () => readonly RecordedVulnerability[] | undefined
  #severities: ReadonlyMap<string, number> | undefined
  #aliases: ReadonlyMap<string, readonly string[]> | undefined

  constructor({
    size,
    counts,
    digest,
    idsOf,
  }: Omit<RecordedState, 'kind' | 'severities' | 'aliases'> & { readonly idsOf: () => readonly RecordedVulnerability[] | undefined }) {
    this.size = size
    this.counts = counts
    this.digest = digest
    this.#idsOf = idsOf
  }

  get severities(): ReadonlyMap<string, number> | undefined {
    const ids = this.#severities === undefined ? this.#idsOf() : undefined
    if (ids !== undefined) this.#severities = new Map(ids.map(({ id, severity }) => [id, severity]))
    return this.#severities
  }

  get aliases(): ReadonlyMap<string, readonly string[]> {
    // Without the image, nothing needs them.
    const ids = this.digest === undefined || this.#aliases !== undefined ? [] : (this.#idsOf() ?? [])
    this.#aliases ??= new Map(ids.filter(({ aliases }) => aliases.length > 0).map(({ id, aliases }) => [id, aliases]))
    return this.#aliases
  }
}

/** Returns the states in stored bytes. Throws an error if another program wrote them. */
export function decodeStates(value: Uint8Array): TagStates {
  const { states, vulnerabilities } = fromBinary(TagMonthSchema, inflateRawSync(value, { maxOutputLength: 2 * maxMonthBytes }))
  return states.map(({ day, kind, counts, size, withoutIds, digest }, at) => {
    if (kind !== TagState_Kind.KNOWN) return { day, state: { kind: kind === TagState_Kind.GONE ? 'gone' : 'unknown' } }
    const known = new RecordedState({
      size: Number(size),
      counts,
      digest: digest === '' ? undefined : (digest as Digest), // checked when the tag was written
      idsOf: () => (withoutIds ? undefined : vulnerabilities.filter((one) => (one.states & (1 << at)) !== 0)),
    })
    return { day, state: known }
  })
}
