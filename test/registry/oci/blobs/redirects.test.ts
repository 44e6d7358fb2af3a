import { randomBytes } from 'node:crypto'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { digestOf, type Digest } from '../../../../src/base/digest.ts'
import { makeMember, makeOrganisation, startTestServer, type Organisation, type TestServer } from '../../../support/test-server.ts'
import { crane } from '../../../support/parts/crane.ts'
import { listenOnLoopback } from '../../../support/parts/loopback.ts'
import { startRegistry, type DistributionRegistry } from '../../../support/parts/registry.ts'
import { describeWithPart } from '../../../support/parts/require-part.ts'
import { RegistryWorld, basic, bearer } from '../../tokens/registry-world.ts'
import { imageType, manifestOf, OciClient } from '../oci-client.ts'

/** A storage that serves its files to all, like an object store with signed URLs. */
interface Storage {
  readonly url: string
  readonly requests: IncomingMessage[]
  /** The folder that it serves. */
  directory: string
  stop(): void
}

async function startStorage(): Promise<Storage> {
  const requests: IncomingMessage[] = []
  const server = createServer((request, response) => {
    requests.push(request)
    void answer(request, response).catch(() => response.writeHead(404).end())
  })
  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const bytes = await readFile(join(storage.directory, new URL(request.url ?? '', storage.url).pathname))
    const [, first, last] = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? '') ?? []
    const part = first === undefined || last === undefined ? bytes : bytes.subarray(Number(first), Number(last) + 1)
    const range = part === bytes ? {} : { 'content-range': `bytes ${first}-${last}/${bytes.length}` }
    response.writeHead(part === bytes ? 200 : 206, { 'content-length': part.length, ...range }).end(part)
  }
  const storage = { url: `http://127.0.0.1:${await listenOnLoopback(server)}`, requests, directory: '', stop: () => void server.close() }
  return storage
}

describeWithPart('registry', 'blobs over a distribution registry that redirects to its storage', () => {
  let storage: Storage
  let registry: DistributionRegistry
  let directory: string

  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), 'taproot-redirects-test-'))
    storage = await startStorage()
    registry = await startRegistry({ configuration: { middleware: { storage: [{ name: 'redirect', options: { baseurl: `${storage.url}/` } }] } } })
    storage.directory = registry.dir
  })

  afterAll(async () => {
    await registry?.stop()
    storage?.stop()
    if (directory !== undefined) await rm(directory, { recursive: true, force: true })
  })

  /** A host over that registry, with an image of one layer in it. */
  async function hostOf(redirects: Record<string, string>) {
    const server: TestServer = await startTestServer({ env: { TAPROOT_REGISTRY_UPSTREAM_URL: registry.url, ...redirects } })
    const world = new RegistryWorld(server)
    const organisation: Organisation = await makeOrganisation(server)
    const name = server.running.engine.cache.tables.get('Group', organisation.group)?.name ?? ''
    const token = await world.accessToken(organisation.owner)
    const client = new OciClient(server.config.registry.port, token)
    const layer = randomBytes(5_000)
    const image = `${name}/app`
    const digest = await client.putBlob(image, layer)
    const config = Buffer.from(JSON.stringify({ architecture: 'amd64', os: 'linux', rootfs: { type: 'layers', diff_ids: [] } }))
    const manifest = manifestOf({
      schemaVersion: 2,
      mediaType: imageType,
      config: { mediaType: 'application/vnd.oci.image.config.v1+json', digest: await client.putBlob(image, config), size: config.length },
      layers: [{ mediaType: 'application/vnd.oci.image.layer.v1.tar', digest, size: layer.length }],
    })
    expect(await client.send('PUT', `/v2/${image}/manifests/v1`, { headers: { 'content-type': imageType }, body: manifest.bytes })).toMatchObject({
      status: 201,
    })
    storage.requests.length = 0
    const stop = async (): Promise<void> => {
      client.close()
      await server.stop()
    }
    return { server, world, organisation, client, token, image, layer, digest, blob: `/v2/${image}/blobs/${digest}`, stop }
  }

  const asked = (digest: Digest): readonly IncomingMessage[] => storage.requests.filter(({ url }) => url?.includes(digest.slice('sha256:'.length)))

  test('with the default `follow` the host returns the bytes itself, also ranges', async () => {
    const { client, blob, layer, digest, stop } = await hostOf({})
    const answer = await client.send('GET', blob)
    expect([answer.status, digestOf(answer.body)]).toEqual([200, digest])
    const part = await client.send('GET', blob, { headers: { range: 'bytes=10-19' } })
    expect([part.status, part.body]).toEqual([206, layer.subarray(10, 20)])
    expect(asked(digest).length).toBeGreaterThanOrEqual(2)
    await stop()
  })

  test('with `pass` a client that uses TLS is not redirected to storage without TLS', async () => {
    const { client, blob, digest, stop } = await hostOf({ TAPROOT_REGISTRY_UPSTREAM_REDIRECTS: 'pass', TAPROOT_REGISTRY_SCHEME: 'https' })
    const answer = await client.send('GET', blob)
    expect([answer.status, digestOf(answer.body)]).toEqual([200, digest])
    await stop()
  })

  describe('with `pass`', () => {
    let host: Awaited<ReturnType<typeof hostOf>>

    beforeAll(async () => {
      // Each pull has an event of its own, however soon it follows an equal one.
      host = await hostOf({ TAPROOT_REGISTRY_UPSTREAM_REDIRECTS: 'pass', TAPROOT_EVENTS_TRAFFIC_WINDOW_SECONDS: '0' })
    })

    afterAll(() => host?.stop())

    test('requests with any Range header are redirected to the storage', async () => {
      for (const headers of [{}, { range: 'bytes=10-19' }]) {
        const answer = await host.client.send('GET', host.blob, { headers })
        expect(answer).toMatchObject({ status: 307, headers: { 'docker-content-digest': host.digest, 'cache-control': 'no-store', 'content-length': '0' } })
        const bytes = Buffer.from(await (await fetch(String(answer.headers.location), { headers })).arrayBuffer())
        expect(bytes).toEqual('range' in headers ? host.layer.subarray(10, 20) : host.layer)
      }
    })

    test('the host answers requests that need no bytes itself', async () => {
      storage.requests.length = 0
      expect(await host.client.send('HEAD', host.blob)).toMatchObject({ status: 200, headers: { 'content-length': '5000' } })
      expect(await host.client.send('GET', host.blob, { headers: { 'if-none-match': `"${host.digest}"` } })).toMatchObject({ status: 304 })
      expect(await host.client.send('GET', host.blob, { headers: { range: 'bytes=5000-' } })).toMatchObject({ status: 416 })
      expect(await host.client.send('GET', host.blob.replace(host.digest, digestOf(randomBytes(8))))).toMatchObject({ status: 404, codes: ['BLOB_UNKNOWN'] })
      expect(storage.requests).toEqual([])
    })

    test('a caller without the right to pull never sees the storage address', async () => {
      const stranger = await makeMember(host.server, (await makeOrganisation(host.server)).group)
      for (const authorization of [undefined, bearer(await host.world.accessToken(stranger.uid)), basic('_token', 'wrong')]) {
        const answer = await host.world.ask({ path: host.blob, authorization })
        expect([401, 403]).toContain(answer.status)
        expect(answer.headers.location).toBeUndefined()
      }
    })

    test('the host reads image details itself', async () => {
      const repo = host.server.running.engine.cache.tables.table('Repo').child(host.organisation.group, 'app')?.uid ?? ''
      const asking = { repoUid: repo, digest: String((await host.client.send('HEAD', `/v2/${host.image}/manifests/v1`)).headers['docker-content-digest']) }
      expect(await host.server.rest.call('GetArchitectures', asking, { token: host.organisation.token })).toMatchObject({ body: { architectures: ['amd64'] } })
    })

    test('redirected pulls are reported as events', async () => {
      const reported = async (): Promise<number> => {
        const { entries } = await host.server.running.engine.store.range({ prefix: 'x/outbox/', limit: 10_000 }, AbortSignal.timeout(60_000))
        return entries.filter(({ value }) => [host.digest, 'registry.pull'].every((text) => Buffer.from(value).includes(text))).length
      }
      const before = await reported()
      expect(await host.client.send('GET', host.blob)).toMatchObject({ status: 307 })
      await expect.poll(reported).toBeGreaterThan(before)
    })
  })

  describeWithPart('crane', 'with `pass`, crane', () => {
    test('pulls, and sends the storage no token', async () => {
      const host = await hostOf({ TAPROOT_REGISTRY_UPSTREAM_REDIRECTS: 'pass' })
      storage.requests.length = 0
      const reference = `127.0.0.1:${host.server.config.registry.port}/${host.image}:v1`
      const env = { DOCKER_CONFIG: directory }
      expect(await crane(['auth', 'login', reference.split('/')[0] ?? '', '-u', '_token', '--password-stdin'], { env, stdin: host.token })).toMatchObject({
        code: 0,
      })
      expect(await crane(['pull', reference, join(directory, 'pulled.tar')], { env })).toMatchObject({ code: 0 })
      expect(asked(host.digest)).toHaveLength(1)
      for (const { headers } of storage.requests) expect(headers.authorization).toBeUndefined()
      await host.stop()
    })
  })
})
