/**
 * Measures the memory of the record cache, its start, and the cost of reads and changes by size: `node --expose-gc bench/memory.ts
 * [records] [etcd]`. Without `etcd`, the records come from this process.
 */
import { setImmediate as turn } from 'node:timers/promises'
import { builtInRoleRecords } from '../src/iam/records/roles.ts'
import { kinds } from '../src/domains/kinds.ts'
import { trustedUid, type Uid } from '../src/base/uid.ts'
import type { Log } from '../src/base/log.ts'
import { listRecords, type ListQuery } from '../src/cache/lists/list.ts'
import { orderOf } from '../src/cache/lists/order.ts'
import { RecordCache } from '../src/cache/record-cache.ts'
import type { RecordTables } from '../src/cache/record-tables.ts'
import { createEtcdStore } from '../src/store/etcd/etcd-store.ts'
import { storeRevision, type Store, type Write } from '../src/store/store.ts'
import { startEtcd } from '../test/support/parts/etcd.ts'
import { createNumbers, generateRecords } from './memory-records.ts'

const mebibyte = 2 ** 20
const numbers = createNumbers(11)

const log: Log = {
  debug() {},
  info: (message, fields) => print(`  ${message} ${JSON.stringify(fields ?? {})}`),
  warn: (message, fields) => print(`  ${message} ${JSON.stringify(fields ?? {})}`),
  error: (message, fields) => print(`  ${message} ${JSON.stringify(fields ?? {})}`),
}

function print(text: string): void {
  process.stdout.write(`${text}\n`)
}

function collectGarbage(): void {
  if (globalThis.gc === undefined) throw new Error('run with --expose-gc')
  for (let round = 0; round < 4; round++) globalThis.gc()
}

interface Memory {
  readonly used: number
  readonly heap: number
  readonly rss: number
}

async function memory(): Promise<Memory> {
  collectGarbage()
  // Buffers are freed one turn of the event loop later.
  await new Promise((resolve) => setTimeout(resolve, 200))
  collectGarbage()
  const { heapUsed, external, rss } = process.memoryUsage()
  // `external` includes array buffers.
  return { used: heapUsed + external, heap: heapUsed, rss }
}

/** The stored bytes of all records. */
interface Source {
  readonly store: Store
  readonly records: number
  readonly valueBytes: number
  stop(): Promise<void>
}

/** Returns a store that holds all records in this process, in few objects. */
export function inProcess(count: number): Source {
  const keys: string[] = []
  const values = new Map<string, readonly [from: number, to: number]>()
  let bytes = Buffer.alloc(count * 300)
  let end = 0
  for (const { key, value } of generateRecords(count)) {
    if (end + value.length > bytes.length) bytes = Buffer.concat([bytes], bytes.length * 2)
    bytes.set(value, end)
    values.set(key, [end, end + value.length])
    end += value.length
    keys.push(Buffer.from(key).toString('latin1'))
  }
  keys.sort()
  const firstAfter = (text: string): number => {
    let low = 0
    let high = keys.length
    while (low < high) {
      const middle = (low + high) >>> 1
      if ((keys[middle] ?? '') > text) high = middle
      else low = middle + 1
    }
    return low
  }
  const revision = storeRevision(1)
  const unsupported = (): never => {
    throw new TypeError('not measured')
  }
  const store: Store = {
    get: () => Promise.resolve(undefined),
    async range({ prefix, after, before, limit }) {
      await turn()
      const within = (key: string | undefined): boolean => key?.startsWith(prefix) === true && (before === undefined || key < before)
      const from = firstAfter(after ?? prefix)
      const page = keys.slice(from, from + limit).filter(within)
      const entries = page.map((key) => {
        const [start, stop] = values.get(key) ?? [0, 0]
        // Creates new objects for keys and values, as when they are read from a socket.
        return { key: Buffer.from(key).toString('latin1'), value: Buffer.from(bytes.subarray(start, stop)), revision }
      })
      return { entries, more: within(keys[from + page.length]), revision }
    },
    transact: unsupported,
    fence: unsupported,
    watch: async function* (_prefixes, _after, signal) {
      await new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason)))
      yield unsupported()
    },
    revision: () => Promise.resolve(revision),
    elect: unsupported,
    close: () => Promise.resolve(),
  }
  return { store, records: keys.length, valueBytes: end, stop: () => Promise.resolve() }
}

/** Starts a real etcd with all records and the further keys. */
async function inEtcd(count: number): Promise<Source> {
  const cluster = await startEtcd({ flags: ['--quota-backend-bytes=8589934592', '--snapshot-count=10000'] })
  const store = createEtcdStore({ endpoints: cluster.endpoints, log, requestTimeoutMs: 60_000 })
  const { signal } = new AbortController()
  let [records, keys, valueBytes] = [0, 0, 0]
  let writes: Write[] = []
  const running = new Set<Promise<unknown>>()
  const flush = async (): Promise<void> => {
    const sent: Promise<unknown> = store.transact({ guards: [], writes }, signal).then(() => running.delete(sent))
    running.add(sent)
    keys += writes.length
    writes = []
    if (running.size >= 16) await Promise.race(running)
  }
  for (const { key, value, uid, indexKeys } of generateRecords(count)) {
    writes.push({ kind: 'put', key, value })
    for (const held of indexKeys) writes.push({ kind: 'put', key: held, value: held.startsWith('i/name') ? Buffer.from(uid) : new Uint8Array() })
    records += 1
    valueBytes += value.length
    if (writes.length >= 100) await flush()
  }
  await flush()
  await Promise.all(running)
  print(`etcd holds ${records} records, ${keys} keys`)
  const stop = async (): Promise<void> => {
    await store.close()
    await cluster.stop()
  }
  return { store, records, valueBytes, stop }
}

/** Returns the microseconds per call: the median of batches. */
async function microseconds(batch: number, call: () => unknown): Promise<number> {
  const figures: number[] = []
  for (let round = 0; round < 21; round++) {
    const start = performance.now()
    for (let at = 0; at < batch; at++) await call()
    figures.push(((performance.now() - start) * 1000) / batch)
  }
  return figures.sort((a, b) => a - b)[10] ?? NaN
}

/** Returns the processor time of this thread so far, in milliseconds. Other work on the machine affects it less than elapsed time. */
function threadMs(): number {
  const { user, system } = process.threadCpuUsage()
  return (user + system) / 1000
}

/**
 * Runs `work`. Measures its duration, the processor time of all threads, and the longest turn of the event loop (processor time), in
 * milliseconds.
 */
async function timed<T>(work: () => Promise<T>): Promise<{ result: T; ms: number; cpuMs: number; longestMs: number }> {
  let longestMs = 0
  let last = threadMs()
  const timer = setInterval(() => {
    const now = threadMs()
    longestMs = Math.max(longestMs, now - last)
    last = now
  }, 1)
  const cpu = process.cpuUsage()
  const start = performance.now()
  const result = await work()
  const ms = performance.now() - start
  const { user, system } = process.cpuUsage(cpu)
  await new Promise((resolve) => setTimeout(resolve, 5))
  clearInterval(timer)
  return { result, ms, cpuMs: (user + system) / 1000, longestMs }
}

function someUids(tables: RecordTables, kind: string, count: number): Uid[] {
  const { byUid } = tables.table(kind)
  return Array.from({ length: count }, () => byUid.at(numbers(byUid.size))?.uid ?? trustedUid(''))
}

const byName = orderOf([{ field: 'name', descending: false }])
const newestFirst = orderOf([{ field: 'createMs', descending: true }])

/** Returns the list queries to measure. */
function queries(tables: RecordTables): Record<string, () => ListQuery> {
  const everywhere = { everywhere: true, groups: [], roots: true }
  const uidp = { descendantsOf: '', childrenOf: '', ancestorsOf: '', inRoot: false, ids: [] }
  const base = { uidp, filters: [], visibility: everywhere, skip: 0, limit: 51 }
  const groups = someUids(tables, 'Group', 400)
  const some = (): Uid => groups[numbers(groups.length)] ?? trustedUid('')
  const total = tables.table('Identity').size
  const bindings = tables.table('RoleBinding').size
  const roots = [...tables.table('Group').matching('parent', '/')].map((record) => record.uid)
  const smallGroups = someUids(tables, 'Group', 2_000).filter((uid) => {
    const { from, to } = tables.table('Identity').rangeWithin(uid, false)
    return to > from && to - from < 15
  })
  const few = smallGroups.sort().filter((uid, at, all) => !uid.startsWith(`${all[at - 1] ?? 'none'}`))
  const seen = roots.filter((_, at) => at % Math.ceil(roots.length / 10) === 0).sort()
  return {
    'identities by name, first page': () => ({ ...base, kind: 'Identity', order: byName }),
    'identities by name, any skip': () => ({ ...base, kind: 'Identity', order: byName, skip: numbers(total - 51) }),
    'bindings newest first, last page': () => ({ ...base, kind: 'RoleBinding', order: newestFirst, skip: bindings - 50 }),
    'bindings below a group': () => ({ ...base, kind: 'RoleBinding', order: newestFirst, uidp: { ...uidp, descendantsOf: some() } }),
    'identities of 10 groups, any skip': () => ({
      ...base,
      kind: 'Identity',
      order: byName,
      visibility: { everywhere: false, groups: seen, roots: false },
      skip: numbers(Math.max(1, total / 50)),
    }),
    'identities of 20 small groups, by name': () => ({
      ...base,
      kind: 'Identity',
      order: byName,
      visibility: { everywhere: false, groups: few.slice(0, 20), roots: false },
    }),
    'bindings of one role by time': () => ({
      ...base,
      kind: 'RoleBinding',
      order: newestFirst,
      filters: [['role', builtInRoleRecords[numbers(builtInRoleRecords.length)]?.uid ?? '']],
    }),
  }
}

async function costs(cache: RecordCache): Promise<Record<string, number>> {
  const { tables } = cache
  const figures: Record<string, number> = {}
  const uids = someUids(tables, 'Identity', 20_000)
  figures['get by uid'] = await microseconds(2_000, () => tables.get('Identity', uids[numbers(uids.length)] ?? ''))
  figures['get and its message'] = await microseconds(2_000, () => tables.get('Identity', uids[numbers(uids.length)] ?? '')?.message)
  figures['bindings of an identity'] = await microseconds(2_000, () => [...tables.table('RoleBinding').matching('identity', uids[numbers(uids.length)] ?? '')])
  for (const [name, query] of Object.entries(queries(tables))) {
    const list = (): Promise<number> =>
      listRecords(
        () => ({ tables, query: query() }),
        ({ records, total }) => records.length + total,
      )
    const asked = await timed(list)
    print(`  first list of ${name}: ${asked.ms.toFixed(0)} ms, longest turn ${asked.longestMs.toFixed(0)} ms`)
    figures[name] = await microseconds(20, list)
  }
  return figures
}

/**
 * Measures one change reported by the watch, including the views of the lists above. Replaces records by themselves, and adds and removes
 * a new record.
 */
async function changes(cache: RecordCache): Promise<number> {
  const { tables } = cache
  const sample = [...generateRecords(400)].filter(({ kind }) => kind !== 'Group')
  const batch = sample.map(({ key, value }) => ({ key, value, revision: storeRevision(2) }))
  const removals = batch.map((change) => ({ ...change, value: undefined }))
  return (
    (await microseconds(1, () => {
      for (const change of [...batch, ...removals]) tables.apply([change])
    })) /
    (2 * batch.length)
  )
}

async function measure(source: Source): Promise<Record<string, number>> {
  const before = await memory()
  const cache = new RecordCache({ store: source.store, kinds: [...kinds.values()].map((kind) => kind.index), builtIns: builtInRoleRecords, log })
  const start = await timed(() => cache.start(AbortSignal.timeout(600_000)))
  const after = await memory()
  const perRecord = (bytes: number): number => bytes / source.records
  print(`start ${(start.ms / 1000).toFixed(2)} s, CPU ${(start.cpuMs / 1000).toFixed(2)} s, longest turn ${start.longestMs.toFixed(0)} ms`)
  print(
    `memory ${((after.used - before.used) / mebibyte).toFixed(0)} MiB (RSS ${((after.rss - before.rss) / mebibyte).toFixed(0)}) for ${source.records} records`,
  )
  const value = perRecord(source.valueBytes)
  const held = perRecord(after.used - before.used)
  print(
    `per record: ${value.toFixed(0)} bytes encoded; ${held.toFixed(0)} held (JS heap ${perRecord(after.heap - before.heap).toFixed(0)}); beyond encoded ${(held - value).toFixed(0)}`,
  )
  const figures = await costs(cache)
  figures['one change'] = await changes(cache)
  const views = await memory()
  print(`the views of these lists: ${perRecord(views.used - after.used).toFixed(0)} bytes per record`)
  await cache.close()
  return { ...figures, 'beyond encoded, bytes': held - value, 'start, ms': start.ms }
}

if (import.meta.main) await main()
async function main(): Promise<void> {
  const count = Number(process.argv[2] ?? 1_000_000)
  const source = process.argv[3] === 'etcd' ? await inEtcd(count) : inProcess(count)
  try {
    const small = inProcess(1_000)
    const few = await measure(small)
    const many = await measure(source)
    print(`\n${'microseconds'.padEnd(40)}${'1000'.padStart(10)}${String(count).padStart(10)}${'growth'.padStart(10)}`)
    for (const [name, figure] of Object.entries(many)) {
      const base = few[name] ?? NaN
      print(`${name.padEnd(40)}${base.toFixed(2).padStart(10)}${figure.toFixed(2).padStart(10)}${`${(figure / base).toFixed(1)}x`.padStart(10)}`)
    }
  } finally {
    await source.stop()
  }
}
