import { randomBytes } from 'node:crypto'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { systemClock } from '../../../src/server/runtime.ts'
import { digestOf } from '../../../src/base/digest.ts'
import { createHttpUpstream } from '../../../src/registry/upstream/http/http-upstream.ts'
import { UpstreamError, type Upstream, type UpstreamErrorKind } from '../../../src/registry/upstream/upstream.ts'
import { startRegistry, type DistributionRegistry } from '../../support/parts/registry.ts'
import { describeWithPart } from '../../support/parts/require-part.ts'
import { failNext } from '../../support/fail-next.ts'
import { blobPrefix } from '../../../src/registry/records/blobs.ts'
import { StoreError } from '../../../src/store/store.ts'
import { until } from '../../store/store-harness.ts'
import { descriptorOf, indexType, locationOf, manifestOf, withQuery, type OciClient } from './oci-client.ts'
import { startDiskUpstream, startTestHost, type TestHost } from './test-host.ts'

describeWithPart('registry', 'an upstream with faults', () => {
  let host: TestHost
  let client: OciClient
  let registry: DistributionRegistry

  beforeAll(async () => {
    host = await startTestHost({
      upstream: async () => {
        registry = await startRegistry()
        const upstream = createHttpUpstream({ url: registry.url, clock: systemClock, timeouts: { headersMs: 2_000 } })
        const stop = async (): Promise<void> => {
          await upstream.close()
          await registry.stop()
        }
        return { upstream, stop }
      },
    })
    client = host.client
  })

  afterAll(() => host?.stop())

  test('an upstream that goes away leaves names, lists and cached content; other content is 503 with a clear message until it returns', async () => {
    const repository = host.freshRepository()
    const cached = await client.pushImage(repository, 'hot')
    const cold = await client.pushImage(repository, 'cold')
    await client.send('GET', `/v2/${repository}/manifests/hot`)
    const upload = await client.send('POST', `/v2/${repository}/blobs/uploads/`)
    const blob = await client.putBlob(repository, randomBytes(1000))
    await registry.kill()
    for (const path of ['tags/list', `referrers/${cached.digest}`, 'manifests/hot', `manifests/${cached.digest}`]) {
      expect([path, (await client.send('GET', `/v2/${repository}/${path}`)).status]).toEqual([path, 200])
    }
    expect((await client.send('HEAD', `/v2/${repository}/blobs/${blob}`)).status).toBe(200)
    const refused = [
      await client.send('GET', `/v2/${repository}/manifests/cold`),
      await client.send('GET', `/v2/${repository}/blobs/${blob}`),
      await client.send('POST', `/v2/${repository}/blobs/uploads/`),
      await client.send('PATCH', locationOf(upload), { body: 'bytes' }),
      await client.putManifest(repository, 'hot', cold),
    ]
    for (const answer of refused) {
      expect([answer.status, answer.codes, answer.headers['retry-after']]).toEqual([503, ['UNAVAILABLE'], '5'])
      expect(answer.body.toString()).toContain('unreachable')
    }
    expect((await client.send('DELETE', `/v2/${repository}/manifests/hot`)).status).toBe(202)
    await registry.restart()
    await until(async () => (await client.send('GET', `/v2/${repository}/blobs/${blob}`)).status === 200)
    expect((await client.send('GET', `/v2/${repository}/manifests/cold`)).body.equals(cold.bytes)).toBe(true)
    expect((await client.send('GET', `/v2/${repository}/manifests/hot`)).status).toBe(404)
    await client.pushImage(repository, 'hot')
  })

  test('an upstream that looks up the children of an index, like zot, lacks them under sha512: the refusal explains it', async () => {
    const repository = host.freshRepository()
    const image = await client.image(repository)
    const long = digestOf(image.bytes, 'sha512')
    expect((await client.putManifest(repository, long, image)).status).toBe(201)
    const index = manifestOf({ schemaVersion: 2, mediaType: indexType, manifests: [{ ...descriptorOf(image), digest: long }] })
    const refused = await client.putManifest(repository, `${digestOf(index.bytes, 'sha512')}?tag=index`, index)
    expect([refused.status, refused.codes]).toEqual([400, ['MANIFEST_INVALID']])
    expect(refused.body.toString()).toContain(`an index that names ${long}: push its images, and the index, with sha256 digests`)
    expect((await client.send('GET', `/v2/${repository}/manifests/index`)).status).toBe(404)
    expect((await client.putManifest(repository, image.digest, image)).status).toBe(201)
    expect(
      (await client.putManifest(repository, 'index', manifestOf({ schemaVersion: 2, mediaType: indexType, manifests: [descriptorOf(image)] }))).status,
    ).toBe(201)
  })

  test('an upstream that does not answer causes 503 too', async () => {
    const repository = host.freshRepository()
    const blob = await client.putBlob(repository, randomBytes(1000))
    await registry.pause()
    try {
      const answer = await client.send('GET', `/v2/${repository}/blobs/${blob}`)
      expect([answer.status, answer.codes]).toEqual([503, ['UNAVAILABLE']])
    } finally {
      registry.resume()
    }
    expect((await client.send('GET', `/v2/${repository}/blobs/${blob}`)).status).toBe(200)
  })
})

test('a manifest changed by the upstream is a logged server error, not a client error', async () => {
  const host = await startTestHost({ upstream: startDiskUpstream, wrap: changingManifests })
  try {
    const repository = host.freshRepository()
    const image = await host.client.pushImage(repository, 'v1')
    const answer = await host.client.send('GET', `/v2/${repository}/manifests/${image.digest}`)
    expect([answer.status, answer.codes]).toEqual([500, ['UNKNOWN']])
    expect(answer.body.toString()).toContain('bytes that do not match the digest')
    const path = `/v2/${repository}/manifests/${image.digest}`
    const line = host.server.logs.find(({ message }) => message === 'a request to the registry failed')
    expect(line).toMatchObject({ level: 'error', fields: { path, error: 'UpstreamError: other bytes: Error: a bad sector' } })
  } finally {
    await host.stop()
  }
})

test('a client that disconnects while its blob is recorded causes no logged error', async () => {
  const host = await startTestHost({ upstream: startDiskUpstream })
  try {
    const repository = host.freshRepository()
    await host.client.pushImage(repository, 'v1')
    const [begun, ended] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
    const outcomeUnknown = async (signal: AbortSignal): Promise<never> => {
      begun.resolve()
      await until(() => signal.aborted)
      setImmediate(ended.resolve)
      throw new StoreError('indeterminate', 'the caller went away', signal.reason)
    }
    failNext(host.server, (_, [, signal]) => outcomeUnknown(signal), blobPrefix)
    const bytes = randomBytes(1000)
    const request = host.client.open('POST', `/v2/${repository}/blobs/uploads/?digest=${digestOf(bytes)}`, { 'content-length': '1000' })
    request.on('error', () => undefined)
    request.end(bytes)
    await begun.promise
    request.destroy()
    await ended.promise
    expect((await host.client.send('GET', `/v2/${repository}/tags/list`)).status).toBe(200)
    expect(host.server.logs.filter(({ message }) => message === 'a request to the registry failed')).toEqual([])
  } finally {
    await host.stop()
  }
})

/** Returns changed manifests, like a registry with corrupt storage. */
function changingManifests(source: Upstream): Upstream {
  return new Proxy(source, {
    get(target, name) {
      if (name === 'getManifest') return () => Promise.reject(new UpstreamError('corrupt', 'other bytes', new Error('a bad sector')))
      const method = target[name as keyof Upstream] // a cast: nothing else is asked for
      return (...call: unknown[]) => Reflect.apply(method, target, call) as unknown
    },
  })
}

/** The next failure of the upstream. */
let failure: UpstreamErrorKind | undefined

function failing(source: Upstream): Upstream {
  return new Proxy(source, {
    get(target, name) {
      const method = target[name as keyof Upstream] // a cast: nothing else is asked for
      return (...call: unknown[]) => {
        if (failure !== undefined && name !== 'close') return Promise.reject(new UpstreamError(failure, 'made to fail'))
        return Reflect.apply(method, target, call) as unknown
      }
    },
  })
}

test.each<[UpstreamErrorKind, number, string]>([
  ['unavailable', 503, 'UNAVAILABLE'],
  ['exhausted', 503, 'UNAVAILABLE'],
  ['refused', 500, 'UNKNOWN'],
  ['corrupt', 500, 'UNKNOWN'],
  ['upload_unknown', 404, 'BLOB_UPLOAD_UNKNOWN'],
  ['digest_mismatch', 400, 'DIGEST_INVALID'],
])('an upstream that fails with %s causes %i %s, and no partial content is visible', async (kind, status, code) => {
  const host = await startTestHost({ upstream: startDiskUpstream, wrap: failing })
  try {
    const { client } = host
    const repository = host.freshRepository()
    const bytes = randomBytes(10)
    const started = await client.send('POST', `/v2/${repository}/blobs/uploads/`)
    failure = kind
    const answer = await client.send('PUT', withQuery(locationOf(started), 'digest=sha256:' + 'a'.repeat(64)), { body: bytes })
    expect([answer.status, answer.codes]).toEqual([status, [code]])
    failure = undefined
    expect((await client.send('HEAD', `/v2/${repository}/blobs/sha256:${'a'.repeat(64)}`)).status).toBe(404)
  } finally {
    failure = undefined
    await host.stop()
  }
})
