import { randomBytes } from 'node:crypto'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { digestOf } from '../../../src/base/digest.ts'
import { readHead, readHistory } from '../../../src/registry/tags/tag-history.ts'
import { shareEtcd } from '../../support/parts/etcd.ts'
import { describeWithPart } from '../../support/parts/require-part.ts'
import { locationOf, withQuery, type TestManifest } from './oci-client.ts'
import { startDiskUpstream, startTestHost, type TestHost, type TestUpstream } from './test-host.ts'
import { campaignLength } from '../../soak/factor.ts'

/** Pushes of each of the four clients of one tag. */
const pushes = campaignLength({ short: 60, full: 250 })

describeWithPart('etcd', 'two registry hosts over one store', () => {
  let source: TestUpstream
  let one: TestHost
  let other: TestHost

  beforeAll(async () => {
    const etcd = await shareEtcd()
    source = await startDiskUpstream()
    // Both hosts use the upstream, which is stopped once.
    const upstream = async (): Promise<TestUpstream> => ({ upstream: source.upstream, stop: () => Promise.resolve() })
    one = await startTestHost({ store: 'etcd', etcd, upstream })
    other = await startTestHost({
      store: 'etcd',
      etcd,
      upstream,
      organisation: one,
      dataDir: one.server.config.dataDir,
      env: { TAPROOT_DATA_DIR: one.server.config.dataDir },
    })
  })

  afterAll(async () => {
    await other?.stop()
    await one?.stop()
    await source?.stop()
  })

  function uidOf(repository: string): string {
    return one.services.cache.tables.table('Repo').child(one.group, repository.split('/')[1] ?? '')?.uid ?? ''
  }

  test("two registry hosts over one store continue each other's uploads", async () => {
    const repository = one.freshRepository()
    const bytes = randomBytes(2000)
    const started = await one.client.send('POST', `/v2/${repository}/blobs/uploads/`)
    const sent = await other.client.send('PATCH', locationOf(started), { body: bytes.subarray(0, 1000) })
    expect(sent.status).toBe(202)
    const done = await one.client.send('PUT', withQuery(locationOf(sent), `digest=${digestOf(bytes)}`), { body: bytes.subarray(1000) })
    expect(done.status).toBe(201)
    expect((await other.client.send('GET', locationOf(done))).body.equals(bytes)).toBe(true)
  })

  test('two registry hosts over one store serve content pushed to the other at once, and no content deleted there, not even from memory', async () => {
    const repository = one.freshRepository()
    for (let round = 0; round < 20; round++) {
      const manifest = await one.client.pushImage(repository, 'v1')
      const path = `/v2/${repository}/manifests`
      expect((await other.client.send('GET', `${path}/v1`)).headers['docker-content-digest']).toBe(manifest.digest)
      expect((await other.client.send('GET', `${path}/${manifest.digest}`)).status).toBe(200)
      expect((await one.client.send('DELETE', `${path}/${manifest.digest}`)).status).toBe(202)
      for (const reference of ['v1', manifest.digest]) expect((await other.client.send('GET', `${path}/${reference}`)).status).toBe(404)
    }
  })

  test('two registry hosts over one store create one repo for two concurrent first pushes', async () => {
    for (let round = 0; round < 10; round++) {
      const repository = one.freshRepository()
      const both = await Promise.all([one, other].map(({ client }) => client.send('POST', `/v2/${repository}/blobs/uploads/`)))
      expect(both.map(({ status }) => status)).toEqual([202, 202])
    }
  })

  test(`two registry hosts over one store agree on history, tag and pulls after ${4 * pushes} pushes of one tag from both`, async () => {
    const repository = one.freshRepository()
    const manifests = await manifestsOf(one, repository, 8)
    const repo = uidOf(repository)
    let pushing = true
    let pulls = 0
    const since = async (startMs: number) =>
      (await readHistory(one.services, { repo, name: 'v1', startMs, limit: 2_000 }, AbortSignal.timeout(60_000)))?.records ?? []
    /** Asserts that each pull returns a target of the tag between the reads of its history before and after. */
    const watch = async (host: TestHost): Promise<void> => {
      let lastMs = 0
      while (pushing) {
        const before = (await since(lastMs)).at(-1)
        lastMs = before?.timeMs ?? 0
        const answer = await host.client.send('GET', `/v2/${repository}/manifests/v1`)
        const digests = (await since(lastMs)).map(({ digest }) => digest)
        if (answer.status === 404) expect(before).toBeUndefined()
        else {
          expect(digestOf(answer.body)).toBe(answer.headers['docker-content-digest'])
          expect(digests).toContain(digestOf(answer.body))
          pulls++
        }
      }
    }
    const watching = Promise.all([watch(one), watch(other)])
    const push = async (host: TestHost, count: number, from: number): Promise<void> => {
      for (let at = 0; at < count; at++) {
        const manifest = manifests[(at + from) % manifests.length]
        if (manifest === undefined) continue
        for (;;) {
          const { status } = await host.client.putManifest(repository, 'v1', manifest)
          if (status === 201) break
          // Both move one tag repeatedly: a refused move reports a conflict.
          expect(status).toBe(503)
        }
      }
    }
    const pushed = Promise.all([push(one, pushes, 0), push(one, pushes, 2), push(other, pushes, 4), push(other, pushes, 6)]).finally(() => (pushing = false))
    await Promise.all([pushed, watching])
    expect(pulls).toBeGreaterThan(campaignLength({ short: 20, full: 100 }))
    const signal = AbortSignal.timeout(60_000)
    const history = await readHistory(one.services, { repo, name: 'v1', limit: 2_000 }, signal)
    const records = history?.records ?? []
    expect(history?.more).toBe(false)
    for (const [at, record] of records.entries()) {
      const before = records[at - 1]
      if (before === undefined) continue
      expect(record.timeMs).toBeGreaterThan(before.timeMs)
      expect(record.digest).not.toBe(before.digest)
    }
    const pulled = await Promise.all([one, other].map(({ client }) => client.send('GET', `/v2/${repository}/manifests/v1`)))
    const last = records.at(-1)?.digest
    for (const answer of pulled) expect(digestOf(answer.body)).toBe(last)
    expect(records.length).toBeGreaterThan(manifests.length)
  })

  test('two registry hosts over one store leave a tag in the last state of its history after a move that races with a delete', async () => {
    const repository = one.freshRepository()
    const manifests = await manifestsOf(one, repository, 2)
    const repo = uidOf(repository)
    for (let round = 0; round < 30; round++) {
      const [first, second] = manifests
      if (first === undefined || second === undefined) throw new Error('there are two')
      await one.client.putManifest(repository, 'v1', first)
      const [put] = await Promise.all([one.client.putManifest(repository, 'v1', second), other.client.send('DELETE', `/v2/${repository}/manifests/v1`)])
      expect(put.status).toBe(201)
      const pulled = await other.client.send('GET', `/v2/${repository}/manifests/v1`)
      const { head } = await readHead(one.services.store, { repo, name: 'v1' }, AbortSignal.timeout(60_000))
      const history = await readHistory(one.services, { repo, name: 'v1', limit: 1_000 }, AbortSignal.timeout(60_000))
      expect([200, 404]).toContain(pulled.status)
      expect(head?.digest).toBe(pulled.status === 200 ? digestOf(pulled.body) : '')
      if (pulled.status === 200) expect(history?.records.at(-1)?.digest).toBe(head?.digest)
    }
  })

  async function manifestsOf(host: TestHost, repository: string, count: number): Promise<TestManifest[]> {
    const made: TestManifest[] = []
    for (let at = 0; at < count; at++) made.push(await host.client.image(repository))
    return made
  }
})
