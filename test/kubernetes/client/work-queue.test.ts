import { expect, test } from 'vitest'
import { createWorkQueue, type Work, type WorkQueue, type WorkQueueObserver, type WorkQueueOptions } from '../../../src/kubernetes/runtime/work-queue.ts'
import { KubeError } from '../../../src/kubernetes/kube-api.ts'
import { silentLog } from '../../store/store-harness.ts'
import { FakeTimers, settled } from '../../support/fake-timers.ts'

/** Randomness that gives the longest waits: half of the time plus (almost) the other half. */
const random = { bytes: (count: number) => new Uint8Array(count).fill(255) }

interface Bench {
  readonly queue: WorkQueue
  readonly timers: FakeTimers
  /** The keys in the order of their start. */
  readonly begun: string[]
  /** Ends the work on a key. */
  end(key: string, outcome?: Awaited<ReturnType<Work>> | Error): Promise<void>
  stop(): Promise<void>
}

/** Starts a queue whose work ends when the test says so. */
function bench(options: Partial<WorkQueueOptions> = {}): Bench {
  const timers = new FakeTimers()
  const begun: string[] = []
  const underWork = new Map<string, PromiseWithResolvers<Awaited<ReturnType<Work>>>>()
  const work: Work = (key) => {
    if (underWork.has(key)) throw new Error(`${key} is under work already`)
    begun.push(key)
    const ending = Promise.withResolvers<Awaited<ReturnType<Work>>>()
    underWork.set(key, ending)
    return ending.promise
  }
  const queue = createWorkQueue({ work, workers: 1, log: silentLog, random, timers, ...options })
  const stopping = new AbortController()
  const running = queue.run(stopping.signal)
  return {
    queue,
    timers,
    begun,
    end: async (key, outcome) => {
      const ending = underWork.get(key)
      underWork.delete(key)
      if (outcome instanceof Error) ending?.reject(outcome)
      else ending?.resolve(outcome)
      await settled()
    },
    stop: () => {
      stopping.abort()
      return running
    },
  }
}

const failure = new Error('not now')

test('a key that is added several times while it waits is processed once', async () => {
  const { queue, begun, end } = bench()
  queue.add('busy')
  for (let i = 0; i < 5; i++) queue.add('a')
  expect(queue.depth).toBe(1)
  await settled()
  await end('busy')
  await end('a')
  expect(begun).toEqual(['busy', 'a'])
  expect(queue.idle).toBe(true)
})

test('a key that is added during its work is processed again afterwards, never at the same time', async () => {
  const { queue, begun, end } = bench({ workers: 3 })
  queue.add('a')
  await settled()
  queue.add('a')
  queue.add('a')
  await settled()
  expect(begun).toEqual(['a'])
  await end('a')
  expect(begun).toEqual(['a', 'a'])
  await end('a')
  expect(begun).toEqual(['a', 'a'])
})

test('the queue processes as many keys at once as it has workers', async () => {
  const { queue, begun, end } = bench({ workers: 2 })
  for (const key of ['a', 'b', 'c']) queue.add(key)
  await settled()
  expect(begun).toEqual(['a', 'b'])
  await end('b')
  expect(begun).toEqual(['a', 'b', 'c'])
})

test('a failing key is retried with doubling waits up to 5 minutes, and the wait is reset after a success', async () => {
  const { queue, timers, begun, end } = bench()
  const waits: number[] = []
  queue.add('a')
  await settled()
  for (let i = 0; i < 13; i++) {
    await end('a', failure)
    waits.push(Math.round(timers.nextInMs ?? 0))
    await timers.pass(timers.nextInMs ?? 0)
  }
  expect(waits).toEqual([200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 51_200, 102_400, 204_800, 300_000, 300_000])
  expect(begun).toHaveLength(14)
  await end('a')
  queue.add('a')
  await settled()
  await end('a', failure)
  expect(Math.round(timers.nextInMs ?? 0)).toBe(200)
})

test('retryFailed runs failed keys at once with reset waits; keys that wait for other reasons still wait', async () => {
  const { queue, timers, begun, end } = bench({ workers: 2 })
  queue.add('failed')
  queue.add('asked')
  await settled()
  for (let i = 0; i < 6; i++) {
    await end('failed', failure)
    if (i === 0) await end('asked', { againAfterMs: 60_000 })
    if (i < 5) await timers.pass(timers.nextInMs ?? 0)
  }
  expect(Math.round(timers.nextInMs ?? 0)).toBe(6400)
  begun.length = 0
  queue.retryFailed()
  await settled()
  expect(begun).toEqual(['failed'])
  queue.retryFailed()
  await end('failed', failure)
  expect(Math.round(timers.nextInMs ?? 0)).toBe(200)
})

test('jitter shortens a wait by up to half', async () => {
  const { queue, timers, end } = bench({ random: { bytes: (count) => new Uint8Array(count) } })
  queue.add('a')
  await settled()
  await end('a', failure)
  expect(timers.nextInMs).toBe(100)
})

test('a wait is never shorter than the delay that the API server requests', async () => {
  const { queue, timers, end } = bench()
  queue.add('a')
  await settled()
  await end('a', new KubeError('throttled', 'too many', { retryAfterMs: 7000 }))
  expect(timers.nextInMs).toBe(7000)
})

test('a key that waits for its time is processed at once when added, and not again at that time', async () => {
  const { queue, timers, begun, end } = bench()
  queue.addAfter('a', 1000)
  await timers.pass(999)
  expect(begun).toEqual([])
  queue.add('a')
  await settled()
  expect(begun).toEqual(['a'])
  await end('a')
  await timers.pass(10_000)
  expect(begun).toEqual(['a'])
})

test('the earlier of two times counts', async () => {
  const { queue, timers, begun } = bench({ workers: 2 })
  queue.addAfter('a', 1000)
  queue.addAfter('a', 5000)
  queue.addAfter('b', 5000)
  queue.addAfter('b', 1000)
  await timers.pass(1000)
  expect(begun).toEqual(['a', 'b'])
  expect(timers.nextInMs).toBeUndefined()
})

test('work that asks for a repetition is repeated after its delay, or at once if its key was added in between', async () => {
  const { queue, timers, begun, end } = bench()
  queue.add('a')
  await settled()
  await end('a', { againAfterMs: 5000 })
  await timers.pass(4999)
  expect(begun).toEqual(['a'])
  await timers.pass(1)
  expect(begun).toEqual(['a', 'a'])
  queue.add('a')
  await end('a', { againAfterMs: 5000 })
  expect(begun).toEqual(['a', 'a', 'a'])
  expect(timers.nextInMs).toBeUndefined()
})

test('a delay that ends during the work on its key counts afterwards', async () => {
  const { queue, timers, begun, end } = bench()
  queue.add('a')
  await settled()
  queue.addAfter('a', 100)
  await timers.pass(100)
  expect(begun).toEqual(['a'])
  await end('a')
  expect(begun).toEqual(['a', 'a'])
})

test('a group with 10,000 keys delays no other group', async () => {
  const { queue, begun, end } = bench({ groupOf: (key) => key.split('/')[0] ?? '' })
  for (let i = 0; i < 10_000; i++) queue.add(`many/${i}`)
  for (const group of ['few', 'other']) for (let i = 0; i < 3; i++) queue.add(`${group}/${i}`)
  await settled()
  for (let i = 0; i < 10; i++) await end(begun.at(-1) ?? '')
  expect(begun).toEqual([...['many/0', 'many/1', 'few/0', 'other/0', 'many/2', 'few/1', 'other/1', 'many/3', 'few/2', 'other/2'], ...['many/4']])
})

test('each of 100,000 keys in 1,000 groups is processed once', async () => {
  const seen = new Set<string>()
  let count = 0
  const work: Work = (key) => {
    count++
    seen.add(key)
    return Promise.resolve(undefined)
  }
  const { queue, stop } = bench({ work, workers: 4, groupOf: (key) => key.split('/')[0] ?? '' })
  for (let i = 0; i < 100_000; i++) queue.add(`${i % 1000}/${i}`)
  while (!queue.idle) await settled()
  expect([count, seen.size]).toEqual([100_000, 100_000])
  await stop()
})

test('stopping waits for running work, starts nothing more and drops waiting keys', async () => {
  const { queue, timers, begun, end, stop } = bench()
  queue.add('a')
  queue.add('b')
  queue.addAfter('c', 100)
  await settled()
  let stopped = false
  const stopping = stop().then(() => (stopped = true))
  await settled()
  expect(stopped).toBe(false)
  await end('a', failure)
  await stopping
  await timers.pass(10_000_000)
  expect(begun).toEqual(['a'])
  expect(timers.nextInMs).toBeUndefined()
})

test('keys added before the queue runs are kept', async () => {
  const begun: string[] = []
  const work: Work = (key) => {
    begun.push(key)
    return Promise.resolve(undefined)
  }
  const queue = createWorkQueue({ work, workers: 1, log: silentLog, random, timers: new FakeTimers() })
  queue.add('a')
  await settled()
  expect(begun).toEqual([])
  const stopping = new AbortController()
  const running = queue.run(stopping.signal)
  await settled()
  expect(begun).toEqual(['a'])
  stopping.abort()
  await running
})

test('an observer receives depth, waits, outcomes and retries', async () => {
  const reported: string[] = []
  const observer: WorkQueueObserver = {
    depth: (keys) => reported.push(`depth ${keys}`),
    started: (waitedMs) => reported.push(`started after ${waitedMs}`),
    finished: (outcome, tookMs) => reported.push(`${outcome} in ${tookMs}`),
    retry: (afterMs) => reported.push(`again in ${Math.round(afterMs)}`),
  }
  const { queue, timers, end } = bench({ observer })
  queue.add('a')
  queue.add('b')
  await timers.pass(30)
  await end('a', failure)
  await timers.pass(5)
  await end('b')
  expect(reported).toEqual([
    ...['depth 1', 'depth 0', 'started after 0', 'depth 1'],
    ...['failed in 30', 'again in 200', 'depth 0', 'started after 30', 'done in 5'],
  ])
})
