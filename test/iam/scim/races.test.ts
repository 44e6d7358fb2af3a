import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { freshName, ok, startTestServer, type TestServer } from '../../support/test-server.ts'
import { shareEtcd } from '../../support/parts/etcd.ts'
import { describeOnStores } from '../../support/parts/require-part.ts'
import { askScim, makeDirectory, namesOf, patchOf, type Directory, type ScimReply } from './directory.ts'

describeOnStores('concurrent SCIM requests', (store) => {
  const servers: TestServer[] = []
  let dataDir = ''
  let directory: Directory
  /** The addresses of the provider's SCIM server at each replica. */
  let endpoints: string[]

  beforeAll(async () => {
    dataDir = await mkdtemp(join(tmpdir(), 'taproot-scim-'))
    const etcd = store === 'etcd' ? await shareEtcd() : undefined
    const options = { store, dataDir, ...(etcd === undefined ? {} : { etcd }) }
    for (let replica = 0; replica < (store === 'etcd' ? 2 : 1); replica++) servers.push(await startTestServer(options))
    const [first] = servers
    if (first === undefined) throw new Error('no server')
    directory = await makeDirectory(first)
    endpoints = servers.map(({ config }) => `${config.baseUrl}/scim/v2/${directory.provider}`)
  })
  afterAll(async () => {
    for (const server of servers) await server.stop()
    await rm(dataDir, { recursive: true, force: true })
  })

  /** Sends `count` concurrent requests, to each of the replicas in turn. */
  function atOnce(count: number, ask: (endpoint: string, at: number) => Promise<ScimReply>): Promise<ScimReply[]> {
    return Promise.all(Array.from({ length: count }, (_, at) => ask(endpoints[at % endpoints.length] ?? '', at)))
  }

  function statuses(replies: readonly ScimReply[]): Readonly<Record<number, number>> {
    const counts: Record<number, number> = {}
    for (const { status } of replies) counts[status] = (counts[status] ?? 0) + 1
    return counts
  }

  // docs/spec/scim.md#scim-users
  test.each(['userName', 'externalId'])('concurrent SCIM requests with one %s create one user, and the others get a conflict', async (attribute) => {
    for (let round = 0; round < 5; round++) {
      const value = freshName('raced')
      const replies = await atOnce(8, (endpoint, at) => {
        const body = { userName: attribute === 'userName' && at % 2 === 0 ? value.toUpperCase() : freshName('user'), [attribute]: value }
        return askScim(`${endpoint}/Users`, 'POST', { token: directory.scimToken, body })
      })
      expect(statuses(replies)).toEqual({ 201: 1, 409: 7 })
      const filter = encodeURIComponent(`${attribute} eq "${value}"`)
      for (const endpoint of endpoints) {
        const { body } = await askScim(`${endpoint}/Users?filter=${filter}`, 'GET', { token: directory.scimToken })
        expect(body['totalResults']).toBe(1)
      }
    }
  })

  test('RFC 7644 3.14 concurrent SCIM requests that change one version succeed once, and the others are 412', async () => {
    const id = await directory.add()
    const version = String((await directory.ask('GET', `Users/${id}`)).headers.get('etag'))
    const replies = await atOnce(8, (endpoint, at) =>
      askScim(`${endpoint}/Users/${id}`, 'PATCH', {
        token: directory.scimToken,
        headers: { 'if-match': version },
        ...patchOf({ op: 'replace', path: 'title', value: `title ${at}` }),
      }),
    )
    expect(statuses(replies)).toEqual({ 200: 1, 412: 7 })
  })

  test('concurrent SCIM requests that patch one user are all applied', async () => {
    const id = await directory.add()
    const replies = await atOnce(6, (endpoint, at) =>
      askScim(`${endpoint}/Users/${id}`, 'PATCH', { token: directory.scimToken, ...patchOf({ op: 'add', path: 'roles', value: [{ value: `role ${at}` }] }) }),
    )
    expect(statuses(replies)).toEqual({ 200: 6 })
    const { body } = await directory.ask('GET', `Users/${id}`)
    expect((body['roles'] as { value: string }[]).map(({ value }) => value).toSorted()).toEqual(Array.from({ length: 6 }, (_, at) => `role ${at}`))
  })

  test('concurrent SCIM requests that release and take a userName leave at most one user with it', async () => {
    for (let round = 0; round < 5; round++) {
      const name = freshName('wanted')
      const holder = await directory.add({ userName: name })
      await atOnce(6, (endpoint, at) =>
        at % 3 === 0
          ? askScim(`${endpoint}/Users/${holder}`, 'DELETE', { token: directory.scimToken })
          : askScim(`${endpoint}/Users`, 'POST', { token: directory.scimToken, body: { userName: name } }),
      )
      const found = await directory.expecting(200, 'GET', `Users?filter=${encodeURIComponent(`userName eq "${name}"`)}`)
      expect([0, 1]).toContain(found['totalResults'])
      // The holder of the name holds its key: the name is either free or taken.
      const again = await directory.ask('POST', 'Users', { body: { userName: name } })
      expect(again.status).toBe(found['totalResults'] === 0 ? 201 : 409)
    }
  })

  // docs/spec/scim.md#scim-server
  test.each<[what: string, end: (ending: Directory) => Promise<unknown>]>([
    ['SCIM is turned off', (ending) => ending.setEnabled(false)],
    ['the token is revoked', (ending) => ending.verb('RevokeScimToken')],
  ])('concurrent SCIM requests that write while %s are applied before it, or not at all', async (_what, end) => {
    const [first] = servers
    if (first === undefined) throw new Error('no server')
    const ending = await makeDirectory(first)
    const post = (at: number): Promise<ScimReply> => ending.ask('POST', 'Users', { body: { userName: `late ${at}` } })
    const [replies] = await Promise.all([Promise.all(Array.from({ length: 12 }, (_, at) => post(at))), end(ending)])
    expect(Object.keys(statuses(replies)).every((status) => ['201', '401'].includes(status))).toBe(true)
    expect((await ending.ask('GET', 'Users')).status).toBe(401)
    const written = replies.flatMap(({ status }, at) => (status === 201 ? [`late ${at}`] : []))
    const { scim } = ok(await first.rest.call('GetIdentityProvider', { uid: ending.provider }, { token: ending.token }))
    const { token } = await ending.verb('RegenerateScimToken', { etag: (scim as { etag: string }).etag })
    await ending.setEnabled(true)
    const listed = await ending.expecting(200, 'GET', 'Users', { token: String(token) })
    expect(namesOf(listed).toSorted()).toEqual(written.toSorted())
  })
})
