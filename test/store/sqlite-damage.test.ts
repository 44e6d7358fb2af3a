import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, mkdtemp, open as openFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { StoreError, type Store } from '../../src/store/store.ts'
import { createSqliteStore } from '../../src/store/sqlite/sqlite-store.ts'
import { requireTool } from '../support/parts/require-part.ts'
import { smallFileSystem } from '../support/parts/small-file-system.ts'
import { freshDirectory, runProcess } from '../e2e/process/harness/taproot-process.ts'
import { commit, put, silentLog, soon, text, until } from './store-harness.ts'

function open(path: string): Store {
  const store = createSqliteStore({ path, log: silentLog })
  onTestFinished(() => store.close())
  return store
}

async function newPath(): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'taproot-damage-'))
  onTestFinished(() => rm(directory, { recursive: true, force: true }))
  return join(directory, 'store.db')
}

/** SQLite's default. */
const pageBytes = 4096

/** Creates a store of several hundred pages with a valid header and overwritten pages in the middle. */
async function damagedStore(path: string): Promise<void> {
  const store = createSqliteStore({ path, log: silentLog })
  const value = new Uint8Array(1_000)
  for (let at = 0; at < 500; at += 100)
    await commit(store, ...Array.from({ length: 100 }, (_, next) => put(`r/Group/${String(at + next).padStart(40, '0')}`, value)))
  await store.close()
  const file = await openFile(path, 'r+')
  try {
    const { size } = await file.stat()
    for (let page = 60; page < 100; page++) await file.write(new Uint8Array(pageBytes).fill(0x5a), 0, pageBytes, page * pageBytes)
    expect(size).toBeGreaterThan(120 * pageBytes)
  } finally {
    await file.close()
  }
}

async function errorOf(promise: Promise<unknown>): Promise<StoreError> {
  try {
    await promise
  } catch (error) {
    if (error instanceof StoreError) return error
    throw error
  }
  throw new Error('it did not fail')
}

/** Returns the first unreadable key. */
async function damagedKey(store: Store): Promise<string> {
  for (let at = 0; at < 500; at++) {
    const key = `r/Group/${String(at).padStart(40, '0')}`
    const isFine = await store.get(key, soon()).then(
      () => true,
      () => false,
    )
    if (!isFine) return key
  }
  throw new Error('every key can be read')
}

test('a damaged page is reported with the file and the cause', async () => {
  const path = await newPath()
  await damagedStore(path)
  const error = await errorOf(open(path).range({ prefix: 'r/', limit: 1_000 }, soon()))
  expect(error).toMatchObject({ kind: 'damaged', message: `the embedded store ${path}: the file is damaged` })
  expect(error.cause).toMatchObject({ errcode: 11 })
})

test('a commit on a damaged page fails with the cause, and other commits continue', async () => {
  const path = await newPath()
  await damagedStore(path)
  const store = open(path)
  const key = await damagedKey(store)
  const [good, bad] = await Promise.allSettled([commit(store, put('r/a', '1')), commit(store, put(key, '2'))])
  expect(bad).toMatchObject({ status: 'rejected', reason: { kind: 'damaged' } })
  expect(good).toMatchObject({ status: 'fulfilled' })
  expect(text((await store.get('r/a', soon()))?.value)).toBe('1')
})

test('a server whose store has a damaged page exits with code 1 and one line with the cause', async () => {
  const cwd = await freshDirectory()
  const path = join(cwd, 'data', 'store.db')
  await mkdir(dirname(path))
  await damagedStore(path)
  const { code, stderr } = await runProcess({ args: ['dev'], cwd, env: { TAPROOT_DATA_DIR: dirname(path), TAPROOT_STORE_SQLITE_PATH: path } })
  expect({ code, stderr }).toEqual({ code: 1, stderr: `taproot: the embedded store ${path}: the file is damaged: database disk image is malformed\n` })
})

test('a read-only file system is named when the store is opened, with or without its file', async () => {
  const disk = await smallFileSystem(8 * 1024 * 1024)
  const [path, other] = [join(disk.directory, 'store.db'), join(disk.directory, 'other', 'store.db')]
  const store = createSqliteStore({ path, log: silentLog })
  await commit(store, put('r/a'))
  await store.close()
  expect(spawnSync('mount', ['-o', 'remount,ro', disk.directory]).status).toBe(0)
  for (const at of [path, other]) expect(() => open(at)).toThrow(`the embedded store ${at}: the file system is read-only`)
})

test('a file system that becomes read-only is named by the failing commit', async () => {
  requireTool('strace')
  const path = await newPath()
  const store = open(path)
  await commit(store, put('r/a', '1'))
  const calls = 'pwrite64,access,faccessat,faccessat2'
  const tracer = spawn(
    'strace',
    ['-f', '-p', String(process.pid), '-e', `trace=${calls}`, '-e', `inject=${calls}:error=EROFS`, '-P', path, '-P', `${path}-wal`, '-P', dirname(path)],
    {
      stdio: ['ignore', 'ignore', 'pipe'],
    },
  )
  onTestFinished(() => void tracer.kill('SIGKILL'))
  let said = ''
  tracer.stderr.on('data', (chunk) => (said += String(chunk)))
  await until(() => said.includes('attached') || tracer.exitCode !== null)
  const error = await errorOf(commit(store, put('r/b', '1')))
  expect(error).toMatchObject({ kind: 'exhausted', message: `the embedded store ${path}: the file system is read-only` })
  tracer.kill('SIGINT')
  await once(tracer, 'close')
  await commit(store, put('r/b', '1'))
})
