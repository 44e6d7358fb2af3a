import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { JsonObject } from '@bufbuild/protobuf'
import { expect, test, vi } from 'vitest'
import { osvDocument } from '../../support/import-advisories.ts'
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

test('taproot worker runs the feeds, and another one takes over after a kill; taproot api runs none', { timeout: 180_000 }, async () => {
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

test('taproot worker refuses the embedded store', async () => {
  const { code, stderr } = await runProcess({ args: ['worker'], env: { TAPROOT_STORE_KIND: 'sqlite' }, cwd: process.cwd() })
  expect(code).toBe(1)
  expect(stderr).toContain('only one process can use the embedded store, and the worker is another one')
})
