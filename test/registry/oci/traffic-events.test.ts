import { describe, expect, test } from 'vitest'
import { digestOf } from '../../../src/base/digest.ts'
import { trustedUid } from '../../../src/base/uid.ts'
import type { Caller } from '../../../src/engine/services.ts'
import { TrafficEvents, type ReportedRequest, type TrafficEventsOptions, type TrafficOutcome } from '../../../src/registry/oci/traffic-events.ts'
import { StoreError } from '../../../src/store/store.ts'
import { silentLog, until } from '../../store/store-harness.ts'

/** A request of a separate organisation for each number, so that no share is used up. */
function request(at: number, more: Partial<ReportedRequest> = {}): ReportedRequest {
  const repo = trustedUid(`${at.toString(16).padStart(40, '0')}/${'b'.repeat(16)}`)
  return { kind: 'pull', repo, repository: 'a/b', digest: digestOf(Buffer.from('x')), type: 'manifest', method: 'GET', caller: undefined, timeMs: at, ...more }
}

const add = (events: TrafficEvents, reported: ReportedRequest): void => events.add(reported, () => reported)

/** Events that are written to a list, and their numbers by outcome. */
function eventsTo(write: (times: number[]) => void, options: Partial<TrafficEventsOptions> = {}) {
  const counts: Record<TrafficOutcome, number> = { written: 0, repeated: 0, lost: 0 }
  const events = new TrafficEvents({
    // Async, so that exceptions become rejections.
    write: async (some) => write(some.map(({ timeMs }) => timeMs)),
    log: silentLog,
    observe: (outcome, count) => void (counts[outcome] += count),
    windowMs: 0,
    intervalMs: 60_000,
    ...options,
  })
  return { events, counts }
}

const range = (length: number, from = 0): number[] => Array.from({ length }, (_, at) => from + at)

test('events that arrive together are written in batches, in order', async () => {
  const batches: number[][] = []
  const { events, counts } = eventsTo((times) => batches.push(times), { intervalMs: 5 })
  for (const at of range(250)) add(events, request(at))
  await until(() => batches.flat().length === 250)
  expect(batches.map((batch) => batch.length)).toEqual([100, 100, 50])
  expect(batches.flat()).toEqual(range(250))
  await until(() => counts.written === 250)
})

test('what can not be written, what is too much and what comes after the end is lost and counted; the next ones are not', async () => {
  let fails = true
  const written: number[] = []
  const write = (times: number[]): void => {
    if (fails) throw new Error('the store is away')
    written.push(...times)
  }
  const { events, counts } = eventsTo(write, { capacity: 150 })
  for (const at of range(160)) add(events, request(at))
  expect(counts.lost).toBe(10)
  await events.flush()
  expect(counts.lost).toBe(160)
  fails = false
  add(events, request(1000))
  await events.close()
  expect(written).toEqual([1000])
  add(events, request(2000))
  expect(counts).toEqual({ written: 1, repeated: 0, lost: 161 })
})

test('a batch that is too large is written by halves: only an event that is too large by itself is lost', async () => {
  const written: number[] = []
  const { events, counts } = eventsTo((times) => {
    if (times.includes(42) || times.length > 60) throw new StoreError('too_large', 'too many bytes')
    written.push(...times)
  })
  for (const at of range(250)) add(events, request(at))
  await events.close()
  expect(counts.lost).toBe(1)
  expect(written).toEqual(range(250).filter((at) => at !== 42))
})

test('where one batch fails the next one goes on', async () => {
  const written: number[] = []
  const { events, counts } = eventsTo((times) => {
    if (times[0] === 0) throw new StoreError('unavailable', 'away for a moment')
    written.push(...times)
  })
  for (const at of range(250)) add(events, request(at))
  await events.close()
  expect(counts.lost).toBe(100)
  expect(written).toEqual(range(150, 100))
})

// docs/spec/events.md#registry-traffic
describe('in a window', () => {
  const [one, other] = ['1', '2'].map((digit) => trustedUid(`${'a'.repeat(40)}/${digit.repeat(16)}`))
  const callerOf = (identity: string | undefined) => ({ identity }) as Caller // a cast: only the uid is looked at
  const same = request(1, { caller: callerOf(one), tag: 'v1', remoteAddress: '192.0.2.1', userAgent: 'a/1' })

  test('equal requests have one event, the next window another', async () => {
    const written: number[] = []
    const { events, counts } = eventsTo((times) => written.push(...times), { windowMs: 1_000 })
    for (const timeMs of [1, 2, 999, 1_000, 1_500, 2_000]) add(events, { ...same, timeMs, remoteAddress: `192.0.2.${timeMs % 200}` })
    await events.close()
    expect(written).toEqual([1, 1_000, 2_000])
    expect(counts).toEqual({ written: 3, repeated: 3, lost: 0 })
  })

  test.each<[string, Partial<ReportedRequest>]>([
    ['caller', { caller: callerOf(other) }],
    ['repo', { repo: trustedUid(`${'0'.repeat(39)}1/${'c'.repeat(16)}`) }],
    ['digest', { digest: digestOf(Buffer.from('y')) }],
    ['tag', { tag: 'v2' }],
    ['method', { method: 'HEAD' }],
    ['error', { error: { status: 404, code: 'MANIFEST_UNKNOWN', message: '' } }],
    ['kind', { kind: 'push' }],
    ['address of an anonymous caller', { caller: undefined, remoteAddress: '192.0.2.2' }],
  ])('another %s is another request', async (_, change) => {
    const { events, counts } = eventsTo(() => undefined, { windowMs: 1_000 })
    const before = 'caller' in change && change.caller === undefined ? { ...same, caller: undefined } : same
    for (const each of [before, { ...before, ...change }, before]) add(events, each)
    await events.close()
    expect(counts).toEqual({ written: 2, repeated: 1, lost: 0 })
  })

  test('a request whose event was lost is not remembered', async () => {
    const written: number[] = []
    const { events, counts } = eventsTo((times) => written.push(...times), { windowMs: 60_000, capacity: 1 })
    add(events, request(1))
    add(events, request(2))
    await events.flush()
    add(events, request(2))
    await events.close()
    expect(written).toEqual([1, 2])
    expect(counts).toEqual({ written: 2, repeated: 0, lost: 1 })
  })
})

// docs/spec/events.md#registry-traffic
test('one organisation takes a quarter of the room at most', async () => {
  const { events, counts } = eventsTo(() => undefined, { capacity: 40 })
  for (const at of range(100)) add(events, { ...request(7), digest: digestOf(Buffer.from(String(at))) })
  for (const at of range(30, 100)) add(events, request(at))
  await events.flush()
  expect(counts).toEqual({ written: 40, repeated: 0, lost: 90 })
})
