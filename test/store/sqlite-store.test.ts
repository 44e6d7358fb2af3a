import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { chmod, mkdtemp, readFile, readdir, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { DatabaseSync } from 'node:sqlite'
import { describe, expect, onTestFinished, test } from 'vitest'
import { createSqliteStore, type SqliteStoreOptions } from '../../src/store/sqlite/sqlite-store.ts'
import type { Store } from '../../src/store/store.ts'
import { storeContract } from './contract.ts'
import { commit, failureOf, put, record, silentLog, soon, type StoreUnderTest } from './store-harness.ts'

async function newPath(): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'taproot-sqlite-'))
  onTestFinished(() => rm(directory, { recursive: true }))
  return join(directory, 'data', 'store.db')
}

function open(path: string, options: Partial<SqliteStoreOptions> = {}): Store {
  const store = createSqliteStore({ path, log: silentLog, ...options })
  onTestFinished(() => store.close())
  return store
}

async function openForContract(): Promise<StoreUnderTest> {
  const path = await newPath()
  const historyBytes = 9 * 1024 * 1024
  const store = open(path, { historyBytes })
  return {
    store,
    peer: () => store,
    reopen: async () => {
      await store.close()
      return open(path, { historyBytes })
    },
    forgetHistory: async () => {
      for (let written = 0; written <= historyBytes; written += 1_000_000) await commit(store, put(`x/filler/${written}`, new Uint8Array(1_000_000)))
    },
  }
}

storeContract('sqlite', openForContract)

/** Starts sqlite-child.ts on `path`; `lines` is its output. */
function startChild(path: string): { process: ChildProcess; lines: string[]; said: (count: number) => Promise<void> } {
  const child = spawn(process.execPath, ['--disable-warning=ExperimentalWarning', join(import.meta.dirname, 'sqlite-child.ts'), path], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  onTestFinished(() => void child.kill('SIGKILL'))
  const lines: string[] = []
  const reader = createInterface({ input: child.stdout })
  reader.on('line', (line) => lines.push(line))
  return {
    process: child,
    lines,
    said: async (count) => {
      while (lines.length < count) await once(reader, 'line', { signal: soon() })
    },
  }
}

function openError(path: string): unknown {
  try {
    open(path)
  } catch (error) {
    return error
  }
  return undefined
}

describe('the sqlite store', () => {
  test('the sqlite store has files that only their owner can read', async () => {
    const path = await newPath()
    await commit(open(path), put('r/a'))
    for (const file of [path, `${path}-wal`]) expect((await stat(file)).mode & 0o777).toBe(0o600)
  })

  test('the sqlite store refuses a second process with unavailable, until the first is killed', async () => {
    const path = await newPath()
    const child = startChild(path)
    await child.said(2)
    expect(openError(path)).toMatchObject({ name: 'StoreError', kind: 'unavailable' })
    child.process.kill('SIGKILL')
    await once(child.process, 'exit')
    expect(openError(path)).toBeUndefined()
    const second = startChild(path)
    await second.said(1)
    expect(second.lines).toEqual(['unavailable'])
  })

  test('the sqlite store refuses a second open in the same process, and the first continues', async () => {
    const path = await newPath()
    const store = open(path)
    expect(openError(path)).toMatchObject({ kind: 'unavailable' })
    const child = startChild(path)
    await child.said(1)
    expect(child.lines).toEqual(['unavailable'])
    await commit(store, put('r/a'))
  })

  test('the sqlite store loses no acknowledged commit on kill -9 during writes', async () => {
    for (const acknowledged of [1, 50, 333]) {
      const path = await newPath()
      const child = startChild(path)
      await child.said(1 + acknowledged)
      child.process.kill('SIGKILL')
      await once(child.process, 'close')
      const store = open(path)
      for (const key of child.lines.slice(1)) expect(await store.get(key, soon()), key).toBeDefined()
      const { entries } = await store.range({ prefix: 'r/', limit: 100_000 }, soon())
      expect(await store.revision(soon())).toBe(entries.length)
    }
  })

  test.each([
    ['tables', 'CREATE TABLE t (a)'],
    ['tables and a version', 'CREATE TABLE t (a); PRAGMA user_version = 1'],
    ['tables, in WAL mode', 'PRAGMA journal_mode = WAL; CREATE TABLE t (a); INSERT INTO t VALUES (1)'],
    ['the table names of a Taproot store', 'CREATE TABLE kv (a); CREATE TABLE meta (a)'],
    ['an application id', 'PRAGMA application_id = 77'],
  ])('the sqlite store refuses and does not change a file of another program with %s', async (_, statements) => {
    const directory = join(await newPath(), '..', '..')
    const path = join(directory, 'foreign.db')
    const foreign = new DatabaseSync(path)
    foreign.exec(statements)
    foreign.close()
    await chmod(path, 0o640)
    const before = await readFile(path)
    expect(openError(path)).toMatchObject({ kind: 'unavailable', message: expect.stringContaining('did not create this file') as unknown })
    expect((await readFile(path)).equals(before)).toBe(true)
    expect((await stat(path)).mode & 0o777).toBe(0o640)
    expect(await readdir(directory)).toEqual(['foreign.db'])
  })

  test('the sqlite store accepts an empty file, and makes a database private that others can read', async () => {
    const path = join(await newPath(), '..', '..', 'store.db')
    await writeFile(path, '')
    const store = open(path)
    await commit(store, put('r/a'))
    await store.close()
    await chmod(path, 0o644)
    const again = open(path)
    await commit(again, put('r/b'))
    for (const file of [path, `${path}-wal`]) expect((await stat(file)).mode & 0o777).toBe(0o600)
    expect(await again.get('r/a', soon())).toBeDefined()
  })

  test('the sqlite store over its size limit fails with exhausted and writes nothing; smaller commits succeed', async () => {
    const path = await newPath()
    const store = open(path, { maxBytes: 1024 * 1024 })
    const { revision: start } = await store.range({ prefix: '', limit: 1 }, soon())
    const watch = record(store, ['r/'], start)
    const outcomes = await Promise.allSettled([
      commit(store, put('r/small/1')),
      commit(store, put('r/large/1', new Uint8Array(600 * 1024))),
      commit(store, put('r/large/2', new Uint8Array(600 * 1024))),
      commit(store, put('r/small/2')),
    ])
    expect(outcomes.map((outcome) => outcome.status)).toEqual(['fulfilled', 'fulfilled', 'rejected', 'fulfilled'])
    expect(await failureOf(commit(store, put('r/large/3', new Uint8Array(600 * 1024))))).toBe('exhausted')
    const { entries } = await store.range({ prefix: 'r/', limit: 10 }, soon())
    expect(entries.map((entry) => entry.key)).toEqual(['r/large/1', 'r/small/1', 'r/small/2'])
    await watch.reached(await store.revision(soon()))
    expect(watch.batches.flatMap((batch) => batch.changes.map((change) => change.key))).toEqual(['r/small/1', 'r/large/1', 'r/small/2'])
  })

  test('the sqlite store can be opened again at once after close', async () => {
    const path = await newPath()
    const store = open(path)
    await store.close()
    expect(openError(path)).toBeUndefined()
  })
})
