import { randomBytes } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { fromBinary } from '@bufbuild/protobuf'
import { digestOf } from '../../../src/base/digest.ts'
import { OutboxEventSchema, type OutboxEvent } from '../../../src/gen/taproot/store/v1/envelope_pb.ts'
import { RegistryTrafficSchema } from '../../../src/gen/taproot/store/v1/registry_pb.ts'
import { trustedUid } from '../../../src/base/uid.ts'
import { outboxPrefix } from '../../../src/engine/log/outbox-keys.ts'
import { freshName, makeOrganisation, ok } from '../../support/test-server.ts'
import { locationOf, withQuery, type OciClient } from './oci-client.ts'
import { describeOnUpstreams } from './oci-upstreams.ts'
import { startTestHost, type TestHost } from './test-host.ts'

describeOnUpstreams('content of other tenants', (upstream) => {
  let host: TestHost
  let client: OciClient
  /** The owner of another organisation. */
  let stranger: OciClient
  let theirs: string

  beforeAll(async () => {
    host = await startTestHost({ upstream })
    client = host.client
    const { owner, group } = await makeOrganisation(host.server)
    stranger = host.as(owner)
    theirs = host.services.cache.tables.get('Group', group)?.name ?? ''
  })

  afterAll(() => host?.stop())

  function uidOf(repository: string, group: string = host.group): string {
    return host.services.cache.tables.table('Repo').child(group, repository.split('/')[1] ?? '')?.uid ?? ''
  }

  test('content of other tenants is not served, however it is requested', async () => {
    const [ours, other] = [host.freshRepository(), `${theirs}/app`]
    const bytes = randomBytes(1000)
    const digest = await client.putBlob(ours, bytes)
    const manifest = await client.pushImage(ours, 'v1')
    await stranger.putBlob(other, Buffer.from('x'))
    for (const reference of [manifest.digest, 'v1']) expect((await stranger.send('GET', `/v2/${other}/manifests/${reference}`)).status).toBe(404)
    for (const method of ['GET', 'HEAD', 'DELETE']) expect((await stranger.send(method, `/v2/${other}/blobs/${digest}`)).status).toBe(404)
    expect((await stranger.send('GET', `/v2/${ours}/blobs/${digest}`)).status).toBe(403)
    expect((await stranger.putManifest(other, 'v1', manifest)).codes).toEqual(['MANIFEST_BLOB_UNKNOWN'])
  })

  test('content of other tenants can not be mounted with any spelling', async () => {
    const [ours, other] = [host.freshRepository(), `${theirs}/app`]
    const digest = await client.putBlob(ours, randomBytes(1000))
    const spellings = [
      ours,
      `/${ours}`,
      `${ours}/`,
      `./${ours}`,
      `${theirs}/../${ours}`,
      ours.replace('/', '%2F'),
      ours.toUpperCase(),
      uidOf(ours),
      `${host.group}/app`,
    ]
    for (const from of spellings) {
      const started = await stranger.send('POST', `/v2/${other}/blobs/uploads/?mount=${digest}&from=${encodeURIComponent(from)}`)
      expect([from, started.status]).toEqual([from, 202])
      const done = await stranger.send('PUT', withQuery(locationOf(started), `digest=${digest}`))
      expect([from, done.status, done.codes]).toEqual([from, 400, ['DIGEST_INVALID']])
    }
    expect((await stranger.send('HEAD', `/v2/${other}/blobs/${digest}`)).status).toBe(404)
  })

  test('content of other tenants in uploads can be continued only by their creator, in the same repo', async () => {
    const repository = host.freshRepository()
    const started = await client.send('POST', `/v2/${repository}/blobs/uploads/`)
    const location = locationOf(started)
    const colleague = host.as(await host.member('owner'))
    const other = host.freshRepository()
    await client.putBlob(other, Buffer.from('x'))
    const id = String(started.headers['docker-upload-uuid'])
    const rows: [string, OciClient, string][] = [
      ['by a colleague', colleague, location],
      ['in another repo', client, location.replace(repository, other)],
      ['under another id', client, location.replace(id, id.replaceAll(/\w/g, 'a'))],
      ['with a state that was changed', client, location.slice(0, -2)],
      ['without a state', client, location.slice(0, location.indexOf('?'))],
    ]
    for (const [name, who, path] of rows) {
      const answer = await who.send('PATCH', path, { body: 'bytes' })
      expect([name, answer.status, answer.codes]).toEqual([name, 404, ['BLOB_UPLOAD_UNKNOWN']])
    }
    expect((await client.send('PATCH', location, { body: 'bytes' })).status).toBe(202)
  })

  test('content of other tenants is not shown under a reused name', async () => {
    const repository = host.freshRepository()
    const manifest = await client.pushImage(repository, 'v1')
    const layer = await client.putBlob(repository, randomBytes(100))
    const token = await host.server.tokenFor(host.owner)
    await host.server.rest.call('DeleteRepo', { uid: uidOf(repository) }, { token })
    expect((await client.send('GET', `/v2/${repository}/manifests/v1`)).codes).toEqual(['NAME_UNKNOWN'])
    await client.putBlob(repository, Buffer.from('x'))
    for (const path of ['manifests/v1', `manifests/${manifest.digest}`, `blobs/${layer}`])
      expect((await client.send('GET', `/v2/${repository}/${path}`)).status).toBe(404)
  })

  test('content of other tenants is not shown under a name that moved to another tenant, to either tenant', async () => {
    const [name, renamed] = [freshName('org'), freshName('org')]
    const first = await makeOrganisation(host.server, name)
    const before = host.as(first.owner)
    const manifest = await before.pushImage(`${name}/app`, 'v1')
    const layer = await before.putBlob(`${name}/app`, randomBytes(100))
    ok(await host.server.rest.call('UpdateGroup', { group: { uid: first.group, name: renamed } }, { token: first.token }))
    const second = await makeOrganisation(host.server, name)
    const after = host.as(second.owner)
    expect((await after.send('GET', `/v2/${name}/app/manifests/v1`)).codes).toEqual(['NAME_UNKNOWN'])
    await after.putBlob(`${name}/app`, Buffer.from('x'))
    const paths = ['manifests/v1', `manifests/${manifest.digest}`, `blobs/${layer}`]
    for (const path of paths) {
      expect([path, (await after.send('GET', `/v2/${name}/app/${path}`)).status]).toEqual([path, 404])
      expect([path, (await after.send('GET', `/v2/${renamed}/app/${path}`)).status]).toEqual([path, 403])
      expect([path, (await before.send('GET', `/v2/${name}/app/${path}`)).status]).toEqual([path, 403])
      expect([path, (await before.send('GET', `/v2/${renamed}/app/${path}`)).status]).toEqual([path, 200])
    }
    expect(JSON.parse((await after.send('GET', `/v2/${name}/app/tags/list`)).body.toString())).toMatchObject({ tags: [] })
    expect((await after.putManifest(`${name}/app`, 'v1', manifest)).codes).toEqual(['MANIFEST_BLOB_UNKNOWN'])
    expect((await after.send('POST', `/v2/${name}/app/blobs/uploads/?mount=${layer}&from=${name}%2Fapp`)).status).toBe(202)
  })

  test('content of other tenants is not shown under a name that another tenant has after repo and group were deleted', async () => {
    const name = freshName('org')
    const first = await makeOrganisation(host.server, name)
    const manifest = await host.as(first.owner).pushImage(`${name}/app`, 'v1')
    const layer = await host.as(first.owner).putBlob(`${name}/app`, randomBytes(100))
    ok(await host.server.rest.call('DeleteRepo', { uid: uidOf(`${name}/app`, first.group) }, { token: first.token }))
    ok(await host.server.rest.call('UpdateGroup', { group: { uid: first.group, name: freshName('org') } }, { token: first.token }))
    const second = await makeOrganisation(host.server, name)
    const after = host.as(second.owner)
    await after.putBlob(`${name}/app`, Buffer.from('x'))
    for (const path of ['manifests/v1', `manifests/${manifest.digest}`, `blobs/${layer}`])
      expect([path, (await after.send('GET', `/v2/${name}/app/${path}`)).status]).toEqual([path, 404])
    expect((await after.putManifest(`${name}/app`, 'v1', manifest)).codes).toEqual(['MANIFEST_BLOB_UNKNOWN'])
    expect((await after.send('POST', `/v2/${name}/app/blobs/uploads/?mount=${layer}&from=${name}%2Fapp`)).status).toBe(202)
  })

  describe('each role at the registry host', () => {
    test('a viewer can only pull', async () => {
      const repository = host.freshRepository()
      const manifest = await client.pushImage(repository, 'v1')
      const viewer = host.as(await host.member('registry.pull'))
      for (const path of ['manifests/v1', 'tags/list', `referrers/${manifest.digest}`])
        expect([path, (await viewer.send('GET', `/v2/${repository}/${path}`)).status]).toEqual([path, 200])
      const refused = [
        await viewer.putManifest(repository, 'v2', manifest),
        await viewer.send('POST', `/v2/${repository}/blobs/uploads/`),
        await viewer.send('POST', `/v2/${host.freshRepository()}/blobs/uploads/`),
        await viewer.send('DELETE', `/v2/${repository}/manifests/v1`),
        await viewer.send('DELETE', `/v2/${repository}/blobs/${manifest.digest}`),
      ]
      expect(refused.map(({ status, codes }) => [status, ...codes])).toEqual(Array.from(refused, () => [403, 'DENIED']))
    })

    test('a request without credentials is refused, with or without a body', async () => {
      const anonymous = host.as(undefined)
      expect(await anonymous.send('GET', '/v2/')).toMatchObject({ status: 401, codes: ['UNAUTHORIZED'] })
      expect((await anonymous.send('PUT', `/v2/${host.freshRepository()}/manifests/v1`, { body: Buffer.alloc(100_000) })).status).toBe(401)
    })
  })

  describe('events of the registry host', () => {
    async function eventsOf(repository: string): Promise<OutboxEvent[]> {
      await host.traffic.flush()
      const { entries } = await host.services.store.range({ prefix: outboxPrefix, limit: 10_000 }, AbortSignal.timeout(60_000))
      return entries.map(({ value }) => fromBinary(OutboxEventSchema, value)).filter(({ subject }) => subject === uidOf(repository))
    }

    test('events of the registry host report a push and each pull: action, subject, source and actor', async () => {
      const repository = host.freshRepository()
      const first = await client.pushImage(repository, 'v1')
      const second = await client.pushImage(repository, 'v1')
      const headers = { 'user-agent': 'tester/1' }
      await client.send('HEAD', `/v2/${repository}/manifests/v1`, { headers })
      await client.send('GET', `/v2/${repository}/manifests/${first.digest}`, { headers })
      const { layers } = JSON.parse(second.bytes.toString()) as { layers: { digest: string }[] } // a cast of what was made above
      await client.send('GET', `/v2/${repository}/blobs/${layers[0]?.digest}`, { headers })
      const events = (await eventsOf(repository)).filter(({ type }) => type.startsWith('dev.taproot.registry.'))
      const reported = events.map(({ type, source, group, actorSubject, body }) => {
        const {
          repository: path,
          repoId,
          tag,
          digest,
          method,
          type: what,
          tagPreviousDigest,
          userAgent,
          remoteAddress,
          when,
        } = fromBinary(RegistryTrafficSchema, body)
        expect(when).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}$/)
        expect([source, group, actorSubject, path, repoId, remoteAddress]).toEqual([
          'registry.test:5000',
          host.group,
          host.owner,
          repository,
          uidOf(repository),
          '127.0.0.1',
        ])
        return [type.split('.')[3], what, method, tag, digest, tagPreviousDigest, userAgent]
      })
      expect(reported).toEqual(
        expect.arrayContaining([
          ['push', 'manifest', undefined, 'v1', first.digest, undefined, ''],
          ['push', 'manifest', undefined, 'v1', second.digest, first.digest, ''],
          ['pull', 'manifest', 'HEAD', 'v1', second.digest, undefined, 'tester/1'],
          ['pull', 'manifest', 'GET', undefined, first.digest, undefined, 'tester/1'],
          ['pull', 'blob', 'GET', undefined, layers[0]?.digest, undefined, 'tester/1'],
        ]),
      )
      expect(reported).toHaveLength(5)
    })

    /** Kind, type, method, tag, digest, status and code of each failed request. */
    async function failuresOf(repository: string): Promise<unknown[][]> {
      const stored = (await eventsOf(repository)).filter(({ type }) => type.startsWith('dev.taproot.registry.'))
      const events = stored.map(({ type, body }) => [type.split('.')[3], fromBinary(RegistryTrafficSchema, body)] as const)
      return events.flatMap(([kind, { error, type, method, tag, digest }]) =>
        error === undefined ? [] : [[kind, type, method, tag, digest, error.status, error.code]],
      )
    }

    // docs/spec/events.md#registry-traffic
    test('a pull or push that fails after authorisation is reported with its error', async () => {
      const repository = host.freshRepository()
      await client.pushImage(repository, 'v1')
      const image = await client.image(repository)
      const missing = digestOf(randomBytes(8))
      const path = `/v2/${repository}`
      for (const method of ['GET', 'HEAD']) await client.send(method, `${path}/manifests/none`)
      await client.send('GET', `${path}/manifests/${missing}`)
      await client.send('GET', `${path}/blobs/${missing}`)
      await client.putManifest(repository, 'v2', { ...image, bytes: Buffer.from('no manifest') })
      await client.putManifest(repository, missing, image)
      await client.send('POST', `${path}/blobs/uploads/?digest=${missing}`, { body: Buffer.from('other bytes') })
      expect(await failuresOf(repository)).toEqual(
        expect.arrayContaining([
          ['pull', 'manifest', 'GET', 'none', '', 404, 'MANIFEST_UNKNOWN'],
          ['pull', 'manifest', 'HEAD', 'none', '', 404, 'MANIFEST_UNKNOWN'],
          ['pull', 'manifest', 'GET', undefined, missing, 404, 'MANIFEST_UNKNOWN'],
          ['pull', 'blob', 'GET', undefined, missing, 404, 'BLOB_UNKNOWN'],
          ['push', 'manifest', undefined, 'v2', '', 400, 'MANIFEST_INVALID'],
          ['push', 'manifest', undefined, undefined, missing, 400, 'DIGEST_INVALID'],
          ['push', 'blob', undefined, undefined, missing, 400, 'DIGEST_INVALID'],
        ]),
      )
      expect(await failuresOf(repository)).toHaveLength(7)
    })

    // docs/spec/events.md#registry-traffic
    test('requests of refused callers, checks for blobs before a push, and other requests cause no event', async () => {
      const repository = host.freshRepository()
      await client.pushImage(repository, 'v1')
      const path = `/v2/${repository}`
      await client.send('HEAD', `${path}/blobs/${digestOf(randomBytes(8))}`)
      await client.send('GET', `${path}/referrers/none`)
      await client.send('DELETE', `${path}/manifests/none`)
      await client.send('GET', `/v2/${theirs}/none/manifests/v1`)
      for (const other of [stranger, host.as(undefined)]) {
        await other.send('GET', `${path}/manifests/none`)
        await other.send('PUT', `${path}/manifests/none`, { body: 'x' })
      }
      expect(await failuresOf(repository)).toEqual([])
    })

    // docs/spec/events.md#registry-traffic
    test('an event contains the subdomain if it is a host name before the name of this host', async () => {
      const repository = host.freshRepository()
      await client.pushImage(repository, 'v1')
      const names = [
        'team.registry.test:5000',
        'a.b.registry.test:5000',
        'registry.test:5000',
        'evilregistry.test:5000',
        '.registry.test:5000',
        'a/b.registry.test:5000',
        'other.test',
      ]
      for (const host of names) await client.send('GET', `/v2/${repository}/manifests/v1`, { headers: { host } })
      const pulled = (await eventsOf(repository)).filter(({ type }) => type.endsWith('pull.v1'))
      const subdomains = pulled.map(({ body }) => fromBinary(RegistryTrafficSchema, body).subdomain)
      expect(subdomains.toSorted()).toEqual(['a.b', 'team', ...Array.from({ length: pulled.length - 2 })])
    })

    test('events of the registry host contain a shortened name of a client with a very long one', async () => {
      const repository = host.freshRepository()
      await client.pushImage(repository, 'v1')
      await host.traffic.flush()
      const before = host.lost()
      const path = `/v2/${repository}/manifests/v1`
      for (let at = 0; at < 100; at++) await client.send('GET', path, { headers: { 'user-agent': 'x'.repeat(15_000) } })
      for (let at = 0; at < 20; at++) await client.send('GET', path)
      const pulled = (await eventsOf(repository)).filter(({ type }) => type.endsWith('pull.v1'))
      expect(host.lost() - before).toBe(0)
      const lengths = pulled.map(({ body }) => fromBinary(RegistryTrafficSchema, body).userAgent.length)
      expect([pulled.length, ...new Set(lengths)].toSorted((one, other) => one - other)).toEqual([0, 120, 512])
    })

    test('events of the registry host of too many pulls are dropped, and counted', async () => {
      const repository = host.freshRepository()
      await client.pushImage(repository, 'v1')
      await host.traffic.flush()
      const before = host.lost()
      const repo = trustedUid(uidOf(repository))
      for (let at = 0; at < 1_500; at++) {
        const request = {
          kind: 'pull' as const,
          repo,
          repository,
          digest: digestOf(Buffer.from('x')),
          type: 'manifest',
          method: 'GET',
          caller: undefined,
          timeMs: 1,
          remoteAddress: '',
          userAgent: '',
        }
        host.traffic.add(request, () => request)
      }
      expect(host.lost() - before).toBe(1_250)
      expect((await eventsOf(repository)).filter(({ type }) => type.endsWith('pull.v1'))).toHaveLength(250)
    })
  })
})
