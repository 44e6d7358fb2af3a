import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { kill } from 'node:process'
import type { JsonObject } from '@bufbuild/protobuf'
import { expect, onTestFinished, test, vi } from 'vitest'
import { osvDocument } from '../../support/import-advisories.ts'
import { pauseProcess } from '../../support/parts/pause-process.ts'
import { ok } from '../../support/test-server.ts'
import { makeOperatedHomes, startApi, type ApiHome } from './harness/api-home.ts'
import { isReady, runProcess, startProcess, type TaprootProcess } from './harness/taproot-process.ts'

/** A killed worker's lease expires, and another worker runs the feed. */
const takeoverMs = 40_000

async function startWorker(home: ApiHome): Promise<TaprootProcess> {
  const started = startProcess({ args: ['worker'], env: home.env, cwd: home.cwd })
  await started.until(() => isReady(home.opsPort))
  return started
}

async function isActive({ opsPort }: ApiHome): Promise<boolean> {
  const metrics = await fetch(`http://127.0.0.1:${opsPort}/metrics`)
  return (await metrics.text()).includes('\ntaproot_worker_active 1\n')
}

test('taproot worker runs the feeds, and another one takes over after a kill; taproot api runs none', async () => {
  const feeds = [{ name: 'own', source: 'feed', group: 'root', everyMinutes: 600 }]
  const { homes, operatorToken } = await makeOperatedHomes(3, { TAPROOT_CATALOGUES_FEEDS: JSON.stringify(feeds) })
  const [api, ...workers] = homes
  if (api === undefined) throw new Error('three homes')
  await mkdir(join(api.cwd, 'feed'))
  const provide = (id: string): Promise<void> => writeFile(join(api.cwd, 'feed', `${id}.json`), JSON.stringify(osvDocument(id)))
  await provide('A-1')
  await startApi(api)
  const token = await operatorToken()
  const call = async (rpc: string, request: JsonObject): Promise<JsonObject> => ok(await api.rest.call(rpc, request, { token }))
  await call('CreateGroup', { group: { name: 'root' } })
  await call('RunFeed', { name: 'own' })
  expect(await isActive(api)).toBe(false)
  expect(await call('ListFeeds', {})).toMatchObject({ feeds: [{ name: 'own', state: 'WAITING' }] })

  const [first, second] = [workers[0], workers[1]]
  if (first === undefined || second === undefined) throw new Error('two workers')
  const killed = await startWorker(first)
  const imported = async (documents: number): Promise<void> => {
    expect(await call('ListFeeds', {})).toMatchObject({ feeds: [{ state: 'DONE', documents: String(documents) }] })
  }
  await vi.waitFor(() => imported(1), { timeout: takeoverMs })
  await startWorker(second)
  expect([await isActive(first), await isActive(second)]).toEqual([true, false])

  await killed.end('SIGKILL')
  await provide('A-2')
  await call('RunFeed', { name: 'own' })
  await vi.waitFor(() => imported(2), { timeout: takeoverMs })
  expect(await isActive(second)).toBe(true)
})

/** Resolves with the processes that a process started. */
async function childrenOf(pid: number): Promise<number[]> {
  const text = await readFile(`/proc/${pid}/task/${pid}/children`, 'utf8')
  return text.split(' ').flatMap((child) => (child === '' ? [] : [Number(child)]))
}

test.each([
  ['with its import process', true],
  ['while its import process goes on', false],
] as const)('a worker that is suspended %s for longer than its lease does no harm afterwards', async (_, withImport) => {
  const feeds = [{ name: 'own', source: 'feed', group: 'root', everyMinutes: 600, replace: true }]
  const { homes, operatorToken } = await makeOperatedHomes(3, { TAPROOT_CATALOGUES_FEEDS: JSON.stringify(feeds) })
  const [api, first, second] = homes
  if (api === undefined || first === undefined || second === undefined) throw new Error('three homes')
  await mkdir(join(api.cwd, 'feed'))
  const documents = 1_500
  const provide = (version: string): Promise<void> => {
    const all = Array.from({ length: documents }, (_, at) => `${JSON.stringify(osvDocument(`D-${at}`, { aliases: [version] }))}\n`)
    return writeFile(join(api.cwd, 'feed', 'all.jsonl'), all.join(''))
  }
  await startApi(api)
  const token = await operatorToken()
  const call = async (rpc: string, request: JsonObject): Promise<JsonObject> => ok(await api.rest.call(rpc, request, { token }))
  await call('CreateGroup', { group: { name: 'root' } })
  const has = async (version: string): Promise<void> => {
    expect(await call('ListAdvisories', { pageSize: 1 })).toMatchObject({ advisories: [{ aliases: [version] }], totalCount: String(documents) })
    expect(await call('ListAdvisories', { pageSize: 1, query: version })).toMatchObject({ totalCount: String(documents) })
  }
  const state = async (): Promise<unknown> => ((await call('ListFeeds', {}))['feeds'] as JsonObject[])[0]?.['state'] // the list's answer

  await provide('one')
  const suspended = await startWorker(first)
  const importing = await vi.waitFor(
    async () => {
      const [child] = await childrenOf(suspended.pid)
      if (child === undefined) throw new Error('no import yet')
      return child
    },
    { timeout: takeoverMs, interval: 1 },
  )
  await pauseProcess(suspended.pid)
  if (withImport) await pauseProcess(importing)
  onTestFinished(() => void kill(suspended.pid, 'SIGCONT'))
  expect(await state()).toBe('RUNNING')

  await provide('two')
  const next = await startWorker(second)
  await vi.waitFor(() => has('two'), { timeout: 2 * takeoverMs, interval: 100 })
  await vi.waitFor(async () => expect(await state()).toBe('DONE'), { timeout: takeoverMs })
  const kept = await call('ListCatalogues', {})

  if (withImport) kill(importing, 'SIGCONT')
  kill(suspended.pid, 'SIGCONT')
  await vi.waitFor(
    async () => {
      expect(await isActive(first)).toBe(false)
      expect(await childrenOf(suspended.pid)).toEqual([])
      const files = await readdir(join(first.cwd, '1', 'catalogues')).catch(() => [])
      expect(files.filter((name) => name.endsWith('.part'))).toEqual([])
    },
    { timeout: takeoverMs, interval: 100 },
  )
  await has('two')
  expect(await state()).toBe('DONE')
  expect(await call('ListCatalogues', {})).toEqual(kept)

  // The suspended one waits for its turn, and takes it.
  await provide('three')
  await next.end('SIGKILL')
  await call('RunFeed', { name: 'own' })
  await vi.waitFor(() => has('three'), { timeout: 2 * takeoverMs, interval: 100 })
})

test('taproot worker refuses the embedded store', async () => {
  const { code, stderr } = await runProcess({ args: ['worker'], env: { TAPROOT_STORE_KIND: 'sqlite' }, cwd: process.cwd() })
  expect(code).toBe(1)
  expect(stderr).toContain('only one process can use the embedded store, and the worker is another one')
})
