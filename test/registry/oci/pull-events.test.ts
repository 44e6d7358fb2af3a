import { expect, test } from 'vitest'
import { digestOf } from '../../../src/base/digest.ts'
import { trustedUid } from '../../../src/base/uid.ts'
import { PullEvents, type Pull } from '../../../src/registry/oci/pull-events.ts'
import { StoreError } from '../../../src/store/store.ts'
import { silentLog, until } from '../../store/store-harness.ts'

function pull(at: number): Pull {
  const repo = trustedUid(`${'a'.repeat(40)}/${'b'.repeat(16)}`)
  const digest = digestOf(Buffer.from('x'))
  return { repo, repository: 'a/b', digest, tag: undefined, type: 'manifest', method: 'GET', caller: undefined, timeMs: at, remoteAddress: '', userAgent: '' }
}

test('events that arrive together are written in batches, in order', async () => {
  const batches: number[][] = []
  const pulls = new PullEvents({
    write: (some) => Promise.resolve(void batches.push(some.map(({ timeMs }) => timeMs))),
    log: silentLog,
    dropped: () => undefined,
    intervalMs: 5,
  })
  for (let at = 0; at < 250; at++) pulls.add(pull(at))
  await until(() => batches.flat().length === 250)
  expect(batches.map((batch) => batch.length)).toEqual([100, 100, 50])
  expect(batches.flat()).toEqual(Array.from({ length: 250 }, (_, at) => at))
})

test('what can not be written, what is too much and what comes after the end is lost and counted; the next ones are not', async () => {
  let lost = 0
  let fails = true
  const written: number[] = []
  const pulls = new PullEvents({
    write: async (some) => {
      if (fails) throw new Error('the store is away')
      written.push(...some.map(({ timeMs }) => timeMs))
    },
    log: silentLog,
    dropped: (count) => (lost += count),
    capacity: 150,
    intervalMs: 60_000,
  })
  for (let at = 0; at < 160; at++) pulls.add(pull(at))
  expect(lost).toBe(10)
  await pulls.flush()
  expect(lost).toBe(160)
  fails = false
  pulls.add(pull(1000))
  await pulls.close()
  expect(written).toEqual([1000])
  pulls.add(pull(2000))
  expect(lost).toBe(161)
})

test('a batch that is too large is written by halves: only an event that is too large by itself is lost', async () => {
  let lost = 0
  const written: number[] = []
  const pulls = new PullEvents({
    write: async (some) => {
      if (some.some(({ timeMs }) => timeMs === 42) || some.length > 60) throw new StoreError('too_large', 'too many bytes')
      written.push(...some.map(({ timeMs }) => timeMs))
    },
    log: silentLog,
    dropped: (count) => (lost += count),
    intervalMs: 60_000,
  })
  for (let at = 0; at < 250; at++) pulls.add(pull(at))
  await pulls.close()
  expect(lost).toBe(1)
  expect(written).toEqual(Array.from({ length: 250 }, (_, at) => at).filter((at) => at !== 42))
})

test('where one batch fails the next one goes on', async () => {
  let lost = 0
  const written: number[] = []
  const pulls = new PullEvents({
    write: async (some) => {
      if (some[0]?.timeMs === 0) throw new StoreError('unavailable', 'away for a moment')
      written.push(...some.map(({ timeMs }) => timeMs))
    },
    log: silentLog,
    dropped: (count) => (lost += count),
    intervalMs: 60_000,
  })
  for (let at = 0; at < 250; at++) pulls.add(pull(at))
  await pulls.close()
  expect(lost).toBe(100)
  expect(written).toEqual(Array.from({ length: 150 }, (_, at) => at + 100))
})
