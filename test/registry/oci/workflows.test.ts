import { randomBytes } from 'node:crypto'
import { Readable } from 'node:stream'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { digestOf } from '../../../src/base/digest.ts'
import { findRepository } from '../../../src/registry/records/repo-paths.ts'
import { imageType, indexType, descriptorOf, locationOf, manifestOf, withQuery, type OciClient, type TestManifest } from './oci-client.ts'
import { describeOnUpstreams } from './oci-upstreams.ts'
import { startTestHost, type TestHost } from './test-host.ts'

const nowhere = digestOf(Buffer.from('nothing has this digest'))

describeOnUpstreams('the workflows of the distribution specification', (upstream) => {
  let host: TestHost
  let client: OciClient

  beforeAll(async () => {
    host = await startTestHost({ upstream })
    client = host.client
  })

  afterAll(() => host?.stop())

  describe('pull', () => {
    test('the registry host shows at its base path that this is a registry', async () => {
      const answer = await client.send('GET', '/v2/')
      expect([answer.status, answer.headers['docker-distribution-api-version']]).toEqual([200, 'registry/2.0'])
    })

    test('the registry host returns a manifest by tag and by digest, byte for byte, and without its body for HEAD', async () => {
      const repository = host.freshRepository()
      const manifest = await client.pushImage(repository, 'v1')
      for (const reference of ['v1', manifest.digest]) {
        const path = `/v2/${repository}/manifests/${reference}`
        const got = await client.send('GET', path, { headers: { accept: imageType } })
        expect(got.status).toBe(200)
        expect(got.body.equals(manifest.bytes)).toBe(true)
        expect(got.headers).toMatchObject({
          'content-type': imageType,
          'docker-content-digest': manifest.digest,
          'content-length': String(manifest.bytes.length),
        })
        const head = await client.send('HEAD', path)
        const { date: _, 'x-request-id': __, ...of } = head.headers
        expect([head.status, head.body.length]).toEqual([200, 0])
        expect(got.headers).toMatchObject(of)
      }
    })

    test('the registry host returns the stored manifest, whatever types the client accepts', async () => {
      const repository = host.freshRepository()
      await client.pushImage(repository, 'v1')
      const answer = await client.send('GET', `/v2/${repository}/manifests/v1`, { headers: { accept: 'application/vnd.docker.distribution.manifest.v1+json' } })
      expect([answer.status, answer.headers['content-type']]).toEqual([200, imageType])
    })

    test('the registry host returns 304 to a client that has the manifest', async () => {
      const repository = host.freshRepository()
      const { digest } = await client.pushImage(repository, 'v1')
      const path = `/v2/${repository}/manifests/v1`
      const known = await client.send('GET', path, { headers: { 'if-none-match': `"${digest}"` } })
      expect([known.status, known.body.length, known.headers['etag']]).toEqual([304, 0, `"${digest}"`])
      expect((await client.send('GET', path, { headers: { 'if-none-match': `"${nowhere}"` } })).status).toBe(200)
    })

    test('the registry host returns a blob whole, and in ranges', async () => {
      const repository = host.freshRepository()
      const bytes = randomBytes(300_000)
      const digest = await client.putBlob(repository, bytes)
      const path = `/v2/${repository}/blobs/${digest}`
      const got = await client.send('GET', path)
      expect([got.status, got.body.equals(bytes), got.headers['docker-content-digest'], got.headers['accept-ranges']]).toEqual([200, true, digest, 'bytes'])
      const head = await client.send('HEAD', path)
      expect([head.status, head.headers['content-length'], head.headers['docker-content-digest']]).toEqual([200, '300000', digest])
      const part = await client.send('GET', path, { headers: { range: 'bytes=1000-1999' } })
      expect([part.status, part.headers['content-range'], part.body.equals(bytes.subarray(1000, 2000))]).toEqual([206, 'bytes 1000-1999/300000', true])
      const rest = await client.send('GET', path, { headers: { range: 'bytes=299990-', 'if-range': `"${digest}"` } })
      expect([rest.status, rest.body.equals(bytes.subarray(299_990))]).toEqual([206, true])
      expect((await client.send('GET', path, { headers: { range: 'bytes=0-1', 'if-range': '"other"' } })).status).toBe(200)
      const beyond = await client.send('GET', path, { headers: { range: 'bytes=300000-' } })
      expect([beyond.status, beyond.headers['content-range']]).toEqual([416, 'bytes */300000'])
    })

    test('the registry host returns an empty blob', async () => {
      const repository = host.freshRepository()
      const digest = await client.putBlob(repository, Buffer.alloc(0))
      const got = await client.send('GET', `/v2/${repository}/blobs/${digest}`)
      expect([got.status, got.body.length, got.headers['content-length']]).toEqual([200, 0, '0'])
    })

    test('the registry host returns 404 in the registry format for missing content, for GET and HEAD', async () => {
      const repository = host.freshRepository()
      await client.putBlob(repository, Buffer.from('x'))
      const rows: [string, string][] = [
        [`/v2/${repository}/manifests/none`, 'MANIFEST_UNKNOWN'],
        [`/v2/${repository}/manifests/.none`, 'MANIFEST_UNKNOWN'],
        [`/v2/${repository}/manifests/${nowhere}`, 'MANIFEST_UNKNOWN'],
        [`/v2/${repository}/blobs/${nowhere}`, 'BLOB_UNKNOWN'],
        [`/v2/${repository}-else/manifests/none`, 'NAME_UNKNOWN'],
        [`/v2/${repository}-else/blobs/${nowhere}`, 'NAME_UNKNOWN'],
        [`/v2/${repository}-else/tags/list`, 'NAME_UNKNOWN'],
      ]
      for (const [path, code] of rows) {
        const got = await client.send('GET', path)
        expect([path, got.status, got.codes]).toEqual([path, 404, [code]])
        const head = await client.send('HEAD', path)
        expect([head.status, head.body.length]).toEqual([404, 0])
      }
    })
  })

  describe('push', () => {
    test('the registry host accepts a blob in one piece by POST, then PUT', async () => {
      const repository = host.freshRepository()
      const bytes = randomBytes(5000)
      const digest = digestOf(bytes)
      const started = await client.send('POST', `/v2/${repository}/blobs/uploads/`)
      expect([started.status, started.headers['range'], started.headers['content-length']]).toEqual([202, '0-0', '0'])
      expect(started.headers.location).toMatch(new RegExp(`^/v2/${repository}/blobs/uploads/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\\?_state=`))
      const done = await client.send('PUT', withQuery(locationOf(started), `digest=${digest}`), { body: bytes })
      expect([done.status, done.headers.location, done.headers['docker-content-digest']]).toEqual([201, `/v2/${repository}/blobs/${digest}`, digest])
      expect((await client.send('GET', locationOf(done))).body.equals(bytes)).toBe(true)
    })

    test('the registry host accepts a blob in one POST request', async () => {
      const repository = host.freshRepository()
      const bytes = randomBytes(5000)
      const done = await client.send('POST', `/v2/${repository}/blobs/uploads/?digest=${digestOf(bytes)}`, { body: bytes })
      expect([done.status, done.headers.location]).toEqual([201, `/v2/${repository}/blobs/${digestOf(bytes)}`])
      expect((await client.send('GET', locationOf(done))).body.equals(bytes)).toBe(true)
    })

    test('the registry host accepts chunks, each at the end of the last', async () => {
      const repository = host.freshRepository()
      const bytes = randomBytes(3000)
      let at = await client.send('POST', `/v2/${repository}/blobs/uploads/`)
      for (const [first, last] of [
        [0, 999],
        [1000, 1999],
      ] as const) {
        const sent = { body: bytes.subarray(first, last + 1), headers: { 'content-range': `${first}-${last}` } }
        at = await client.send('PATCH', locationOf(at), sent)
        expect([at.status, at.headers['range']]).toEqual([202, `0-${last}`])
      }
      const last = { body: bytes.subarray(2000), headers: { 'content-range': '2000-2999' } }
      const done = await client.send('PUT', withQuery(locationOf(at), `digest=${digestOf(bytes)}`), last)
      expect(done.status).toBe(201)
      expect((await client.send('GET', locationOf(done))).body.equals(bytes)).toBe(true)
    })

    test('the registry host accepts a stream of unknown length, finished without a body', async () => {
      const repository = host.freshRepository()
      const bytes = randomBytes(200_000)
      const started = await client.send('POST', `/v2/${repository}/blobs/uploads/`)
      const sent = await client.send('PATCH', locationOf(started), { body: Readable.from([bytes.subarray(0, 1), bytes.subarray(1)]) })
      expect([sent.status, sent.headers['range']]).toEqual([202, '0-199999'])
      expect((await client.send('PUT', withQuery(locationOf(sent), `digest=${digestOf(bytes)}`))).status).toBe(201)
    })

    test('the registry host refuses a chunk out of order with 416 and the next offset', async () => {
      const repository = host.freshRepository()
      const bytes = randomBytes(3000)
      const started = await client.send('POST', `/v2/${repository}/blobs/uploads/`)
      const first = await client.send('PATCH', locationOf(started), { body: bytes.subarray(0, 1000), headers: { 'content-range': '0-999' } })
      const early = await client.send('PATCH', locationOf(first), { body: bytes.subarray(2000), headers: { 'content-range': '2000-2999' } })
      expect([early.status, early.codes, early.headers['range']]).toEqual([416, ['BLOB_UPLOAD_INVALID'], '0-999'])
      const rest = { body: bytes.subarray(1000), headers: { 'content-range': '1000-2999' } }
      const done = await client.send('PUT', withQuery(locationOf(early), `digest=${digestOf(bytes)}`), rest)
      expect(done.status).toBe(201)
    })

    test('the registry host shows the progress of an upload, which can be continued and cancelled', async () => {
      const repository = host.freshRepository()
      const started = await client.send('POST', `/v2/${repository}/blobs/uploads/`)
      const sent = await client.send('PATCH', locationOf(started), { body: randomBytes(10) })
      const status = await client.send('GET', locationOf(sent))
      expect([status.status, status.headers['range'], status.headers['docker-upload-uuid']]).toEqual([204, '0-9', started.headers['docker-upload-uuid']])
      expect((await client.send('DELETE', locationOf(status))).status).toBe(204)
      for (const method of ['GET', 'PATCH', 'PUT']) {
        const gone = await client.send(method, withQuery(locationOf(status), `digest=${nowhere}`))
        expect([method, gone.status, gone.codes]).toEqual([method, 404, ['BLOB_UPLOAD_UNKNOWN']])
      }
    })

    test('the registry host never shows bytes that do not match the digest', async () => {
      const repository = host.freshRepository()
      const started = await client.send('POST', `/v2/${repository}/blobs/uploads/`)
      const answer = await client.send('PUT', withQuery(locationOf(started), `digest=${nowhere}`), { body: 'other bytes' })
      expect([answer.status, answer.codes]).toEqual([400, ['DIGEST_INVALID']])
      expect((await client.send('HEAD', `/v2/${repository}/blobs/${nowhere}`)).status).toBe(404)
    })

    test('the registry host refuses contradictory chunks, and stores nothing of them', async () => {
      const repository = host.freshRepository()
      const started = await client.send('POST', `/v2/${repository}/blobs/uploads/`)
      const wrong = await client.send('PATCH', locationOf(started), { body: '12345', headers: { 'content-range': '0-9' } })
      expect([wrong.status, wrong.codes]).toEqual([400, ['SIZE_INVALID']])
      const none = await client.send('PATCH', locationOf(started), { body: '12345', headers: { 'content-range': 'everything' } })
      expect([none.status, none.codes]).toEqual([416, ['BLOB_UPLOAD_INVALID']])
      expect((await client.send('GET', locationOf(started))).headers['range']).toBe('0-0')
      for (const digest of ['', 'digest=x', 'digest=md5:00'])
        expect((await client.send('PUT', withQuery(locationOf(started), digest))).codes).toEqual(['DIGEST_INVALID'])
    })

    test('the registry host mounts a blob from a repo that the caller may pull from; otherwise starts an upload', async () => {
      const [from, to] = [host.freshRepository(), host.freshRepository()]
      const bytes = randomBytes(1000)
      const digest = await client.putBlob(from, bytes)
      const done = await client.send('POST', `/v2/${to}/blobs/uploads/?mount=${digest}&from=${from}`)
      expect([done.status, done.headers.location, done.headers['docker-content-digest']]).toEqual([201, `/v2/${to}/blobs/${digest}`, digest])
      expect((await client.send('GET', locationOf(done))).body.equals(bytes)).toBe(true)
      expect((await client.send('POST', `/v2/${from}/blobs/uploads/?mount=${digest}&from=${from}`)).status).toBe(201)
      for (const query of [
        `mount=${nowhere}&from=${from}`,
        `mount=${digest}`,
        `mount=${digest}&from=${from}-else`,
        `mount=${digest}&from=../${from}`,
        `mount=x&from=${from}`,
      ]) {
        const other = host.freshRepository()
        const started = await client.send('POST', `/v2/${other}/blobs/uploads/?${query}`)
        expect([query, started.status]).toEqual([query, 202])
        expect((await client.send('HEAD', `/v2/${other}/blobs/${digest}`)).status).toBe(404)
      }
    })

    test('the registry host accepts a manifest by tag, and by its sha256 and sha512 digests', async () => {
      const repository = host.freshRepository()
      const manifest = await client.image(repository)
      const long = digestOf(manifest.bytes, 'sha512')
      for (const [reference, digest] of [
        ['v1', manifest.digest],
        [manifest.digest, manifest.digest],
        [long, long],
      ] as const) {
        const done = await client.putManifest(repository, reference, manifest)
        expect([done.status, done.headers.location, done.headers['docker-content-digest']]).toEqual([201, `/v2/${repository}/manifests/${digest}`, digest])
        expect((await client.send('GET', locationOf(done))).body.equals(manifest.bytes)).toBe(true)
      }
    })

    test('the registry host accepts blobs under sha512, and an image of them', async () => {
      const repository = host.freshRepository()
      const [config, layer] = [Buffer.from('{"architecture":"riscv64"}'), randomBytes(100)]
      const digests = [await client.putBlob(repository, config, 'sha512'), await client.putBlob(repository, layer, 'sha512')] as const
      const manifest = manifestOf({
        schemaVersion: 2,
        mediaType: imageType,
        config: { mediaType: 'application/vnd.oci.image.config.v1+json', digest: digests[0], size: config.length },
        layers: [{ mediaType: 'application/vnd.oci.image.layer.v1.tar', digest: digests[1], size: layer.length }],
      })
      expect((await client.putManifest(repository, 'v1', manifest)).status).toBe(201)
      expect((await client.send('GET', `/v2/${repository}/blobs/${digests[1]}`)).body.equals(layer)).toBe(true)
    })

    test('the registry host accepts an index of images, and an empty index', async () => {
      const repository = host.freshRepository()
      const children = [await client.pushImage(repository, 'a'), await client.pushImage(repository, 'b')]
      const index = manifestOf({ schemaVersion: 2, mediaType: indexType, manifests: children.map(descriptorOf) })
      expect((await client.putManifest(repository, 'all', index)).status).toBe(201)
      expect((await client.send('GET', `/v2/${repository}/manifests/all`)).headers['content-type']).toBe(indexType)
      const empty = manifestOf({ schemaVersion: 2, mediaType: indexType, manifests: [] })
      expect((await client.putManifest(repository, 'none', empty)).status).toBe(201)
      const first = host.freshRepository()
      expect((await client.putManifest(first, 'none', empty)).status).toBe(201)
    })

    test('the registry host accepts a manifest of nearly 4 MiB, and refuses a larger one', async () => {
      const repository = host.freshRepository()
      const { bytes, mediaType } = await client.image(repository)
      const padded = Buffer.alloc(4 * 1024 * 1024, 32)
      bytes.copy(padded)
      const large = { bytes: padded, mediaType, digest: digestOf(padded) }
      expect((await client.putManifest(repository, 'large', large)).status).toBe(201)
      expect((await client.send('GET', `/v2/${repository}/manifests/large`)).body.equals(padded)).toBe(true)
      const larger = { ...large, bytes: Buffer.concat([padded, Buffer.from(' ')]) }
      expect(await client.putManifest(repository, 'larger', larger)).toMatchObject({ status: 413, codes: ['SIZE_INVALID'] })
    })

    test('the registry host refuses a manifest with missing parts, and creates no repo for it', async () => {
      const repository = host.freshRepository()
      const elsewhere = host.freshRepository()
      const manifest = await client.image(elsewhere)
      const refused = await client.putManifest(repository, 'v1', manifest)
      expect([refused.status, refused.codes]).toEqual([404, ['MANIFEST_BLOB_UNKNOWN']])
      expect((await client.send('GET', `/v2/${repository}/tags/list`)).codes).toEqual(['NAME_UNKNOWN'])
      await client.putBlob(repository, Buffer.from('x'))
      expect((await client.putManifest(repository, 'v1', manifest)).codes).toEqual(['MANIFEST_BLOB_UNKNOWN'])
      const index = manifestOf({ schemaVersion: 2, mediaType: indexType, manifests: [descriptorOf(manifest)] })
      expect((await client.putManifest(repository, 'v1', index)).codes).toEqual(['MANIFEST_BLOB_UNKNOWN'])
    })

    test('the registry host leaves no bytes of a refused manifest upstream', async () => {
      const repository = host.freshRepository()
      const image = await client.image(repository)
      const content = JSON.parse(image.bytes.toString()) as { layers: object[] } // a cast of what was made above
      const layers = Array.from({ length: 20_000 }, (_, at) => ({ mediaType: 'a/b', digest: `sha256:${at.toString(16).padStart(64, '0')}`, size: 1 }))
      const rows: [TestManifest, number, string][] = [
        [manifestOf({ ...content, layers: [...content.layers, ...layers.slice(0, 1)] }), 404, 'MANIFEST_BLOB_UNKNOWN'],
        [manifestOf({ schemaVersion: 2, mediaType: indexType, manifests: [descriptorOf(image)] }), 404, 'MANIFEST_BLOB_UNKNOWN'],
        [manifestOf({ ...content, layers }), 400, 'MANIFEST_INVALID'],
      ]
      const target = findRepository(host.services.cache.tables, repository)
      if (target?.kind !== 'repo') throw new Error('the repo was made by the image')
      const { uid } = target
      for (const [manifest, status, code] of rows) {
        for (const reference of ['v1', manifest.digest]) {
          const answer = await client.putManifest(repository, reference, manifest)
          expect([answer.status, answer.codes]).toEqual([status, [code]])
        }
        expect(await host.upstream.hasManifest(uid, manifest.digest, AbortSignal.timeout(60_000))).toBe(false)
      }
      const most = manifestOf({ ...content, annotations: { a: 'x'.repeat(500_000) } })
      expect((await client.putManifest(repository, 'v1', most)).status).toBe(201)
    })

    test('the registry host names the fault of a manifest in the error', async () => {
      const repository = host.freshRepository()
      const manifest = await client.image(repository)
      const rows: [string, Promise<{ status: number; codes: readonly string[] }>, number, string][] = [
        ['other bytes than the digest names', client.putManifest(repository, nowhere, manifest), 400, 'DIGEST_INVALID'],
        ['another media type', client.putManifest(repository, 'v1', { ...manifest, mediaType: indexType }), 400, 'MANIFEST_INVALID'],
        ['no JSON', client.putManifest(repository, 'v1', { ...manifest, bytes: Buffer.from('{') }), 400, 'MANIFEST_INVALID'],
        ['nothing', client.putManifest(repository, 'v1', { ...manifest, bytes: Buffer.alloc(0) }), 400, 'MANIFEST_INVALID'],
        ['a tag that is none', client.putManifest(repository, '.v1', manifest), 400, 'MANIFEST_INVALID'],
      ]
      for (const [name, answer, status, code] of rows) expect([name, (await answer).status, (await answer).codes]).toEqual([name, status, [code]])
    })
  })
})
