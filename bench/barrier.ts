/**
 * Compares two ways by which a reader can know that its watch is up to date. Either every transaction also writes one more key, the head key, or the
 * reader sends watch progress requests. Measures both against one real etcd, in alternating rounds, so that their ratios are comparable.
 * `node bench/barrier.ts` (docs/adr/0001-watch-barrier.md).
 */
import { setTimeout as delay } from 'node:timers/promises'
import { Etcd3 } from 'etcd3'
import type { Log } from '../src/base/log.ts'
import { EtcdConnection } from '../src/store/etcd/etcd-connection.ts'
import { EtcdEncoding } from '../src/store/etcd/etcd-encoding.ts'
import type { Transaction } from '../src/store/store.ts'
import { startEtcd } from '../test/support/parts/etcd.ts'

const rounds = 4
const roundMs = 1500
const writers = 16
const log: Log = { debug() {}, info() {}, warn: console.warn, error: console.error }
const etcd = await startEtcd()
const signal = new AbortController().signal
const encoding = new EtcdEncoding('/bench/')
const watcher = new Etcd3({ hosts: [...etcd.endpoints] })
const connections = { writes: connect(), reads: connect() }

function connect(): EtcdConnection {
  return new EtcdConnection({ endpoints: etcd.endpoints, log })
}

/** Starts a watch and tracks the revision that it has reached. `ask` sends a progress request. */
async function follow(): Promise<{ reached: (revision: number, ask: boolean) => Promise<void>; asked: () => number; stop: () => void }> {
  const stream = await watcher.watchClient.watch()
  let at = 0
  let asked = 0
  let arrival = Promise.withResolvers<void>()
  stream.on('data', ({ header, events, created }) => {
    if (events.length > 0) at = Math.max(at, Number(events.at(-1)?.kv.mod_revision))
    else if (!created) at = Math.max(at, Number(header.revision))
    arrival.resolve()
    arrival = Promise.withResolvers()
  })
  const { key, rangeEnd } = encoding.watchRange(['i/', 'meta/', 'r/'])
  const { header } = await connections.reads.call('range', { key }, { signal, repeatable: true })
  stream.write({ create_request: { key, range_end: rangeEnd, start_revision: Number(header.revision) } })
  await arrival.promise
  return {
    reached: async (revision, ask) => {
      while (at < revision) {
        if (ask) {
          asked++
          stream.write({ progress_request: {} })
        }
        await Promise.race([arrival.promise, delay(50)])
      }
    },
    asked: () => asked,
    stop: () => stream.cancel(),
  }
}

let written = 0

/**
 * Writes one small transaction like the platform does: a record, a name, and an event that is not watched. `withHead` also writes the
 * common key.
 */
async function write(withHead: boolean): Promise<void> {
  const name = String(written++ % 5000).padStart(6, '0')
  const value = new Uint8Array(300)
  const transaction: Transaction = {
    guards: [{ kind: 'absent', key: `r/none/${name}` }],
    writes: [`r/group/${name}`, `i/name/${name}`, `x/outbox/${name}`].map((key) => ({ kind: 'put', key, value })),
  }
  const request = encoding.transaction(transaction)
  const success = withHead ? request.success : request.success?.slice(0, -1)
  await connections.writes.call('txn', { ...request, ...(success === undefined ? {} : { success }) }, { signal, repeatable: false })
}

/** Runs `work` repeatedly in `lanes` parallel loops for `milliseconds`. Returns the duration of each run in milliseconds. */
async function repeat(lanes: number, milliseconds: number, work: () => Promise<void>): Promise<number[]> {
  const times: number[] = []
  const end = performance.now() + milliseconds
  await Promise.all(
    Array.from({ length: lanes }, async () => {
      for (let start = performance.now(); start < end;) {
        await work()
        const now = performance.now()
        times.push(now - start)
        start = now
      }
    }),
  )
  return times
}

/** Returns the quantile of the times: the share `quantile` of them is at most this high. */
function at(times: readonly number[], quantile: number): number {
  return times.toSorted((a, b) => a - b)[Math.floor((times.length - 1) * quantile)] ?? NaN
}

type Kind = 'head' | 'progress'

/** Measures barriers one after the other. Runs `before` each time, which is not counted. */
async function barriers(kind: Kind, before: () => Promise<unknown>): Promise<{ times: number[]; asked: number }> {
  const watch = await follow()
  await delay(300)
  const times: number[] = []
  for (const end = performance.now() + roundMs; performance.now() < end;) {
    await before()
    const start = performance.now()
    const { header, kvs } = await connections.reads.call('range', { key: encoding.head, keys_only: true }, { signal, repeatable: true })
    await watch.reached(Number(kind === 'head' ? (kvs[0]?.mod_revision ?? 0) : header.revision), kind === 'progress')
    times.push(performance.now() - start)
  }
  const asked = watch.asked()
  watch.stop()
  return { times, asked }
}

/** Commits a change of unwatched keys only, which the watch does not report. */
async function writeUnwatched(): Promise<void> {
  const key = encoding.key('x/outbox/one')
  await connections.writes.call('txn', { success: [{ request_put: { key, value: Buffer.alloc(300) } }] }, { signal, repeatable: false })
}

async function underLoad<T>(withHead: boolean, work: () => Promise<T>): Promise<T> {
  let stopped = false
  const load = Array.from({ length: writers }, async () => {
    while (!stopped) {
      await write(withHead)
      await delay(2)
    }
  })
  const result = await work()
  stopped = true
  await Promise.all(load)
  return result
}

const measured = ['quiet store', 'after an unwatched commit', `under ${writers} writers`, 'write, 64 at once'] as const
const results = Object.fromEntries(measured.map((name) => [name, { head: [] as number[], progress: [] as number[] }]))
let asked = 0
for (let round = 0; round < rounds; round++) {
  const kinds: readonly Kind[] = round % 2 === 0 ? ['head', 'progress'] : ['progress', 'head']
  for (const kind of kinds) {
    const withHead = kind === 'head'
    await write(withHead)
    const loaded = await underLoad(withHead, () => barriers(kind, () => delay(1)))
    asked += kind === 'progress' ? loaded.asked / loaded.times.length / rounds : 0
    const runs = [(await barriers(kind, () => delay(1))).times, (await barriers(kind, writeUnwatched)).times, loaded.times]
    for (const [index, name] of measured.entries()) results[name]?.[kind].push(...(runs[index] ?? []))
  }
}
// The duration of disk flushes varies more than the measured difference. So there are many short rounds.
for (let turn = 0; turn < 80; turn++) {
  const kind = turn % 4 === 0 || turn % 4 === 3 ? 'head' : 'progress'
  results['write, 64 at once']?.[kind].push(...(await repeat(64, 250, () => write(kind === 'head'))))
}

for (const [name, { head, progress }] of Object.entries(results)) {
  const cells = [0.5, 0.9, 0.99].map((quantile) => `p${quantile * 100} ${at(head, quantile).toFixed(2)} / ${at(progress, quantile).toFixed(2)} ms`)
  const ratio = (at(head, 0.5) / at(progress, 0.5)).toFixed(2)
  console.log(`${name}: head key / progress request: ${cells.join(', ')}; ratio of p50 ${ratio}; done ${(head.length / progress.length).toFixed(2)}`)
}
console.log(`progress requests per barrier under load: ${asked.toFixed(2)}`)
for (const connection of [...Object.values(connections), watcher]) connection.close()
await etcd.stop()
