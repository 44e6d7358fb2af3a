import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { createSafeFetch } from '../../src/auth/safe-fetch.ts'
import { createRecordCache, startEngine } from '../../src/server/engine.ts'
import { loadConfig } from '../../src/config/load-config.ts'
import { systemClock, systemRandom } from '../../src/server/runtime.ts'
import { createSqliteStore } from '../../src/store/sqlite/sqlite-store.ts'
import { StoreError, type Store } from '../../src/store/store.ts'
import { silentLog, soon } from '../store/store-harness.ts'

/** Returns a store that does not answer now and then. */
function stalling(store: Store, stalls: () => boolean): Store {
  const maybe = <T>(call: () => Promise<T>): Promise<T> => (stalls() ? Promise.reject(new StoreError('unavailable', 'not now')) : call())
  return {
    get: (key, signal) => maybe(() => store.get(key, signal)),
    range: (query, signal) => maybe(() => store.range(query, signal)),
    transact: (transaction, signal) => maybe(() => store.transact(transaction, signal)),
    fence: (signal) => store.fence(signal),
    watch: (prefixes, after, signal) => store.watch(prefixes, after, signal),
    revision: (signal) => store.revision(signal),
    elect: (name, signal) => store.elect(name, signal),
    close: () => store.close(),
  }
}

test('a server that starts waits for a store that does not answer for a moment', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'taproot-start-'))
  onTestFinished(() => rm(directory, { recursive: true }))
  const { config } = loadConfig({ env: { TAPROOT_DATA_DIR: directory }, role: 'dev' })
  let isLoaded = false
  let calls = 0
  let stalls = 0
  const real = createSqliteStore({ path: join(directory, 'store.db'), log: silentLog })
  onTestFinished(() => real.close())
  const store = stalling(real, () => {
    calls += isLoaded ? 1 : 0
    const isStalled = calls % 7 === 1
    if (isStalled) stalls += 1
    return isStalled
  })
  const cache = createRecordCache(real, silentLog)
  onTestFinished(() => cache.close())
  const start = cache.start.bind(cache)
  cache.start = async (signal) => {
    await start(signal)
    isLoaded = true
  }
  const fetch = createSafeFetch()
  onTestFinished(() => fetch.close())
  const engine = await startEngine(
    { config, store, cache, upstream: undefined, fetch, issuers: [], log: silentLog, clock: systemClock, random: systemRandom },
    soon(),
  )
  expect(engine.signingKeys.current().kid).toMatch(/./)
  expect(stalls).toBeGreaterThan(1)
})
