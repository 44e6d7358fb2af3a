import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { mkdir, readdir, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { JsonObject } from '@bufbuild/protobuf'
import { expect, onTestFinished, test, vi } from 'vitest'
import { createSafeFetch } from '../../src/auth/safe-fetch.ts'
import { Feeds } from '../../src/catalogue/feeds/feeds.ts'
import { nextRunMs, type FeedSettings } from '../../src/catalogue/feeds/feed-state.ts'
import { groupNamed } from '../../src/catalogue/import/named-group.ts'
import { uidOrder } from '../../src/cache/lists/order.ts'
import { Catalogues } from '../../src/catalogue/index.ts'
import { createDiskUpstream } from '../../src/registry/upstream/disk/disk-upstream.ts'
import { systemRandom } from '../../src/server/runtime.ts'
import { printFeeds, runFeed, switchCatalogue, printCatalogues, prune } from '../../src/cli/catalogue.ts'
import { contextOf } from '../cli/client-world.ts'
import { TestClock } from '../conformance/spec/test-clock.ts'
import { osvDocument } from '../support/import-advisories.ts'
import { describeOnChosenStore } from '../support/parts/require-part.ts'
import { ok, startTestServer } from '../support/test-server.ts'
import { silentLog, soon } from '../store/store-harness.ts'
import { fileOf, temporaryFolder } from './documents.ts'

const minuteMs = 60_000
const within = { timeout: 120_000 }

describeOnChosenStore('feeds', (store) => {
  interface Ground {
    readonly server: Awaited<ReturnType<typeof startTestServer>>
    readonly clock: TestClock
    readonly dataDir: string
    feed(): Promise<JsonObject>
    catalogues(): Promise<JsonObject[]>
    /** Runs the feed now, and waits for the end of it. */
    run(): Promise<JsonObject>
  }

  async function start(feed: JsonObject): Promise<Ground> {
    const clock = new TestClock()
    const dataDir = await temporaryFolder()
    const server = await startTestServer({ store, clock, dataDir, env: { TAPROOT_CATALOGUES_FEEDS: JSON.stringify([{ name: 'own', ...feed }]) } })
    onTestFinished(() => server.stop())
    const operator = await server.operatorToken()
    const call = async (rpc: string, request: JsonObject): Promise<JsonObject> => ok(await server.rest.call(rpc, request, { token: operator }))
    const feedNow = async (): Promise<JsonObject> => ((await call('ListFeeds', {}))['feeds'] as JsonObject[])[0] ?? {}
    const ended = async (): Promise<JsonObject> => {
      const state = await feedNow()
      expect(state['state']).not.toBe('RUNNING')
      return state
    }
    return {
      server,
      clock,
      dataDir,
      feed: feedNow,
      catalogues: async () => (await call('ListCatalogues', {}))['catalogues'] as JsonObject[],
      run: async () => {
        const before = (await feedNow())['lastRunTime']
        clock.advance(1_000)
        await call('RunFeed', { name: 'own' })
        await vi.waitFor(async () => expect((await feedNow())['lastRunTime']).not.toBe(before), within)
        return vi.waitFor(ended, within)
      },
    }
  }

  async function startSource(answer: (request: IncomingMessage, response: ServerResponse) => void): Promise<string> {
    const source: Server = createServer(answer).listen(0, '127.0.0.1')
    onTestFinished(() => {
      source.closeAllConnections()
      source.close()
    })
    await new Promise((resolve) => source.once('listening', resolve))
    return `http://127.0.0.1:${(source.address() as AddressInfo).port}/all.jsonl`
  }

  const lines = (...ids: string[]): string => ids.map((id) => `${JSON.stringify(osvDocument(id))}\n`).join('')

  test('a mounted folder is imported when it changes, and not before', async () => {
    const folder = await temporaryFolder()
    await writeFile(join(folder, 'all.jsonl'), lines('A-1'))
    const { server, run, feed, catalogues } = await start({ source: folder, group: 'acme', everyMinutes: 60 })
    const waiting = await vi.waitFor(async () => {
      const state = await feed()
      expect(state['state']).toBe('FAILED')
      return state
    }, within)
    expect(waiting).toMatchObject({ lastError: 'there is no group "acme"', failures: 1 })
    ok(await server.rest.call('CreateGroup', { group: { name: 'acme' } }, { token: await server.operatorToken() }))
    const first = await run()
    expect(first).toMatchObject({ state: 'DONE', documents: '1' })
    expect(first).not.toHaveProperty('lastError')
    const [catalogue] = await catalogues()
    expect(await run()).toMatchObject({ state: 'DONE' })
    expect((await catalogues())[0]).toEqual(catalogue)

    await mkdir(join(folder, 'more'))
    await writeFile(join(folder, 'more', 'all.jsonl'), `${lines('A-2')}{"id":\n`)
    const next = await run()
    expect(next).toMatchObject({ state: 'PARTIAL', documents: '3', refused: '1', lastError: 'the text is not valid JSON (line 2)' })
    const [lastMs, nextMs] = [next['lastRunTime'], next['nextRunTime']].map((time) => Date.parse(String(time)))
    // Up to a tenth of the interval late.
    expect((nextMs ?? 0) - (lastMs ?? 0)).toBeGreaterThanOrEqual(60 * minuteMs)
    expect((nextMs ?? 0) - (lastMs ?? 0)).toBeLessThanOrEqual(66 * minuteMs)
  })

  test('content is read again if it would become other rows: the group was deleted and made again', async () => {
    const folder = await temporaryFolder()
    await writeFile(join(folder, 'all.jsonl'), lines('G-1'))
    const { server, run } = await start({ source: folder, group: 'acme' })
    const token = await server.operatorToken()
    const listed = async (): Promise<unknown[]> => {
      const { advisories = [] } = ok(await server.rest.call('ListAdvisories', {}, { token }))
      return (advisories as JsonObject[]).map(({ advisoryId }) => advisoryId)
    }
    for (let round = 0; round < 2; round++) {
      const { uid = '' } = ok(await server.rest.call('CreateGroup', { group: { name: 'acme' } }, { token })) as { uid?: string }
      expect(await run()).toMatchObject({ state: 'DONE', documents: '1' })
      await vi.waitFor(async () => expect(await listed()).toEqual(['G-1']), within)
      ok(await server.rest.call('DeleteGroup', { uid }, { token }))
      expect(await listed()).toEqual([])
    }
  })

  test('a URL is downloaded only if it changed, and an error keeps what was imported', async () => {
    let etag = '"one"'
    let broken: 'status' | 'cut' | undefined
    const seen: { condition: string | undefined; token: string | undefined }[] = []
    const source = await startSource((request, response) => {
      seen.push({ condition: request.headers['if-none-match'], token: request.headers.authorization })
      if (broken === 'status') response.writeHead(503).end()
      else if (broken === 'cut') {
        response.writeHead(200, { 'content-length': '1000000', etag }).write(lines('U-9'))
        setTimeout(() => response.destroy(), 20)
      } else if (request.headers['if-none-match'] === etag) response.writeHead(304, { etag }).end()
      else if (request.url === '/all.jsonl') response.writeHead(302, { location: '/moved.jsonl' }).end()
      else response.writeHead(200, { etag }).end(lines('U-1', 'U-2'))
    })
    const tokenFile = join(await temporaryFolder(), 'token')
    await writeFile(tokenFile, 'a-token\n')
    const { server, run, catalogues, dataDir } = await start({ source, allowPrivate: true, group: 'acme', tokenFile })
    ok(await server.rest.call('CreateGroup', { group: { name: 'acme' } }, { token: await server.operatorToken() }))
    expect(await run()).toMatchObject({ state: 'DONE', documents: '2', source })
    expect(seen.every(({ token }) => token === 'Bearer a-token')).toBe(true)
    const before = await catalogues()
    const requests = seen.length
    expect(await run()).toMatchObject({ state: 'DONE', documents: '2' })
    expect(seen.slice(requests)).toEqual([{ condition: '"one"', token: 'Bearer a-token' }])
    etag = '"two"'
    for (const [how, error] of [
      ['status', 'the server refused the request (status 503)'],
      ['cut', 'the connection failed or broke: try again: other side closed'],
    ] as const) {
      broken = how
      expect(await run(), how).toMatchObject({ state: 'FAILED', lastError: error })
    }
    broken = undefined
    expect(await run()).toMatchObject({ state: 'DONE', failures: 0 })
    expect(await catalogues()).toEqual(before)
    expect((await readdir(join(dataDir, 'catalogues'))).filter((name) => name.endsWith('.part'))).toEqual([])
  })

  test('private addresses and plain http need a setting', async () => {
    let reached = 0
    const source = await startSource((_, response) => {
      reached += 1
      response.end()
    })
    const { run } = await start({ source })
    expect(await run()).toMatchObject({
      state: 'FAILED',
      lastError: 'only https is allowed, without a user name in the URL: allow http with --allow-private, or allowPrivate of the feed',
    })
    expect(reached).toBe(0)
  })

  test('a URL that moves to another server is asked with the validators of the last answer, and without the token', async () => {
    const seen: unknown[] = []
    const other = await startSource(({ headers }, response) => {
      seen.push([headers['if-none-match'], headers.authorization])
      if (headers['if-none-match'] === '"one"') response.writeHead(304).end()
      else response.writeHead(200, { etag: '"one"' }).end(lines('M-1'))
    })
    const source = await startSource((_, response) => response.writeHead(302, { location: other }).end())
    const tokenFile = join(await temporaryFolder(), 'token')
    await writeFile(tokenFile, 'a-token\n')
    const { server, run } = await start({ source, allowPrivate: true, group: 'acme', tokenFile })
    ok(await server.rest.call('CreateGroup', { group: { name: 'acme' } }, { token: await server.operatorToken() }))
    expect(await run()).toMatchObject({ state: 'DONE', documents: '1' })
    seen.length = 0
    expect(await run()).toMatchObject({ state: 'DONE', documents: '1' })
    expect(seen).toEqual([['"one"', undefined]])
  })

  /** Feeds without a process around them, and what one process after another has of the catalogues. */
  async function startBare(feed: Pick<FeedSettings, 'source'> & Partial<FeedSettings>, maxRunMs?: number) {
    const server = await startTestServer({ store, keepsContent: false })
    onTestFinished(() => server.stop())
    ok(await server.rest.call('CreateGroup', { group: { name: 'acme' } }, { token: await server.operatorToken() }))
    const { store: openStore, cache } = server.running.engine
    const clock = new TestClock()
    const own = { store: openStore, cache, clock, random: systemRandom, log: silentLog }
    const upstream = await createDiskUpstream({ directory: await temporaryFolder(), clock, random: systemRandom })
    const fetch = createSafeFetch()
    onTestFinished(() => fetch.close())
    const settings = [{ name: 'own', everyMinutes: 60, ...feed }]
    const next = async () => {
      const directory = await temporaryFolder()
      const catalogues = new Catalogues({ ...own, upstream, directory })
      return { directory, catalogues, feeds: new Feeds({ ...own, feeds: settings, catalogues, fetch, ...(maxRunMs === undefined ? {} : { maxRunMs }) }) }
    }
    return { upstream, clock, next, group: groupNamed(cache.tables, 'acme') }
  }

  test('a run that takes too long ends, and says so', async () => {
    const source = await startSource((_, response) => {
      response.writeHead(200)
      const timer = setInterval(() => response.write(' '), 20)
      response.on('close', () => clearInterval(timer))
    })
    const { next } = await startBare({ source, allowPrivate: true }, 300)
    const { feeds, directory } = await next()
    await feeds.runDue(undefined, soon())
    expect(await feeds.list(soon())).toMatchObject([{ state: 'failed', failures: 1, error: 'the run took longer than two hours' }])
    expect(await readdir(directory)).toEqual([])
  })

  test('a feed fails while the upstream lacks the catalogue, and reads its content again after an import that began a new one', async () => {
    const folder = await temporaryFolder()
    await writeFile(join(folder, 'all.jsonl'), lines('L-1'))
    const { upstream, clock, next, group } = await startBare({ source: folder, group: 'acme' })
    const first = await next()
    const runOnce = async ({ feeds }: typeof first): Promise<void> => {
      clock.advance(2 * 60 * minuteMs)
      await feeds.runDue(undefined, soon())
      expect(await feeds.list(soon())).toMatchObject([{ state: 'done', documents: 1 }])
    }
    await runOnce(first)
    const [before] = await first.catalogues.kept(soon())
    await runOnce(first)
    expect((await first.catalogues.kept(soon()))[0]).toEqual(before)

    const end = first.catalogues.serve()
    onTestFinished(end)
    const all = { groups: [group], uids: undefined, anyOf: [], noneOf: [], text: '' }
    const untilServed = (total: number): Promise<void> =>
      vi.waitFor(async () => {
        const source = first.catalogues.source('advisories')
        const page = await source?.page({ filter: all, order: uidOrder, after: undefined, skip: 0, limit: 10 }, { key: '', signal: soon() })
        expect(page?.total).toBe(total)
      }, within)
    await untilServed(1)
    const kept = await first.catalogues.kept(soon())
    for await (const { repo, kind, digest } of upstream.stored()) if (kind === 'blob') await upstream.deleteBlob(repo, digest, soon())
    const { catalogues, feeds } = await next()
    await writeFile(join(folder, 'more.jsonl'), lines('L-3'))
    for (const failures of [1, 2]) {
      clock.advance(2 * 60 * minuteMs)
      await feeds.runDue(undefined, soon())
      const error = expect.stringMatching(/^the upstream does not have the current catalogue of \w+ \(sha256:.*taproot import/) as string
      expect(await feeds.list(soon())).toMatchObject([{ state: 'failed', failures, error }])
      expect(await catalogues.kept(soon())).toEqual(kept)
      await untilServed(1)
    }
    await rm(join(folder, 'more.jsonl'))

    const options = { paths: [await fileOf('own.jsonl', lines('L-2'))], group, replace: false, dryRun: false, mayBegin: true }
    await catalogues.import({ ...options, onRefusal: () => undefined, onProgress: () => undefined }, soon())
    await runOnce({ ...first, feeds })
    await untilServed(2)
  })

  test('the command catalogue lists, goes back, prunes and runs feeds', async () => {
    const folder = await temporaryFolder()
    const { server, run } = await start({ source: folder, group: 'acme' })
    ok(await server.rest.call('CreateGroup', { group: { name: 'acme' } }, { token: await server.operatorToken() }))
    const context = contextOf(server, await server.operatorToken())
    await printCatalogues(context, { output: 'table' })
    expect(context.notes).toEqual(['no catalogues: import one with "taproot import"'])
    for (const id of ['C-1', 'C-2']) {
      await writeFile(join(folder, `${id}.jsonl`), lines(id))
      expect(await run()).toMatchObject({ state: 'DONE' })
    }
    await printCatalogues(context, { output: 'json' })
    const listed = context
      .printed()
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as JsonObject)
      .filter(({ kind }) => kind === 'advisories')
    expect(listed.map(({ current }) => current === true)).toEqual([true, false])
    const earlier = String(listed[1]?.['digest'])
    await switchCatalogue(context, earlier.slice(0, 20))
    expect(context.printed()).toContain(`current advisories: ${earlier}\n`)
    await vi.waitFor(async () => {
      const { advisories } = ok(await server.rest.call('ListAdvisories', {}, { token: await server.operatorToken() }))
      expect((advisories as JsonObject[]).map(({ advisoryId }) => advisoryId)).toEqual(['C-1'])
    }, within)
    await expect(prune(context, {})).rejects.toThrow('repeat the command with --yes')
    await prune(context, { yes: true })
    expect(context.printed()).toContain(`deleted advisories ${String(listed[0]?.['digest'])}\n`)
    await printFeeds(context, { output: 'table' })
    expect(context.printed()).toMatch(/own +done +\d+s +2 +0 +/)
    await runFeed(context, 'own')
    await expect(runFeed(context, 'none')).rejects.toMatchObject({ code: 5 })
    await expect(switchCatalogue(context, 'sha256:none')).rejects.toThrow('no catalogue sha256:none is kept')
  })
})

const settings = { name: 'own', source: '/data', everyMinutes: 60 }
const idle = { source: '/data', failures: 0, documents: 0, refused: 0 }

test.each([
  ['a feed that never ran', idle, 0, 0],
  ['a feed whose process was killed', { ...idle, startedMs: 5 }, 0, 0],
  ['a feed that succeeded', { ...idle, startedMs: 5, endedMs: 6 }, 60, 66],
  ['a feed that failed once', { ...idle, startedMs: 5, endedMs: 6, failures: 1 }, 1, 1.1],
  ['a feed that failed three times', { ...idle, startedMs: 5, endedMs: 6, failures: 3 }, 4, 4.4],
  ['a feed that fails always', { ...idle, startedMs: 5, endedMs: 6, failures: 99 }, 60, 66],
])('%s runs again after its wait', (_, state, least, most) => {
  const waitMs = nextRunMs(settings, state) - ('endedMs' in state ? 5 : 0)
  // Times of the API are whole milliseconds.
  expect(waitMs).toBe(Math.trunc(waitMs))
  expect(waitMs).toBeGreaterThanOrEqual(least * minuteMs)
  expect(waitMs).toBeLessThanOrEqual(most * minuteMs)
})
