import { execFile } from 'node:child_process'
import type { JsonObject } from '@bufbuild/protobuf'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { methods } from '../../../src/base/schema/schema.ts'
import { grpcClient, type ApiClient } from '../../support/api-clients.ts'
import { freshName, makeOrganisation, ok, startTestServer, type Organisation, type TestServer } from '../../support/test-server.ts'
import { describeWithPart } from '../../support/parts/require-part.ts'

let server: TestServer
let organisation: Organisation
let address: string

beforeAll(async () => {
  server = await startTestServer()
  organisation = await makeOrganisation(server)
  address = `127.0.0.1:${server.config.api.port}`
})
afterAll(() => server.stop())

interface Ran {
  readonly code: number
  readonly stdout: string
  readonly stderr: string
}

/** The namespaces that public clients of this API family use. */
const aliasPackages = ['chainguard.platform.iam.v2', 'chainguard.platform.iam.v2beta1']
const packages = ['taproot.iam.v2', ...aliasPackages]

describeWithPart('grpcurl', 'grpcurl with reflection', (program) => {
  const run = (...args: readonly string[]): Promise<Ran> => {
    const { promise, resolve } = Promise.withResolvers<Ran>()
    const child = execFile(program, ['-plaintext', ...args], (error, stdout, stderr) => {
      resolve({ code: error === null ? 0 : Number(child.exitCode), stdout, stderr })
    })
    return promise
  }
  const call = (method: string, request: JsonObject, flags: readonly string[] = []): Promise<Ran> =>
    run('-H', `authorization: Bearer ${organisation.token}`, ...flags, '-d', JSON.stringify(request), address, method)
  const answer = async (method: string, request: JsonObject): Promise<JsonObject> => {
    const { code, stdout, stderr } = await call(method, request)
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    return JSON.parse(stdout) as JsonObject
  }

  test("grpcurl with reflection lists every service, under Taproot's names and under those of existing clients", async () => {
    const { code, stdout } = await run(address, 'list')
    expect(code).toBe(0)
    const listed = stdout.trim().split('\n')
    expect(listed).toEqual(expect.arrayContaining([...new Set(methods.map(({ service }) => service))]))
    for (const name of packages) expect(listed).toContain(`${name}.GroupsService`)
  })

  test('grpcurl with reflection reads the health of the server and of one service', async () => {
    for (const service of ['', 'taproot.iam.v2.GroupsService']) {
      expect(await answer('grpc.health.v1.Health/Check', { service })).toEqual({ status: 'SERVING' })
    }
  })

  test.each(packages)('grpcurl with reflection describes %s.Groups with its methods and their requests', async (name) => {
    const { stdout } = await run(address, 'describe', `${name}.GroupsService`)
    for (const rpc of ['CreateGroup', 'GetGroup', 'ListGroups', 'UpdateGroup', 'DeleteGroup']) expect(stdout).toContain(`rpc ${rpc} (`)
  })

  test.each(packages)('grpcurl with reflection creates, gets, lists, updates and deletes a group through %s', async (name) => {
    const groupName = freshName('team')
    const made = await answer(`${name}.GroupsService/CreateGroup`, { parent: organisation.group, group: { name: groupName, description: 'first' } })
    const { uid } = made as { uid: string }
    expect(uid.startsWith(`${organisation.group}/`)).toBe(true)
    expect(made).toMatchObject({ name: groupName, description: 'first' })
    expect(await answer(`${name}.GroupsService/GetGroup`, { uid })).toEqual(made)
    const list = await answer(`${name}.GroupsService/ListGroups`, { uidp: { children_of: organisation.group }, order_by: 'name', page_size: 200 })
    expect(list['groups']).toContainEqual(made)
    const changed = await answer(`${name}.GroupsService/UpdateGroup`, { group: { uid, description: 'second' }, update_mask: { paths: ['description'] } })
    expect(changed).toMatchObject({ uid, name: groupName, description: 'second', createTime: made['createTime'] })
    expect(await answer(`${name}.GroupsService/DeleteGroup`, { uid })).toEqual({})
    const { code, stderr } = await call(`${name}.GroupsService/GetGroup`, { uid })
    expect(code).not.toBe(0)
    expect(stderr).toContain('Code: NotFound')
  })

  test.each(packages)('grpcurl with reflection shows error details through %s', async (name) => {
    const uid = `${organisation.group}/0000000000000000`
    const missing = await call(`${name}.GroupsService/GetGroup`, { uid }, ['-format-error'])
    expect(JSON.parse(missing.stderr)).toMatchObject({
      code: 5,
      details: expect.arrayContaining([
        expect.objectContaining({ '@type': 'type.googleapis.com/google.rpc.ErrorInfo', reason: 'NOT_FOUND', domain: 'iam.taproot.dev' }),
        expect.objectContaining({ '@type': 'type.googleapis.com/google.rpc.ResourceInfo', resourceType: 'iam.taproot.dev/Group', resourceName: uid }),
      ]) as unknown,
    })
    const bad = await call(`${name}.IdentitiesService/CreateIdentity`, { parent: organisation.group }, ['-format-error'])
    const { code, message, details } = JSON.parse(bad.stderr) as { code: number; message: string; details: JsonObject[] }
    expect(code).toBe(3)
    expect(message).toMatch(/^Invalid argument: name: /)
    const badRequest = details.find((detail) => detail['@type'] === 'type.googleapis.com/google.rpc.BadRequest')
    expect((badRequest?.['fieldViolations'] as JsonObject[]).map(({ field }) => field)[0]).toBe('name')

    const full = await answer(`${name}.GroupsService/CreateGroup`, { parent: organisation.group, group: { name: freshName('full') } })
    await answer(`${name}.GroupsService/CreateGroup`, { parent: String(full['uid']), group: { name: 'child' } })
    const blocked = await call(`${name}.GroupsService/DeleteGroup`, { uid: String(full['uid']) }, ['-format-error'])
    expect(JSON.parse(blocked.stderr)).toMatchObject({
      code: 9,
      message: expect.stringMatching(/^Precondition failed: /) as unknown,
      details: expect.arrayContaining([expect.objectContaining({ violations: [expect.objectContaining({ type: 'RESOURCE_NOT_EMPTY' })] })]) as unknown,
    })
    // Without -format-error it prints the same error as text.
    const plain = await call(`${name}.GroupsService/GetGroup`, { uid })
    expect(plain.stderr).toMatch(/Code: NotFound[\s\S]*google\.rpc\.ResourceInfo/)
  })

  test('grpcurl with reflection gets Unauthenticated without a token and with an invalid one', async () => {
    const request = ['-d', '{}', address, 'taproot.iam.v2.GroupsService/ListGroups']
    expect((await run(...request)).stderr).toContain('Code: Unauthenticated')
    expect((await run('-H', 'authorization: Bearer x.y.z', ...request)).stderr).toContain('Code: Unauthenticated')
  })
})

describe.each(aliasPackages)('a client that calls %s', (name) => {
  let alias: ApiClient
  beforeAll(() => {
    alias = grpcClient(address, (method) => method.service.replace('taproot.iam.v2', name))
  })
  afterAll(() => alias.close())

  const requests = {
    'a list': ['ListGroups', () => ({ uidp: { descendantsOf: organisation.group }, orderBy: 'created_at desc', pageSize: 2 })],
    'a record': ['GetGroup', () => ({ uid: organisation.group })],
    roles: ['ListRoles', () => ({ orderBy: 'name' })],
    identities: ['ListIdentities', () => ({ uidp: { childrenOf: organisation.group } })],
    'hydrated bindings': ['ListRoleBindings', () => ({ uidp: { childrenOf: organisation.group } })],
    'a missing record': ['GetGroup', () => ({ uid: '0'.repeat(40) })],
    'a request with faults': ['CreateIdentity', () => ({ parent: organisation.group, identity: { name: 'NO' } })],
    'a custom verb': ['LookupIdentity', () => ({ issuer: 'https://issuer.example', subject: 'someone' })],
  } as const satisfies Record<string, readonly [string, () => JsonObject]>

  test.each(Object.entries(requests))('a client of other service names gets the same answer: %s', async (_, [rpc, request]) => {
    const { token } = organisation
    const [ours, theirs] = [await server.grpc.call(rpc, request(), { token }), await alias.call(rpc, request(), { token })]
    expect(comparable(theirs)).toEqual(comparable(ours))
  })

  test('a client of other service names can change records that clients of the other names read', async () => {
    const { token, group } = organisation
    const made = ok(await alias.call('CreateGroup', { parent: group, group: { name: freshName('alias') } }, { token }))
    expect(ok(await server.grpc.call('GetGroup', { uid: String(made['uid']) }, { token }))).toEqual(made)
    expect((await alias.call('DeleteGroup', { uid: String(made['uid']) }, {})).code).toBe(16)
    ok(await alias.call('DeleteGroup', { uid: String(made['uid']) }, { token }))
    expect((await server.rest.call('GetGroup', { uid: String(made['uid']) }, { token })).code).toBe(5)
  })
})

describe('a client of the earlier path segment /v2beta1/', () => {
  const send = async (path: string, init: RequestInit = {}): Promise<{ status: number; body: JsonObject }> => {
    const headers = { authorization: `Bearer ${organisation.token}`, ...(init.body === undefined ? {} : { 'content-type': 'application/json' }) }
    const response = await fetch(`http://${address}${path}`, { ...init, headers })
    const text = await response.text()
    return { status: response.status, body: comparable({ body: (text === '' ? {} : JSON.parse(text)) as JsonObject })['body'] as JsonObject }
  }

  test.each([
    ['a list', () => `groups?uidp.descendants_of=${organisation.group}&order_by=name%20desc`],
    ['a record', () => `groups/${organisation.group}`],
    ['a missing record', () => `groups/${'0'.repeat(40)}`],
    ['hydrated bindings', () => `roleBindings?uidp.children_of=${organisation.group}`],
    ['a bad parameter', () => 'groups?page_size=-1'],
  ])('a client of the earlier path segment /v2beta1/ gets the same answer: %s', async (_, path) => {
    expect(await send(`/iam/v2beta1/${path()}`)).toEqual(await send(`/iam/v2/${path()}`))
  })

  test('a client of the earlier path segment /v2beta1/ can create, change and delete records', async () => {
    const made = await send(`/iam/v2beta1/groups/${organisation.group}`, { method: 'POST', body: JSON.stringify({ name: freshName('beta') }) })
    expect(made.status).toBe(200)
    const { uid } = made.body as { uid: string }
    const changed = await send(`/iam/v2beta1/groups/${uid}`, { method: 'PATCH', body: JSON.stringify({ description: 'beta' }) })
    expect(changed).toMatchObject({ status: 200, body: { uid, description: 'beta' } })
    expect(await send(`/iam/v2/groups/${uid}`)).toEqual(changed)
    expect((await send(`/iam/v2beta1/groups/${uid}`, { method: 'DELETE' })).status).toBe(200)
    expect((await send(`/iam/v2/groups/${uid}`)).status).toBe(404)
  })
})

/** Returns an answer without the parts that differ between calls. */
function comparable(answered: { readonly code?: number; readonly message?: string; readonly details?: object; readonly body: JsonObject }): JsonObject {
  const { code = 0, message = '', details = {}, body } = answered
  const text = JSON.stringify({ code, message, details, body })
  return JSON.parse(text.replaceAll(/"requestId":"[^"]*"/g, '"requestId":""').replaceAll(/"nextPageToken":"[^"]+"/g, '"nextPageToken":"some"')) as JsonObject
}
