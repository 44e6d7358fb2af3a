import { Etcd3 } from 'etcd3'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { createServer } from 'node:net'
import { readFile } from 'node:fs/promises'
import { afterAll, afterEach, beforeAll, beforeEach, expect, onTestFinished, test, vi } from 'vitest'
import { createEtcdStore, type EtcdStoreOptions } from '../../src/store/etcd/etcd-store.ts'
import { storeRevision, type Store } from '../../src/store/store.ts'
import { startEtcd, type EtcdCluster } from '../support/parts/etcd.ts'
import { freePorts } from '../support/parts/free-port.ts'
import { describeWithPart } from '../support/parts/require-part.ts'
import { startTcpProxy, type TcpProxy } from '../support/parts/tcp-proxy.ts'
import { commit, failureOf, put, record, remove, silentLog, soon, text, until } from './store-harness.ts'

/** Maximum time until a fault is noticed: the watch's limit of 7 s, and some for a busy machine. */
const noticedMs = 12_000

function open(endpoints: readonly string[], options: Partial<EtcdStoreOptions> = {}): Store {
  const store = createEtcdStore({ endpoints, prefix: `/test-${randomBytes(8).toString('hex')}/`, log: silentLog, requestTimeoutMs: 2000, ...options })
  onTestFinished(() => store.close())
  return store
}

async function within<T>(milliseconds: number, work: Promise<T>): Promise<T> {
  const start = performance.now()
  const result = await work
  expect(performance.now() - start).toBeLessThan(milliseconds)
  return result
}

/** Retries a commit until it succeeds. */
async function commitAtLast(store: Store, key: string): Promise<number> {
  let revision = 0
  await until(async () => {
    revision = await commit(store, put(key)).catch(() => 0)
    return revision > 0
  })
  return revision
}

describeWithPart('etcd', 'the etcd store with a failing network', () => {
  let etcd: EtcdCluster
  let proxy: TcpProxy
  let endpoint: string

  beforeAll(async () => {
    etcd = await startEtcd()
  })
  afterAll(() => etcd.stop())
  beforeEach(async () => {
    proxy = await startTcpProxy(etcd.members[0]?.port ?? 0)
    endpoint = `http://127.0.0.1:${proxy.port}`
  })
  afterEach(() => proxy.close())

  test.each(['cut', 'stall'] as const)(
    'a %s ends watch and reads with unavailable and the write with indeterminate, in time; afterwards all calls work again',
    async (fault) => {
      const store = open([endpoint])
      const start = await commit(store, put('r/a', '1'))
      const watch = record(store, ['r/'], start)
      const before = await commit(store, put('r/a', '2'))
      await watch.reached(before)

      proxy[fault]()
      const calls = [commit(store, put('r/lost')), store.get('r/a', soon()), store.range({ prefix: 'r/', limit: 1 }, soon()), store.revision(soon())]
      expect(await within(4000, Promise.all(calls.map(failureOf)))).toEqual(['indeterminate', 'unavailable', 'unavailable', 'unavailable'])
      expect(await within(noticedMs, failureOf(watch.ended))).toBe('unavailable')
      expect(await within(4000, failureOf(record(store, ['r/'], before).ended))).toBe('unavailable')

      proxy.resume()
      const after = await commitAtLast(store, 'r/b')
      const again = record(store, ['r/b'], watch.batches.at(-1)?.revision ?? start)
      await again.reached(storeRevision(after))
      expect(again.lines()).toEqual([`r/b=@${after}`])
    },
  )

  test('a caller that gives up while no member is reachable gets an error that says nothing was sent', async () => {
    const store = open([endpoint])
    await commit(store, put('r/a', '1'))
    proxy.cut()
    expect(await failureOf(store.get('r/a', soon()))).toBe('unavailable')
    const away = new AbortController()
    const calls = Array.from({ length: 5 }, (_, at) => store.transact({ guards: [], writes: [put(`r/${at}`)] }, away.signal))
    const outcomes = Promise.allSettled(calls)
    const reason = new Error('the caller went away')
    away.abort(reason)
    expect((await outcomes).map((outcome) => (outcome.status === 'rejected' ? (outcome.reason as unknown) : undefined))).toEqual(Array(5).fill(reason))
    proxy.resume()
    await commitAtLast(store, 'r/b')
    expect((await store.range({ prefix: 'r/', limit: 10 }, soon())).entries.map(({ key }) => key)).toEqual(['r/a', 'r/b'])
  })

  test('connections without any received data do not block later ones, and are closed', async () => {
    const store = open([endpoint])
    const start = await commit(store, put('r/a', '1'))
    proxy.cut()
    expect(await failureOf(store.get('r/a', soon()))).toBe('unavailable')
    proxy.swallow()
    await until(async () => (await failureOf(store.get('r/a', soon()))) === 'unavailable' && proxy.connections > 0)
    proxy.resume()
    const last = storeRevision(await within(noticedMs, commitAtLast(store, 'r/b')))
    const watch = record(store, ['r/'], start)
    await watch.reached(last)
    // One for calls and one for streams.
    await until(() => proxy.connections === 2)
  })

  test('a quiet watch continues, and keeps up with commits outside its prefixes', async () => {
    const store = open([endpoint])
    const start = await commit(store, put('r/a', '1'))
    const watch = record(store, ['r/'], start)
    const unwatched = await commit(store, put('x/log', '1'))
    await watch.reached(unwatched)
    expect(watch.lines()).toEqual([])
    const last = await commit(store, put('r/a', '2'))
    await watch.reached(last)
    expect(watch.lines()).toEqual([`r/a=2@${last}`])
  })

  test('calls leave a stalled member for one that answers', async () => {
    const store = open([endpoint, ...etcd.endpoints])
    await commit(store, put('r/a', '1'))
    proxy.stall()
    expect(text((await store.get('r/a', soon()))?.value)).toBe('1')
    await within(3000, commit(store, put('r/a', '2')))
  })

  test.each([3_600_000, -3_600_000])('a clock change of %d ms during a call to one member neither ends nor prolongs the call', async (stepMs) => {
    // Dates advance only by the steps; timers run.
    vi.useFakeTimers({ toFake: ['Date'] })
    onTestFinished(() => void vi.useRealTimers())
    const step = (): void => void vi.setSystemTime(Date.now() + stepMs)
    const healthy = etcd.members[0]?.endpoint ?? ''
    const store = open([endpoint, healthy])
    await commit(store, put('r/a', '1'))
    proxy.stall()
    const asked = store.get('r/a', AbortSignal.timeout(20_000))
    step()
    expect((await within(10_000, asked))?.revision).toBeGreaterThan(0)
    const stalled = open([endpoint])
    const lost = failureOf(stalled.get('r/a', AbortSignal.timeout(20_000)))
    step()
    expect(await within(10_000, lost)).toBe('unavailable')
  })

  test('a leader without a connection loses its leadership before another wins it', async () => {
    const prefix = `/test-${randomBytes(8).toString('hex')}/`
    const cutOff = open([endpoint], { prefix })
    const other = open(etcd.endpoints, { prefix })
    const leadership = await cutOff.elect('sweeper', soon())
    const next = other.elect('sweeper', AbortSignal.timeout(30_000))
    proxy.stall()
    const second = await next
    expect(leadership.lost.aborted).toBe(true)
    proxy.resume()
    await second.resign()
  })

  test('a leader keeps its leadership beyond the time of its lease', async () => {
    const store = open([endpoint])
    const leadership = await store.elect('sweeper', soon())
    const start = performance.now()
    await until(() => leadership.lost.aborted || performance.now() - start > 12_000)
    expect(leadership.lost.aborted).toBe(false)
    await leadership.resign()
  })
})

describeWithPart('etcd', 'the etcd store on three members', () => {
  let etcd: EtcdCluster

  beforeAll(async () => {
    etcd = await startEtcd({ members: 3 })
  })
  afterAll(() => etcd.stop())

  test('calls continue and nothing acknowledged is lost while each member in turn is killed and restarted', async () => {
    const store = open(etcd.endpoints)
    const acknowledged: string[] = []
    const stop = new AbortController()
    const writing = (async () => {
      for (let count = 0; !stop.signal.aborted; count++) {
        const key = `r/${String(count).padStart(6, '0')}`
        if (await commit(store, put(key)).catch(() => 0)) acknowledged.push(key)
      }
    })()
    for (const member of etcd.members) {
      await member.kill()
      const had = acknowledged.length
      await until(() => acknowledged.length > had + 20)
      await member.restart()
    }
    stop.abort()
    await writing
    const { entries } = await store.range({ prefix: 'r/', limit: 1_000_000 }, soon())
    const kept = new Set(entries.map((entry) => entry.key))
    expect(acknowledged.filter((key) => !kept.has(key))).toEqual([])
  })

  test('a leader keeps its leadership when its connected member is killed', async () => {
    const store = open(etcd.endpoints)
    const leadership = await store.elect('sweeper', soon())
    await etcd.members[0]?.kill()
    try {
      const start = performance.now()
      await until(() => leadership.lost.aborted || performance.now() - start > 12_000)
      expect(leadership.lost.aborted).toBe(false)
      await leadership.resign()
    } finally {
      await etcd.members[0]?.restart()
    }
  })

  test('a watch of a killed member ends with unavailable and continues at another without gap or repetition', async () => {
    const store = open(etcd.endpoints)
    const start = await commit(store, put('r/start'))
    const before = record(store, ['r/'], start)
    await before.reached(await commit(store, put('r/0')))
    await etcd.members[0]?.kill()
    try {
      expect(await within(noticedMs, failureOf(before.ended))).toBe('unavailable')
      const last = storeRevision(await commitAtLast(store, 'r/1'))
      const after = record(store, ['r/'], before.batches.at(-1)?.revision ?? start)
      await after.reached(last)
      expect([...before.lines(), ...after.lines()].map((line) => line.split('=')[0])).toEqual(['r/0', 'r/1'])
    } finally {
      await etcd.members[0]?.restart()
    }
  })

  test('without a majority every call fails with unavailable in time', async () => {
    const store = open(etcd.endpoints)
    const start = await commit(store, put('r/a'))
    const watch = record(store, ['r/'], start)
    await watch.reached(await commit(store, put('r/a')))
    const [, second, third] = etcd.members
    await second?.pause()
    await third?.pause()
    try {
      expect(await within(4000, failureOf(store.get('r/a', soon())))).toBe('unavailable')
      expect(await within(noticedMs, failureOf(watch.ended))).toBe('unavailable')
    } finally {
      second?.resume()
      third?.resume()
    }
    await commitAtLast(store, 'r/b')
  })
})

describeWithPart('etcd', 'the etcd store with other kinds of clusters', () => {
  test('another cluster at the same address ends watches with replaced, once', async () => {
    const [first, second] = [await startEtcd({ token: 'first' }), await startEtcd({ token: 'second' })]
    onTestFinished(async () => void (await Promise.all([first.stop(), second.stop()])))
    const prefix = '/taproot/'
    const ports = [first, second].map((cluster) => cluster.members[0]?.port ?? 0)
    let target = ports[0] ?? 0
    const proxy = await startTcpProxy(() => target)
    onTestFinished(() => proxy.close())
    const store = open([`http://127.0.0.1:${proxy.port}`], { prefix })
    const direct = open(second.endpoints, { prefix })
    // The second cluster has a higher revision, so that only its id differs.
    for (let count = 0; count < 20; count++) await commit(direct, put('r/b', `${count}`))

    const start = await commit(store, put('r/a', '1'))
    const running = record(store, ['r/'], start)
    await running.reached(await commit(store, put('r/a', '2')))
    target = ports[1] ?? 0
    proxy.cut()
    expect(await failureOf(running.ended)).toBe('unavailable')
    proxy.resume()
    await commitAtLast(store, 'r/c')
    expect(await failureOf(record(store, ['r/'], running.batches.at(-1)?.revision ?? start).ended)).toBe('replaced')
    const { revision, entries } = await store.range({ prefix: 'r/', limit: 10 }, soon())
    expect(entries.map((entry) => entry.key)).toEqual(['r/b', 'r/c'])
    const reloaded = record(store, ['r/'], revision)
    const last = await commit(store, put('r/d'))
    await reloaded.reached(last)
    expect(reloaded.lines()).toEqual([`r/d=@${last}`])
  })

  test('with a used-up quota writes fail with exhausted, and reads and deletions continue', async () => {
    const etcd = await startEtcd({ flags: ['--quota-backend-bytes=8388608'] })
    onTestFinished(() => etcd.stop())
    const prefix = '/taproot/'
    const store = open(etcd.endpoints, { prefix })
    await commit(store, put('r/a', 'kept'))
    const fill = async (): Promise<never> => {
      for (let count = 0; ; count++) await commit(store, put(`r/fill/${count}`, new Uint8Array(600 * 1024)))
    }
    await commit(store, put('x/old'))
    expect(await failureOf(fill())).toBe('exhausted')
    expect(text((await store.get('r/a', soon()))?.value)).toBe('kept')
    // A newly started process reclaims space too.
    const fresh = open(etcd.endpoints, { prefix })
    await commit(fresh, remove('x/old'))
    expect(await fresh.get('x/old', soon())).toBeUndefined()
    expect(await store.revision(soon())).toBeGreaterThan(0)
  })

  test('an etcd that cannot be reached is named with the address and the cause of each member', async () => {
    const [refusing = 0, silent = 0] = await freePorts(2)
    const server = createServer().listen(silent, '127.0.0.1')
    onTestFinished(() => void server.close())
    await once(server, 'listening')
    const store = open([`http://127.0.0.1:${refusing}`, `http://127.0.0.1:${silent}`])
    const causes = `http://127.0.0.1:${refusing}: connect ECONNREFUSED 127.0.0.1:${refusing}; http://127.0.0.1:${silent}: no answer`
    await expect(store.get('r/a', soon())).rejects.toMatchObject({ kind: 'unavailable', message: `no etcd member can be reached: ${causes}` })
  })

  test('a request over the configured limits of the cluster fails with too_large', async () => {
    const etcd = await startEtcd({ flags: ['--max-request-bytes=100000'] })
    onTestFinished(() => etcd.stop())
    expect(await failureOf(commit(open(etcd.endpoints), put('r/a', new Uint8Array(200_000))))).toBe('too_large')
  })

  test('over TLS only a trusted certificate is accepted', async () => {
    const etcd = await startEtcd({ tls: true })
    onTestFinished(() => etcd.stop())
    const ca = await readFile(etcd.members[0]?.certificateFile ?? '')
    await commit(open(etcd.endpoints, { tls: () => ({ ca }) }), put('r/a'))
    const { port = 0 } = etcd.members[0] ?? {}
    await expect(open(etcd.endpoints).get('r/a', soon())).rejects.toMatchObject({
      kind: 'unavailable',
      message: expect.stringMatching(`^no etcd member can be reached: https://127\\.0\\.0\\.1:${port}: .*certificate`) as unknown,
    })
    const otherName = etcd.endpoints.map((endpoint) => endpoint.replace('127.0.0.1', 'localhost'))
    expect(await failureOf(open(otherName, { tls: () => ({ ca }) }).get('r/a', soon()))).toBe('unavailable')
  })

  test('with authentication the right password works, also after its token expired, and a wrong one is unavailable', async () => {
    const etcd = await startEtcd({ flags: ['--auth-token-ttl=1'] })
    onTestFinished(() => etcd.stop())
    const admin = new Etcd3({ hosts: [...etcd.endpoints] })
    onTestFinished(() => admin.close())
    await admin.role('root').create()
    await admin.user('root').create('right')
    await admin.user('root').addRole('root')
    await admin.auth.authEnable()
    const store = open(etcd.endpoints, { username: 'root', password: () => 'right' })
    const start = await commit(store, put('r/a', '1'))
    const watch = record(store, ['r/'], start)
    await watch.reached(await commit(store, put('r/a', '2')))
    const idle = performance.now()
    await until(() => performance.now() - idle > 2500)
    await commit(store, put('r/a', '3'))
    expect(await failureOf(open(etcd.endpoints, { username: 'root', password: () => 'wrong' }).get('r/a', soon()))).toBe('unavailable')
    expect(await failureOf(open(etcd.endpoints).get('r/a', soon()))).toBe('unavailable')
  })
})
