import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { request as httpRequest, type IncomingMessage } from 'node:http'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { FairScheduler } from '../../../src/transport/fair-scheduler.ts'
import { startTestServer } from '../../support/test-server.ts'
import { TestClock } from '../../conformance/spec/test-clock.ts'
import { RegistryWorld, type Asked, type Tenant } from '../tokens/registry-world.ts'

describe('a server with read limits', () => {
  const clock = new TestClock()
  const blob = Buffer.alloc(16_000_000, 'x')
  const digest = `sha256:${createHash('sha256').update(blob).digest('hex')}`
  let world: RegistryWorld
  let mine: Tenant

  beforeAll(async () => {
    const reads = { CONCURRENT: '5', MEGABYTES_PER_SECOND: '1', BURST_MEGABYTES: '20' }
    const env = Object.fromEntries(Object.entries(reads).map(([name, value]) => [`TAPROOT_RATE_LIMIT_READS_${name}`, value]))
    world = new RegistryWorld(await startTestServer({ env: { TAPROOT_RATE_LIMIT_ENABLED: 'true', ...env }, clock }))
    mine = await world.tenant()
    const { path, authorization } = mine
    expect(await world.ask({ method: 'POST', path: `/v2/${path}/blobs/uploads/?digest=${digest}`, authorization, body: blob })).toMatchObject({ status: 201 })
  })
  afterAll(() => world.server.stop())

  const reader = async (): Promise<string> => (await world.member(mine.group, { role: 'registry.pull' })).authorization
  const read = (authorization: string, more: Partial<Asked> = {}): ReturnType<RegistryWorld['ask']> =>
    world.ask({ path: `/v2/${mine.path}/blobs/${digest}`, authorization, ...more })
  const tooMany = { status: 429, codes: ['TOOMANYREQUESTS'], headers: { 'retry-after': expect.stringMatching(/^\d+$/) as unknown } }

  /** A read of the blob whose client takes nothing beyond the headers. */
  async function hold(authorization: string, from: string): Promise<IncomingMessage> {
    const sent = httpRequest({
      host: '127.0.0.1',
      port: world.server.config.registry.port,
      path: `/v2/${mine.path}/blobs/${digest}`,
      headers: { authorization },
      agent: false,
      localAddress: from,
    }).end()
    const [response] = (await once(sent, 'response')) as [IncomingMessage]
    return response
  }

  test('concurrent reads beyond the maximum of a credential or an address are refused; others are served, and so is the next read', async () => {
    const [busy, calm] = [await reader(), await reader()]
    const held = await Promise.all(['127.0.1.1', '127.0.1.1', '127.0.1.1', '127.0.1.2', '127.0.1.2'].map((from) => hold(busy, from)))
    expect(await read(busy, { from: '127.0.1.3' })).toMatchObject({ ...tooMany, body: expect.stringContaining('too many requests at once') as unknown })
    held.push(await hold(calm, '127.0.1.1'), await hold(calm, '127.0.1.1'))
    expect(await read(await reader(), { from: '127.0.1.1' })).toMatchObject(tooMany)
    expect(await read(calm, { method: 'HEAD', from: '127.0.1.3' })).toMatchObject({ status: 200 })
    for (const response of held) response.destroy()
    await expect.poll(async () => (await read(busy, { method: 'HEAD', from: '127.0.1.1' })).status).toBe(200)
  })

  test('a server with read limits refuses a credential and an address after too large answers, until time has passed; others are served', async () => {
    const [busy, calm] = [await reader(), await reader()]
    clock.advance(60_000)
    await clock.hold(async () => {
      for (const from of ['127.0.2.1', '127.0.2.2']) expect(await read(busy, { from })).toMatchObject({ status: 200 })
      expect(await read(busy, { from: '127.0.2.3' })).toMatchObject({ ...tooMany, body: expect.stringContaining('too many bytes') as unknown })
      expect(await read(calm, { from: '127.0.2.1' })).toMatchObject({ status: 200 })
      expect(await read(await reader(), { from: '127.0.2.1' })).toMatchObject(tooMany)
      expect(await read(await reader(), { from: '127.0.2.3' })).toMatchObject({ status: 200 })
    })
    clock.advance(60_000)
    expect(await read(busy, { method: 'HEAD', from: '127.0.2.1' })).toMatchObject({ status: 200 })
  })

  test('a server with read limits does not count reads towards the request limit, and keeps the write limit', async () => {
    const { authorization } = await world.member(mine.group, { role: 'registry.push' })
    clock.advance(60_000)
    const [reads, writes] = await clock.hold(async () => {
      const seen: number[] = []
      for (let at = 0; at < 250; at++) seen.push((await read(authorization, { method: 'HEAD' })).status)
      const begun = Array.from({ length: 210 }, async () => (await world.upload(mine.path, authorization)).status)
      return [seen, await Promise.all(begun)]
    })
    expect(new Set(reads)).toEqual(new Set([200]))
    expect(new Set(writes)).toEqual(new Set([202, 429]))
  })
})

describe('the queue of reads', () => {
  test('the queue of reads starts a request at once if there is room', () => {
    const turns = new FairScheduler(2)
    expect([turns.take('a'), turns.take('a')]).toEqual([undefined, undefined])
    expect(turns.take('b')).toBeInstanceOf(Promise)
  })

  test('the queue of reads starts the next request of one key after one of each other key, however many wait', async () => {
    const turns = new FairScheduler(1)
    const begun: string[] = []
    const take = async (key: string): Promise<void> => {
      await turns.take(key)
      begun.push(key)
    }
    const all = [...Array.from({ length: 100 }, () => take('flood')), take('calm'), take('other'), take('calm')]
    await Promise.all(all)
    expect(begun.slice(0, 6)).toEqual(['flood', 'flood', 'calm', 'other', 'flood', 'calm'])
    expect(begun).toHaveLength(103)
    // All is released: the next read starts at once.
    await nextTurn()
    expect(turns.take('later')).toBeUndefined()
  })
})
