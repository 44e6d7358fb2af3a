import { setImmediate } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { Alarm, backoffMs, pause, retry } from '../../src/base/timing.ts'
import { FakeTimers } from '../support/fake-timers.ts'

const never = new AbortController().signal
const random = (byte: number): { bytes: (count: number) => Uint8Array } => ({ bytes: (count) => new Uint8Array(count).fill(byte) })

test('a backoff doubles up to its maximum, and jitter subtracts a share of it', () => {
  const backoff = { firstMs: 100, maxMs: 1_000 }
  expect([1, 2, 3, 4, 5, 500].map((failures) => backoffMs(backoff, failures))).toEqual([100, 200, 400, 800, 1_000, 1_000])
  expect(backoffMs(backoff, 2, random(0))).toBe(100)
  expect(backoffMs(backoff, 2, random(255))).toBeCloseTo(200)
  expect(backoffMs({ ...backoff, jitter: 1 }, 2, random(0))).toBe(0)
})

test('a pause ends after its time, when its signal aborts, or at once if that has already aborted', async () => {
  const timers = new FakeTimers()
  await pause(1_000, AbortSignal.abort(), timers)
  const stop = new AbortController()
  const stopped = pause(1_000, stop.signal, timers)
  expect(timers.nextInMs).toBe(1_000)
  stop.abort()
  await stopped
  expect(timers.nextInMs).toBeUndefined()
  await pause(0, never)
})

test('retry repeats work until it succeeds, and stops at a final error', async () => {
  const seen: number[] = []
  const waitMs = (error: unknown, failures: number): number | undefined => (seen.push(failures), String(error) === 'Error: final' ? undefined : 0)
  let left = 2
  const work = (): string => {
    if (left-- > 0) throw new Error('passing')
    return 'done'
  }
  await expect(retry(work, { waitMs, signal: never })).resolves.toBe('done')
  expect(seen).toEqual([1, 2])
  await expect(retry(() => Promise.reject(new Error('final')), { waitMs, signal: never })).rejects.toThrow('final')
})

test('retry ends with the abort reason if aborted during a wait, and with the error of the work if aborted during work', async () => {
  const stop = new AbortController()
  const waiting = retry(() => Promise.reject(new Error('passing')), { waitMs: () => 1e9, signal: stop.signal })
  const failing = retry(() => new Promise((_resolve, reject) => stop.signal.addEventListener('abort', () => reject(new Error('aborted work')))), {
    waitMs: () => 0,
    signal: stop.signal,
  })
  await setImmediate()
  stop.abort(new Error('stopped'))
  await expect(waiting).rejects.toThrow('stopped')
  await expect(failing).rejects.toThrow('aborted work')
})

test('an alarm ends a wait when it rings, even before the wait, when it is due, and when its signal aborts', async () => {
  const clock = { now: () => 1_000 }
  const alarm = new Alarm()
  alarm.ring()
  await alarm.until(Infinity, { clock, signal: never })
  await alarm.within(1e9, never)
  alarm.arm()
  await alarm.until(1_000, { clock, signal: never })
  const [waits, stop] = [alarm.until(2_000, { clock, signal: never }), new AbortController()]
  const stopped = alarm.within(1e9, stop.signal)
  stop.abort()
  await stopped
  alarm.ring()
  await waits
})

test('a wait ends if the clock is set back by its whole length, but not if by a little', async () => {
  let nowMs = 1_000_000
  let looks = 0
  const clock = { now: () => (looks++, nowMs) }
  const alarm = new Alarm()
  const waits = alarm.until(nowMs + 500, { clock, signal: never })
  nowMs -= 499
  while (looks < 2) await setImmediate()
  nowMs -= 1
  await waits
  expect(nowMs).toBe(999_500)
})
