import { expect, onTestFinished, test } from 'vitest'
import { ImageQueue } from '../../../src/contents/image-queue.ts'
import { manifestPrefix } from '../../../src/registry/records/manifest-keys.ts'
import { createSqliteStore } from '../../../src/store/sqlite/sqlite-store.ts'
import type { Store } from '../../../src/store/store.ts'
import { commit, put, remove, silentLog, soon, text } from '../../store/store-harness.ts'

const minuteMs = 60_000
const prefixes = { waiting: 'x/unscanned/s/', later: 'x/rescan/s/' }
const repo = `${'0'.repeat(40)}/${'1'.repeat(16)}`
const keyOf = (prefix: string, at: number): string => `${prefix}${repo}/sha256:${String(at).padStart(64, '0')}`

/** A queue where images are tried again at these times from now, and the number of its range reads. */
async function startQueue(dues: readonly number[]): Promise<{ queue: ImageQueue; advance: (ms: number) => void; store: Store; reads: () => number }> {
  const store = createSqliteStore({ path: ':memory:', log: silentLog })
  onTestFinished(() => store.close())
  const start = Date.parse('2026-11-28T00:00:00Z')
  let nowMs = start
  for (let at = 0; at < dues.length; at += 100) {
    const writes = dues.slice(at, at + 100).map((afterMs, index) => ({
      kind: 'put' as const,
      key: keyOf(prefixes.later, at + index),
      value: Buffer.from(JSON.stringify({ dueMs: start + afterMs, tries: 1 })),
    }))
    await store.transact({ guards: [], writes }, soon())
  }
  let reads = 0
  const counted = new Proxy(store, {
    get(target, property) {
      const value: unknown = Reflect.get(target, property)
      if (property === 'range') reads += 1
      return typeof value === 'function' ? (value.bind(target) as unknown) : value
    },
  })
  const queue = new ImageQueue({ store: counted, clock: { now: () => nowMs } }, prefixes)
  return { queue, advance: (ms) => void (nowMs += ms), store, reads: () => reads }
}

async function valueOf(store: Store, key: string): Promise<string | undefined> {
  return text((await store.get(key, soon()))?.value)
}

test('what waits keeps its note if it is asked for again', async () => {
  const { queue, store } = await startQueue([])
  const [noted, fresh] = [keyOf(prefixes.waiting, 1), keyOf(prefixes.waiting, 2)]
  const manifests = [1, 2].map((at) => put(keyOf(manifestPrefix, at)))
  const elsewhere = `${manifestPrefix}${'2'.repeat(40)}/${'1'.repeat(16)}/sha256:${'0'.repeat(64)}`
  await commit(store, put(noted, '1 {"stops":1}'), put(elsewhere), ...manifests)
  await queue.askForAll(soon(), { group: repo })
  expect([await valueOf(store, noted), await valueOf(store, fresh)]).toEqual(['1 {"stops":1}', ''])
  expect(await waiting(store)).toBe(2)
  const reading = new ImageQueue({ store, clock: { now: () => 0 } }, { waiting: 'x/unread/', later: 'x/reread/' })
  const read = keyOf('x/unread/', 1)
  await commit(store, put(read), remove(fresh))
  const image = await reading.turns(new Set(), new Set(), soon())()
  if (image === undefined) throw new Error('no image waits')
  await reading.done(image, { retry: 'never', ask: [noted, fresh] }, soon())
  expect([await valueOf(store, noted), await valueOf(store, fresh), await valueOf(store, read)]).toEqual(['1 {"stops":1}', '', undefined])
})

async function waiting(store: Store): Promise<number> {
  return (await store.range({ prefix: prefixes.waiting, limit: 1_000 }, soon())).entries.length
}

test('few images that are tried again later are asked for at their time', async () => {
  const { queue, advance, store } = await startQueue([minuteMs, 2 * minuteMs])
  for (const [expected, stepMs] of [
    [0, minuteMs - 1],
    [0, 1],
    [1, minuteMs],
    [2, 0],
  ] as const) {
    await queue.askForDue(soon())
    expect(await waiting(store)).toBe(expected)
    advance(stepMs)
  }
})

test('many images that are tried again later are read every five minutes only', async () => {
  const count = 1_000
  const { queue, advance, store, reads } = await startQueue(Array.from({ length: count }, (_, at) => ((at + 1) * 60 * minuteMs) / count))
  const seconds = 10 * 60
  for (let second = 0; second < seconds; second++) {
    await queue.askForDue(soon())
    advance(1_000)
  }
  // Two looks at all of them, and the first one.
  expect(reads()).toBeLessThanOrEqual((3 * count) / 100 + 3)
  expect(await waiting(store)).toBeGreaterThan(count / 24)
})

test('an organisation that is busy holds up no other, wherever the turn is', async () => {
  const { queue, store } = await startQueue([])
  const keyIn = (root: string): string => `${prefixes.waiting}${root.repeat(40)}/${'1'.repeat(16)}/sha256:${'0'.repeat(64)}`
  await commit(store, ...['a', 'b', 'c'].map((root) => put(keyIn(root))))
  const seen = new Set([keyIn('c')])
  // The turn is after the last organisation.
  await queue.turns(new Set(['a', 'b'].map((root) => root.repeat(40))), new Set(), soon())()
  const image = await queue.turns(new Set(['a'.repeat(40)]), seen, soon())()
  expect(image?.entry.key).toBe(keyIn('b'))
})
