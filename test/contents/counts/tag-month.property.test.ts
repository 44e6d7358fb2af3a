import { create } from '@bufbuild/protobuf'
import { TimestampSchema } from '@bufbuild/protobuf/wkt'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import {
  countsKey,
  decodeStates,
  encodeStates,
  knownState,
  monthBefore,
  monthDay,
  stateOn,
  tagOfKey,
  withState,
  type CountedState,
  type TagStates,
} from '../../../src/contents/counts/tag-month.ts'
import { digestOf } from '../../../src/base/digest.ts'
import { trustedUid } from '../../../src/base/uid.ts'
import { daysOf } from '../../../src/catalogue/index.ts'
import { ImageRefSchema } from '../../../src/gen/taproot/advisory/v2/advisory_pb.ts'

const digests = ['one', 'other'].map((text) => digestOf(Buffer.from(text)))
const aliases = new Map([['CVE-1', ['GHSA-1', 'OSV-1']]])

const state: fc.Arbitrary<CountedState> = fc.oneof(
  fc.constantFrom<CountedState>({ kind: 'unknown' }, { kind: 'gone' }),
  fc
    .record({
      digest: fc.constantFrom(...digests),
      ids: fc.dictionary(fc.constantFrom('CVE-1', 'CVE-2', 'GHSA-3'), fc.integer({ min: 0, max: 5 })),
      size: fc.constantFrom(0, 7, 2 ** 40),
    })
    .map(({ ids, size, digest }) => knownState(new Map(Object.entries(ids)), size, { digest, aliases: 'CVE-1' in ids ? aliases : new Map() })),
)

/** Returns what a state says. */
const plain = (one: CountedState | undefined): unknown => (one?.kind === 'known' ? { ...one, severities: one.severities, aliases: one.aliases } : one)

test('each day has the last state that was recorded on it or before it', () => {
  fc.assert(
    fc.property(fc.array(fc.record({ later: fc.integer({ min: 0, max: 3 }), state }), { maxLength: 40 }), (steps) => {
      let states: TagStates = []
      const naive = new Map<number, CountedState>()
      let day = 1
      for (const step of steps) {
        day = Math.min(31, day + step.later)
        states = decodeStates(encodeStates(withState(states, { day, state: step.state })))
        naive.set(day, step.state)
      }
      for (let date = 1; date <= 31; date++) {
        const last = [...naive.keys()].filter((one) => one <= date).at(-1)
        expect(plain(stateOn(states, date))).toEqual(last === undefined ? undefined : naive.get(last))
      }
    }),
    { numRuns: 300 },
  )
})

test.each([2n ** 62n, 10n ** 15n, 253_402_300_800n, -62_135_596_801n, -(2n ** 62n)])('days at %i seconds are refused', (seconds) => {
  const time = create(TimestampSchema, { seconds })
  expect(() => daysOf({ imageRefs: [create(ImageRefSchema, { repo: 'app' })], startTime: time, endTime: time })).toThrow(
    'start_time: must be in the years 1 to 9999',
  )
})

test('a state that says the same as the last one changes nothing', () => {
  const one = knownState(new Map([['CVE-1', 4]]), 1)
  const states = withState([], { day: 3, state: one })
  expect(withState(states, { day: 9, state: knownState(new Map([['CVE-1', 4]]), 1) })).toBe(states)
  // A day that ends as it began has no state of its own.
  expect(withState(withState(states, { day: 9, state: { kind: 'unknown' } }), { day: 9, state: one })).toEqual(states)
})

test('another image with the same vulnerabilities is another state, unless one of them is not named', () => {
  const [one, other] = digests.map((digest) => knownState(new Map([['CVE-1', 4]]), 1, { digest, aliases })) as [CountedState, CountedState]
  const unnamed = knownState(new Map([['CVE-1', 4]]), 1)
  const states = withState([], { day: 3, state: one })
  expect(withState(states, { day: 9, state: other })).toEqual([...states, { day: 9, state: other }])
  expect(withState(states, { day: 3, state: other })).toEqual([{ day: 3, state: other }])
  const before = withState([], { day: 3, state: unnamed })
  expect(withState(before, { day: 9, state: other })).toBe(before)
})

test('a record that is too large names no images', () => {
  const ids = Array.from({ length: 10_000 }, (_, at) => `CVE-2026-${at}`)
  const [digest] = digests
  const of = new Map(ids.map((id) => [id, 3]))
  const states = withState([], { day: 1, state: knownState(of, 1, { digest, aliases: new Map(ids.map((id) => [id, [id.padStart(50, 'X')]])) }) })
  expect(decodeStates(encodeStates(states)).map(({ state }) => plain(state))).toEqual([knownState(of, 1)])
})

test('what was known before it was unknown on the same day stays until the next state, so that events tell the difference', () => {
  const [one, other] = [knownState(new Map([['CVE-1', 4]]), 1), knownState(new Map([['CVE-2', 4]]), 1)]
  const unknown: CountedState = { kind: 'unknown' }
  for (const earlier of [[], [{ day: 4, state: unknown }]]) {
    const states = decodeStates(encodeStates(withState(withState(earlier, { day: 5, state: one }), { day: 5, state: unknown })))
    expect(states.map(({ day, state }) => [day, plain(state)])).toEqual(
      [...earlier, { day: 5, state: one }, { day: 5, state: unknown }].map(({ day, state }) => [day, plain(state)]),
    )
    expect(stateOn(states, 5)).toEqual(unknown)
    expect(withState(states, { day: 6, state: unknown })).toBe(states)
    for (const state of [other, { kind: 'gone' } as const]) {
      expect(withState(states, { day: 5, state })).toEqual([...earlier, { day: 5, state }])
      expect(withState(states, { day: 6, state })).toEqual([...earlier, { day: 5, state: unknown }, { day: 6, state }])
    }
  }
})

test('a record stays small, whatever images have: counts without ids remain', () => {
  const many = (day: number): CountedState => {
    const ids = Array.from({ length: 15_000 + day }, (_, at) => `CVE-2026-${String(day * 100_000 + at).padStart(7, '0')}`)
    return knownState(new Map(ids.map((id) => [id, 3])), 1)
  }
  let states: TagStates = []
  for (let day = 1; day <= 31; day++) states = decodeStates(encodeStates(withState(states, { day, state: many(day) })))
  expect(encodeStates(states).length).toBeLessThan(500_000)
  expect(states).toHaveLength(31)
  expect(plain(states[0]?.state)).toEqual(many(1))
  expect(plain(states.at(-1)?.state)).toEqual({ kind: 'known', size: 1, counts: [0, 0, 0, 15_031, 0, 0], severities: undefined, aliases: new Map() })
})

test('months and keys', () => {
  expect(monthDay(Date.UTC(2026, 0, 31) / 86_400_000)).toEqual({ month: '202601', day: 31 })
  expect(['202601', '202612'].map((month) => monthBefore(month))).toEqual(['202512', '202611'])
  expect(monthBefore('202601', 13)).toBe('202412')
  const tag = { repo: trustedUid(`${'a'.repeat(40)}/${'b'.repeat(16)}`), name: '1.2_x-3' }
  expect(tagOfKey(countsKey('202601', tag))).toEqual(tag)
})
