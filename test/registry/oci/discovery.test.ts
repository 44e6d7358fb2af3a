import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { digestOf } from '../../../src/base/digest.ts'
import { makeOrganisation } from '../../support/test-server.ts'
import { descriptorOf, indexType, manifestOf, type Answer, type OciClient, type TestManifest } from './oci-client.ts'
import { describeOnUpstreams } from './oci-upstreams.ts'
import { startTestHost, type TestHost } from './test-host.ts'

const nowhere = digestOf(Buffer.from('nothing has this digest'))

function jsonOf(answer: Answer): Record<string, unknown> {
  return JSON.parse(answer.body.toString()) as Record<string, unknown> // a cast: objects are what is answered
}

/** The URL of the next page in `Link`. */
function nextOf(answer: Answer): string | undefined {
  return /^<([^>]+)>; rel="next"$/.exec(String(answer.headers['link']))?.[1]
}

describeOnUpstreams('content discovery and management', (upstream) => {
  let host: TestHost
  let client: OciClient

  beforeAll(async () => {
    host = await startTestHost({ upstream })
    client = host.client
  })

  afterAll(() => host?.stop())

  async function attach(repository: string, subject: TestManifest, artifactType: string, annotations: Record<string, string> = {}): Promise<TestManifest> {
    const manifest = await client.image(repository, { artifactType, subject: descriptorOf(subject), annotations })
    const done = await client.putManifest(repository, manifest.digest, manifest)
    expect([done.status, done.headers['oci-subject']]).toEqual([201, subject.digest])
    return manifest
  }

  describe('tags', () => {
    test('tags are listed in order, in pages of n, after last', async () => {
      const repository = host.freshRepository()
      const manifest = await client.pushImage(repository, 'b')
      for (const tag of ['a', 'C', 'd', 'D']) await client.putManifest(repository, tag, manifest)
      const path = `/v2/${repository}/tags/list`
      const all = await client.send('GET', path)
      expect([all.headers['content-type'], jsonOf(all), nextOf(all)]).toEqual([
        'application/json',
        { name: repository, tags: ['a', 'b', 'C', 'D', 'd'] },
        undefined,
      ])
      const found: unknown[] = []
      for (let next: string | undefined = `${path}?n=2`; next !== undefined;) {
        const page = await client.send('GET', next)
        found.push(jsonOf(page)['tags'])
        next = nextOf(page)
      }
      expect(found).toEqual([['a', 'b'], ['C', 'D'], ['d']])
      expect(jsonOf(await client.send('GET', `${path}?last=C`))['tags']).toEqual(['D', 'd'])
      const none = await client.send('GET', `${path}?n=0`)
      expect([jsonOf(none)['tags'], nextOf(none)]).toEqual([[], undefined])
      expect((await client.send('GET', `${path}?n=-1`)).status).toBe(400)
      expect((await client.send('GET', `${path}?last=../x`)).status).toBe(400)
    })

    test('tags of an empty repo are an empty list', async () => {
      const repository = host.freshRepository()
      await client.putBlob(repository, Buffer.from('x'))
      expect(jsonOf(await client.send('GET', `/v2/${repository}/tags/list`))).toEqual({ name: repository, tags: [] })
    })
  })

  describe('referrers', () => {
    test('referrers are an index of manifests with that subject, filtered by artifact type on request', async () => {
      const repository = host.freshRepository()
      const subject = await client.pushImage(repository, 'v1')
      const sbom = await attach(repository, subject, 'application/vnd.example.sbom', { 'org.example': 'one' })
      const signature = await attach(repository, subject, 'application/vnd.example.signature')
      const all = await client.send('GET', `/v2/${repository}/referrers/${subject.digest}`)
      expect([all.status, all.headers['content-type'], all.headers['oci-filters-applied']]).toEqual([200, indexType, undefined])
      const index = jsonOf(all)
      expect(index).toMatchObject({ schemaVersion: 2, mediaType: indexType })
      const expected = [
        { ...descriptorOf(sbom), artifactType: 'application/vnd.example.sbom', annotations: { 'org.example': 'one' } },
        { ...descriptorOf(signature), artifactType: 'application/vnd.example.signature' },
      ]
      expect(index['manifests']).toHaveLength(2)
      expect(index['manifests']).toEqual(expect.arrayContaining(expected))
      const some = await client.send('GET', `/v2/${repository}/referrers/${subject.digest}?artifactType=application/vnd.example.signature`)
      expect([some.headers['oci-filters-applied'], jsonOf(some)['manifests']]).toEqual(['artifactType', [expected[1]]])
    })

    test('referrers of an unknown digest are empty, and a malformed digest is refused', async () => {
      const repository = host.freshRepository()
      await client.pushImage(repository, 'v1')
      const none = await client.send('GET', `/v2/${repository}/referrers/${nowhere}`)
      expect([none.status, jsonOf(none)['manifests']]).toEqual([200, []])
      expect((await client.send('GET', `/v2/${repository}/referrers/sha256:x`)).status).toBe(400)
    })

    test('referrers may precede their subject, or name it by sha512; without an artifact type, that of the config counts', async () => {
      const repository = host.freshRepository()
      const subject = await client.image(repository)
      const long = { ...subject, digest: digestOf(subject.bytes, 'sha512') }
      for (const named of [subject, long]) {
        const manifest = await client.image(repository, { subject: descriptorOf(named) })
        expect((await client.putManifest(repository, manifest.digest, manifest)).headers['oci-subject']).toBe(named.digest)
        const answer = await client.send('GET', `/v2/${repository}/referrers/${named.digest}`)
        expect(jsonOf(answer)['manifests']).toMatchObject([{ digest: manifest.digest, artifactType: 'application/vnd.oci.image.config.v1+json' }])
      }
    })

    test('referrers of a missing repository are empty, as for an unknown digest', async () => {
      const repository = host.freshRepository()
      await client.putBlob(repository, Buffer.from('x'))
      for (const name of [repository, host.freshRepository()]) {
        const answer = await client.send('GET', `/v2/${name}/referrers/${nowhere}?artifactType=application/vnd.rare`)
        expect([answer.status, answer.headers['content-type'], answer.headers['oci-filters-applied']]).toEqual([200, indexType, 'artifactType'])
        expect(jsonOf(answer)).toEqual({ schemaVersion: 2, mediaType: indexType, manifests: [] })
      }
      const stranger = host.as((await makeOrganisation(host.server)).owner)
      expect((await stranger.send('GET', `/v2/${repository}/referrers/${nowhere}`)).status).toBe(403)
    })

    test('referrers may be indexes, also without an artifact type', async () => {
      const repository = host.freshRepository()
      const subject = await client.pushImage(repository, 'v1')
      const index = manifestOf({ schemaVersion: 2, mediaType: indexType, manifests: [], subject: descriptorOf(subject) })
      await client.putManifest(repository, index.digest, index)
      const found = jsonOf(await client.send('GET', `/v2/${repository}/referrers/${subject.digest}`))['manifests']
      expect(found).toEqual([descriptorOf(index)])
    })

    test('referrers come in pages that are complete and end', async () => {
      const repository = host.freshRepository()
      const subject = await client.pushImage(repository, 'v1')
      const base = JSON.parse(subject.bytes.toString()) as Record<string, unknown> // a cast of what was made above
      const made: string[] = []
      for (let at = 0; at < 230; at++) {
        const artifactType = at % 23 === 0 ? 'application/vnd.rare' : 'application/vnd.common'
        const manifest = manifestOf({ ...base, artifactType, subject: descriptorOf(subject), annotations: { at: String(at) } })
        await client.putManifest(repository, manifest.digest, manifest)
        made.push(manifest.digest)
      }
      const walk = async (path: string): Promise<string[]> => {
        const found: string[] = []
        let pages = 0
        for (let next: string | undefined = path; next !== undefined && pages < 10; pages++) {
          const page = await client.send('GET', next)
          found.push(...(jsonOf(page)['manifests'] as { digest: string }[]).map(({ digest }) => digest)) // a cast of descriptors
          next = nextOf(page)
        }
        return found
      }
      const path = `/v2/${repository}/referrers/${subject.digest}`
      expect((await walk(path)).toSorted()).toEqual(made.toSorted())
      expect(await walk(`${path}?artifactType=application/vnd.rare`)).toHaveLength(10)
      expect((await client.send('GET', `${path}?after=x`)).status).toBe(400)
    })
  })

  describe('deletes', () => {
    test('a delete of a tag keeps the manifest', async () => {
      const repository = host.freshRepository()
      const { digest } = await client.pushImage(repository, 'v1')
      expect((await client.send('DELETE', `/v2/${repository}/manifests/v1`)).status).toBe(202)
      expect((await client.send('GET', `/v2/${repository}/manifests/v1`)).status).toBe(404)
      expect((await client.send('GET', `/v2/${repository}/manifests/${digest}`)).status).toBe(200)
      expect((await client.send('DELETE', `/v2/${repository}/manifests/v1`)).codes).toEqual(['MANIFEST_UNKNOWN'])
    })

    test('a delete of a manifest deletes its tags, and removes it from the referrers', async () => {
      const repository = host.freshRepository()
      const subject = await client.pushImage(repository, 'v1')
      await client.putManifest(repository, 'v2', subject)
      const referrer = await attach(repository, subject, 'application/vnd.example.sbom')
      expect((await client.send('DELETE', `/v2/${repository}/manifests/${referrer.digest}`)).status).toBe(202)
      expect(jsonOf(await client.send('GET', `/v2/${repository}/referrers/${subject.digest}`))['manifests']).toEqual([])
      expect((await client.send('DELETE', `/v2/${repository}/manifests/${subject.digest}`)).status).toBe(202)
      for (const reference of ['v1', 'v2', subject.digest]) expect((await client.send('GET', `/v2/${repository}/manifests/${reference}`)).status).toBe(404)
      expect(jsonOf(await client.send('GET', `/v2/${repository}/tags/list`))['tags']).toEqual([])
      expect((await client.send('DELETE', `/v2/${repository}/manifests/${subject.digest}`)).codes).toEqual(['MANIFEST_UNKNOWN'])
    })

    test('a delete of a manifest is undone by a new push', async () => {
      const repository = host.freshRepository()
      const manifest = await client.pushImage(repository, 'v1')
      await client.send('DELETE', `/v2/${repository}/manifests/${manifest.digest}`)
      const again = await client.putManifest(repository, 'v1', manifest)
      expect(again.status).toBe(201)
      expect((await client.send('GET', `/v2/${repository}/manifests/v1`)).body.equals(manifest.bytes)).toBe(true)
    })

    test('a delete of a blob is accepted', async () => {
      const repository = host.freshRepository()
      const digest = await client.putBlob(repository, Buffer.from('a blob'))
      expect((await client.send('DELETE', `/v2/${repository}/blobs/${digest}`)).status).toBe(202)
      for (const method of ['GET', 'HEAD', 'DELETE']) expect((await client.send(method, `/v2/${repository}/blobs/${digest}`)).status).toBe(404)
      await client.putBlob(repository, Buffer.from('a blob'))
      expect((await client.send('HEAD', `/v2/${repository}/blobs/${digest}`)).status).toBe(200)
    })
  })

  describe('unsupported features are refused:', () => {
    test('the catalogue', async () => {
      expect(await client.send('GET', '/v2/_catalog')).toMatchObject({ status: 405, codes: ['UNSUPPORTED'], headers: { allow: '' } })
    })

    test.each([
      ['POST', 'manifests/v1', 'GET, HEAD, PUT, DELETE'],
      ['PUT', `blobs/${nowhere}`, 'GET, HEAD, DELETE'],
      ['GET', 'blobs/uploads/', 'POST'],
      ['GET', 'blobs/uploads', 'POST'],
      ['DELETE', 'tags/list', 'GET, HEAD'],
      ['PUT', `referrers/${nowhere}`, 'GET, HEAD'],
      ['OPTIONS', 'tags/list', 'GET, HEAD'],
    ])('%s of %s', async (method, path, allow) => {
      const answer = await client.send(method, `/v2/${host.organisation}/app/${path}`)
      expect([answer.status, answer.codes, answer.headers['allow']]).toEqual([405, ['UNSUPPORTED'], allow])
    })
  })

  test('a pull of a deprecated tag shows a warning header', async () => {
    const repository = host.freshRepository()
    const { digest } = await client.pushImage(repository, 'v1')
    await client.pushImage(repository, 'v2')
    const { server, services, owner } = host
    const repo = services.cache.tables.table('Repo').child(host.group, repository.split('/')[1] ?? '')?.uid ?? ''
    const token = await server.tokenFor(owner)
    await server.rest.call('CreateTag', { parent: repo, tag: { name: 'v1', digest, deprecated: true } }, { token })
    const path = `/v2/${repository}/manifests`
    const warning = `299 - "tag v1 of ${repository} is deprecated (end of life)"`
    for (const method of ['GET', 'HEAD']) expect((await client.send(method, `${path}/v1`)).headers['warning']).toBe(warning)
    expect((await client.send('GET', `${path}/v1`, { headers: { 'if-none-match': `"${digest}"` } })).headers['warning']).toBe(warning)
    expect((await client.send('GET', `${path}/${digest}`)).headers['warning']).toBeUndefined()
    expect((await client.send('GET', `${path}/v2`)).headers['warning']).toBeUndefined()
  })

  test('the platform API shows the details of the pushed image', async () => {
    const repository = host.freshRepository()
    const [amd, arm] = [await client.image(repository, {}, 'amd64'), await client.image(repository, {}, 'arm64')]
    for (const each of [amd, arm]) await client.putManifest(repository, each.digest, each)
    const platform = (architecture: string): object => ({ platform: { architecture, os: 'linux' } })
    const children = [
      { ...descriptorOf(arm), ...platform('arm64') },
      { ...descriptorOf(amd), ...platform('amd64') },
    ]
    const index = manifestOf({ schemaVersion: 2, mediaType: indexType, manifests: children })
    await client.putManifest(repository, 'latest', index)
    const { server, owner, services } = host
    const token = await server.tokenFor(owner)
    const repoUid = services.cache.tables.table('Repo').child(host.group, repository.split('/')[1] ?? '')?.uid ?? ''
    const architectures = await server.rest.call('GetArchitectures', { repoUid, digest: index.digest }, { token })
    expect(architectures.body).toEqual({ architectures: ['arm64', 'amd64'] })
    const single = await server.rest.call('GetArchitectures', { repoUid, digest: arm.digest }, { token })
    expect(single.body).toEqual({ architectures: ['arm64'] })
    const size = await server.rest.call('GetSize', { repoUid, digest: index.digest }, { token })
    const { config, layers } = JSON.parse(amd.bytes.toString()) as { config: { size: number }; layers: { size: number }[] } // a cast of what was made above
    expect(size.body).toEqual({ size: String(config.size + (layers[0]?.size ?? 0)), architecture: 'amd64' })
  })

  test('pushed content is never rendered as a page in a browser', async () => {
    const repository = host.freshRepository()
    const blob = await client.putBlob(repository, Buffer.from('<script>'))
    await client.pushImage(repository, 'v1')
    for (const path of ['manifests/v1', `blobs/${blob}`]) {
      const { headers } = await client.send('GET', `/v2/${repository}/${path}`)
      expect(headers).toMatchObject({ 'x-content-type-options': 'nosniff', 'content-security-policy': 'sandbox' })
    }
  })

  test('an unknown request method and a malformed path get an error in the registry format with a request id', async () => {
    const answer = await client.send('GET', '/v2/a/../b/tags/list', { headers: { 'x-request-id': 'mine-1' } })
    expect([answer.status, answer.codes, answer.headers['x-request-id'], answer.headers['content-type']]).toEqual([
      400,
      ['NAME_INVALID'],
      'mine-1',
      'application/json',
    ])
    expect((await client.send('GET', '/v2/')).headers['x-request-id']).toMatch(/^[0-9a-f-]{36}$/)
  })
})
