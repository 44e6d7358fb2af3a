import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { createSqliteStore } from '../../src/store/sqlite/sqlite-store.ts'
import type { Store } from '../../src/store/store.ts'
import { requireTool } from '../support/parts/require-part.ts'
import { smallFileSystem } from '../support/parts/small-file-system.ts'
import { bytes, commit, failureOf, put, record, remove, silentLog, soon, text, until } from './store-harness.ts'

const large = new Uint8Array(200_000)

function open(path: string): Store {
  const store = createSqliteStore({ path, log: silentLog })
  onTestFinished(() => store.close())
  return store
}

async function newPath(): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'taproot-sqlite-'))
  onTestFinished(() => rm(directory, { recursive: true }))
  return join(directory, 'store.db')
}

/** Commits until a failure; returns its kind and the number of commits. */
async function fill(store: Store): Promise<{ kept: number; failure: string }> {
  for (let kept = 0; ; kept += 1) {
    const outcome = await Promise.allSettled([commit(store, put(`r/fill/${kept}`, large))])
    if (outcome[0].status === 'rejected') return { kept, failure: await failureOf(Promise.reject(outcome[0].reason as Error)) }
  }
}

async function expectRefusalThatHeals(store: Store, makeRoom: () => Promise<void> | void): Promise<void> {
  const start = await commit(store, put('r/a', 'kept'))
  const watch = record(store, ['r/'], start)
  const leadership = await store.elect('sweeper', soon())
  const { kept, failure } = await fill(store)
  expect(failure).toBe('exhausted')
  const full = await store.revision(soon())
  expect(full).toBe(start + kept)
  expect(text((await store.get('r/a', soon()))?.value)).toBe('kept')
  expect((await store.range({ prefix: 'r/fill/', limit: 1000 }, soon())).entries).toHaveLength(kept)
  expect(await failureOf(commit(store, put('r/refused', large)))).toBe('exhausted')
  expect(await store.get('r/refused', soon())).toBeUndefined()

  await makeRoom()
  const after = await commit(store, put('r/b', large), remove('r/fill/0'))
  expect(after).toBe(full + 1)
  await watch.reached(after)
  expect(watch.batches.flatMap((batch) => batch.changes)).toHaveLength(kept + 2)
  expect(leadership.lost.aborted).toBe(false)
}

test('on a full disk commits fail with exhausted and nothing else changes; with room again they succeed', async () => {
  const disk = await smallFileSystem(8 * 1024 * 1024)
  const path = join(disk.directory, 'store.db')
  await disk.fill(3 * 1024 * 1024)
  await expectRefusalThatHeals(open(path), () => disk.makeRoom())
})

test('a store on a full disk opens and is readable, including data only in its log', async () => {
  const disk = await smallFileSystem(8 * 1024 * 1024)
  const path = join(disk.directory, 'store.db')
  const child = spawn(process.execPath, ['--disable-warning=ExperimentalWarning', join(import.meta.dirname, 'sqlite-child.ts'), path], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  let lines = ''
  child.stdout.on('data', (chunk) => (lines += String(chunk)))
  await until(() => lines.split('\n').length > 100)
  child.kill('SIGKILL')
  await once(child, 'close')
  await disk.fill()
  const acknowledged = lines.split('\n').filter((line) => line.startsWith('r/'))
  const store = open(path)
  for (const key of acknowledged) expect(await store.get(key, soon()), key).toBeDefined()
  await disk.makeRoom()
  await commit(store, put('r/more', large))
})

test('a file size limit has the same effect as a full disk', async () => {
  requireTool('prlimit')
  const limit = (size: string): void => void spawnSync('prlimit', ['--pid', String(process.pid), `--fsize=${size}:`])
  onTestFinished(() => limit('unlimited'))
  const store = open(await newPath())
  limit('3000000')
  await expectRefusalThatHeals(store, () => limit('unlimited'))
})

test('after a failed flush the store reopens its file with all acknowledged commits; watches continue or reload', async () => {
  requireTool('strace')
  const path = await newPath()
  const store = open(path)
  const before = await commit(store, put('r/a', '1'))
  const watch = record(store, ['r/'], before)
  const watchEnd = failureOf(watch.ended)
  const leadership = await store.elect('sweeper', soon())

  const injection = ['-f', '-p', String(process.pid), '-e', 'trace=fsync,fdatasync', '-e', 'inject=fsync,fdatasync:error=EIO:when=1']
  const tracer = spawn('strace', injection, { stdio: ['ignore', 'ignore', 'pipe'] })
  onTestFinished(() => void tracer.kill('SIGKILL'))
  let said = ''
  tracer.stderr.on('data', (chunk) => (said += String(chunk)))
  await until(() => said.includes('attached') || tracer.exitCode !== null)
  expect(said).toContain('attached')

  expect(await failureOf(commit(store, put('r/lost?', '1')))).toBe('indeterminate')
  // An unknown file yields no answers.
  expect(await failureOf(store.get('r/a', soon()))).toBe('unavailable')
  expect(await watchEnd).toBe('unavailable')
  await until(() => leadership.lost.aborted)
  await until(() =>
    store.revision(soon()).then(
      () => true,
      () => false,
    ),
  )
  tracer.kill('SIGINT')
  await once(tracer, 'close')

  expect(text((await store.get('r/a', soon()))?.value)).toBe('1')
  const again = await store.elect('sweeper', soon())
  await again.resign()
  const { revision } = await store.range({ prefix: 'r/', limit: 10 }, soon())
  const resumed = record(store, ['r/'], revision)
  const next = await commit(store, { kind: 'put', key: 'r/b', value: bytes('2') })
  await resumed.reached(next)
  await store.close()
  const reopened = open(path)
  expect(await reopened.revision(soon())).toBe(next)
  expect(text((await reopened.get('r/b', soon()))?.value)).toBe('2')
})
