import { fromBinary, fromJson, isMessage, toBinary, toJson, type DescMessage, type JsonObject, type Message } from '@bufbuild/protobuf'
import { reflect } from '@bufbuild/protobuf/reflect'
import { Client, credentials, Metadata } from '@grpc/grpc-js'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { methods } from '../../../src/base/schema/schema.ts'
import { makeMember, roleUid, type TestServer } from '../../support/test-server.ts'
import { cases } from './cases/cases.ts'
import { caseName, type MethodCase } from './cases/method-case.ts'
import { v1Message } from './v1-descriptors.ts'
import { makeWorld, startWalkServer, tokenWith, type World } from './world.ts'

interface V1Method {
  readonly input: string
  readonly output: string
  /** The route, and the field that is the body, `*` for the whole request. */
  readonly rest: readonly [verb: string, path: string, body?: string]
  /** The required parts of the answer. */
  readonly answer: (world: World) => JsonObject
}

const text: unknown = expect.stringMatching(/./)
const time: unknown = expect.stringMatching(/Z$/)
const rawToken = { token: text, expiry: time }

const group = { id: text, name: text } as JsonObject
const role = { id: text, name: text, capabilities: ['groups.list'] } as JsonObject
const binding = { id: text, identity: text, group: text, role: text } as JsonObject
const identity = { id: text, name: text, createdAt: time, updatedAt: time, claimMatch: { issuer: text, subject: text } } as JsonObject
const repo = { id: text, name: text, createTime: time } as JsonObject
const tag = { id: text, name: text, digest: text, lastUpdated: time } as JsonObject
const changedGroup = { ...group, description: 'changed' } as JsonObject

/** The answer of a list that contains a record with these fields. */
function some(fields: unknown): V1Method['answer'] {
  return () => ({ items: expect.arrayContaining([expect.objectContaining(fields as object)]) as JsonObject[] })
}

/** Every method that clients of version 1 call, with their names and messages. */
const table: Readonly<Record<string, V1Method>> = {
  'Groups/Create': { input: 'CreateGroupRequest', output: 'Group', rest: ['POST', '/iam/v1/groups/{parent}', 'group'], answer: () => group },
  'Groups/Update': { input: 'Group', output: 'Group', rest: ['PUT', '/iam/v1/groups/{id}', '*'], answer: () => changedGroup },
  'Groups/List': {
    input: 'ListGroupsRequest',
    output: 'GroupList',
    rest: ['GET', '/iam/v1/groups'],
    answer: some(group),
  },
  'Groups/Delete': { input: 'DeleteRequest', output: 'Empty', rest: ['DELETE', '/iam/v1/groups/{id}'], answer: () => ({}) },
  'Identities/Create': {
    input: 'CreateIdentityRequest',
    output: 'Identity',
    rest: ['POST', '/iam/v1/identities/{parentId}', 'identity'],
    answer: () => identity,
  },
  'Identities/Update': { input: 'Identity', output: 'Identity', rest: ['PUT', '/iam/v1/identities/{id}', '*'], answer: () => identity },
  'Identities/List': {
    input: 'ListIdentitiesRequest',
    output: 'IdentityList',
    rest: ['GET', '/iam/v1/identities'],
    answer: some({ id: text, name: text, createdAt: time }),
  },
  'Identities/Lookup': {
    input: 'LookupIdentityRequest',
    output: 'Identity',
    rest: ['GET', '/iam/v1/identities/lookup'],
    answer: () => ({ id: text, claimMatch: { issuer: text, subject: text } }) as JsonObject,
  },
  'Identities/Delete': { input: 'DeleteRequest', output: 'Empty', rest: ['DELETE', '/iam/v1/identities/{id}'], answer: () => ({}) },
  'Subscriptions/Create': {
    input: 'CreateSubscriptionRequest',
    output: 'Subscription',
    rest: ['POST', '/events/v1/subscriptions/{parentId}', 'subscription'],
    answer: () => ({ id: text, sink: text }) as JsonObject,
  },
  'Subscriptions/List': {
    input: 'ListSubscriptionsRequest',
    output: 'SubscriptionList',
    rest: ['GET', '/events/v1/subscriptions'],
    answer: some({ id: text, sink: text }),
  },
  'Subscriptions/Delete': { input: 'DeleteRequest', output: 'Empty', rest: ['DELETE', '/events/v1/subscriptions/{id}'], answer: () => ({}) },
  'Registry/CreateRepo': { input: 'CreateRepoRequest', output: 'Repo', rest: ['POST', '/registry/v1/repos/{parentId}', 'repo'], answer: () => repo },
  'Registry/UpdateRepo': { input: 'Repo', output: 'Repo', rest: ['PUT', '/registry/v1/repos/{id}', '*'], answer: () => repo },
  'Registry/ListRepos': { input: 'ListReposRequest', output: 'RepoList', rest: ['GET', '/registry/v1/repos'], answer: some(repo) },
  'Registry/DeleteRepo': { input: 'DeleteRequest', output: 'Empty', rest: ['DELETE', '/registry/v1/repos/{id}'], answer: () => ({}) },
  'Registry/CreateTag': { input: 'CreateTagRequest', output: 'Tag', rest: ['POST', '/registry/v1/tags/{repoId}', 'tag'], answer: () => tag },
  'Registry/UpdateTag': { input: 'Tag', output: 'Tag', rest: ['PUT', '/registry/v1/tags/{id}', '*'], answer: () => ({ ...tag, deprecated: true }) },
  'Registry/ListTags': { input: 'ListTagsRequest', output: 'TagList', rest: ['GET', '/registry/v1/tags'], answer: some(tag) },
  'Registry/DeleteTag': { input: 'DeleteRequest', output: 'Empty', rest: ['DELETE', '/registry/v1/tags/{id}'], answer: () => ({}) },
  'Roles/Create': { input: 'CreateRoleRequest', output: 'Role', rest: ['POST', '/iam/v1/roles/{parentId}', 'role'], answer: () => role },
  'Roles/Update': { input: 'Role', output: 'Role', rest: ['PUT', '/iam/v1/roles/{id}', '*'], answer: () => role },
  'Roles/List': {
    input: 'ListRolesRequest',
    output: 'RoleList',
    rest: ['GET', '/iam/v1/roles'],
    answer: some({ id: text, name: text, capabilities: ['groups.list'] }),
  },
  'Roles/Delete': { input: 'DeleteRequest', output: 'Empty', rest: ['DELETE', '/iam/v1/roles/{id}'], answer: () => ({}) },
  'RoleBindings/Create': {
    input: 'CreateRoleBindingRequest',
    output: 'RoleBinding',
    rest: ['POST', '/iam/v1/rolebindings/{parent}', 'roleBinding'],
    answer: () => binding,
  },
  'RoleBindings/Update': { input: 'RoleBinding', output: 'RoleBinding', rest: ['PUT', '/iam/v1/rolebindings/{id}', '*'], answer: () => binding },
  'RoleBindings/List': {
    input: 'ListRoleBindingsRequest',
    output: 'RoleBindingList',
    rest: ['GET', '/iam/v1/rolebindings'],
    answer: some({
      id: text,
      identity: text,
      createdAt: time,
      group: expect.objectContaining({ id: text, name: text }) as unknown,
      role: expect.objectContaining({ id: text, name: text }) as unknown,
    }),
  },
  'RoleBindings/Delete': { input: 'DeleteRequest', output: 'Empty', rest: ['DELETE', '/iam/v1/rolebindings/{id}'], answer: () => ({}) },
  'Auth/Validate': {
    input: 'Empty',
    output: 'WhoAmI',
    rest: ['GET', '/auth/v1/ok'],
    answer: ({ server, group }) =>
      ({
        issuer: server.config.baseUrl,
        subject: text,
        audience: [server.config.baseUrl],
        expiry: time,
        issuedAt: time,
        capabilities: [
          {
            group: { id: group, name: text },
            role: { id: roleUid('viewer'), name: 'viewer', capabilities: expect.arrayContaining(['groups.list', 'repo.list']) as unknown },
            capabilities: expect.arrayContaining(['groups.list', 'repo.list']) as unknown,
          },
        ],
      }) as JsonObject,
  },
  'Auth/Register': {
    input: 'RegisterRequest',
    output: 'Session',
    rest: ['POST', '/auth/v1/register', '*'],
    answer: () => ({ identity: text }) as JsonObject,
  },
  'Auth/GetHeadlessSession': {
    input: 'GetHeadlessSessionRequest',
    output: 'HeadlessSession',
    rest: ['GET', '/sts/headless_sessions'],
    answer: () => ({ ecdhPublicKey: text, encryptedIdtoken: text }) as JsonObject,
  },
  'Auth/Delete': { input: 'DeleteRequest', output: 'Empty', rest: ['DELETE', '/auth/v1/delete/{id}'], answer: () => ({}) },
  'SecurityTokenService/Exchange': {
    input: 'ExchangeRequest',
    output: 'RawToken',
    rest: ['GET', '/sts/exchange'],
    answer: () => rawToken as JsonObject,
  },
  'SecurityTokenService/ExchangeRefreshToken': {
    input: 'ExchangeRefreshTokenRequest',
    output: 'TokenPair',
    rest: ['POST', '/sts/exchange_refresh_token'],
    answer: () => ({ token: rawToken, refreshToken: rawToken }) as JsonObject,
  },
}

/** Returns the full names by which clients call a service. Names of the API family have no version. */
function servicesOf(name: string): string[] {
  const domain = methods.find((method) => caseName(method) === name)?.domain ?? ''
  return [`taproot.${domain}.v1`, `chainguard.platform.${domain}`]
}

/** Field numbers from here on are Taproot's own; clients of the API family skip them. */
const firstOwnNumber = 1000

/** Returns field numbers, at any depth, that the descriptors do not contain. */
function unknownNumbers(desc: DescMessage, message: Message): number[] {
  const reflected = reflect(desc, message)
  const inner = desc.fields.flatMap((field) => {
    if (field.fieldKind === 'message' && reflected.isSet(field)) return unknownNumbers(field.message, reflected.get(field).message)
    if (field.fieldKind !== 'list' || field.listKind !== 'message') return []
    return [...reflected.get(field)].flatMap((item) => unknownNumbers(field.message, (item as { message: Message }).message))
  })
  return [...(message.$unknown ?? []).map(({ no }) => no), ...inner]
}

describe('messages of version 1 clients', () => {
  let server: TestServer
  let world: World
  let client: Client
  beforeAll(async () => {
    server = await startWalkServer()
    world = await makeWorld(server)
    client = new Client(`127.0.0.1:${server.config.api.port}`, credentials.createInsecure())
  })
  afterAll(async () => {
    client.close()
    await server.stop()
  })

  function caseOf(name: string): MethodCase {
    const row = cases[name]
    if (row === undefined) throw new Error(`no case ${name}`)
    return row
  }

  async function tokenFor(name: string): Promise<string> {
    if (name === 'Auth/Validate') return (await makeMember(server, world.group, { role: 'viewer' })).token
    const { caller, grants = [] } = caseOf(name)
    return (await caller?.(world)) ?? tokenWith(world, [...(methods.find((method) => caseName(method) === name)?.capabilities ?? []), ...grants])
  }

  function unary(path: string, bytes: Uint8Array, token: string): Promise<Buffer> {
    const metadata = new Metadata()
    metadata.set('authorization', `Bearer ${token}`)
    const same = (value: Buffer): Buffer => value
    return new Promise((resolve, reject) => {
      client.makeUnaryRequest(path, same, same, Buffer.from(bytes), metadata, { deadline: Date.now() + 20_000 }, (error, value) =>
        error === null && value !== undefined ? resolve(value) : reject(error ?? new Error('no message')),
      )
    })
  }

  test('messages of version 1 clients cover every method of version 1', () => {
    const known = methods.filter(({ service }) => service.includes('.v1.')).map(caseName)
    expect(Object.keys(table).toSorted()).toEqual(known.toSorted())
  })

  const calls = Object.keys(table).flatMap((name) => servicesOf(name).map((domain) => [`${domain}.${name}`, name] as const))
  test.each(calls)('gRPC /%s', async (path, name) => {
    const { input, output, answer } = table[name] as V1Method // the names are the table's
    const request = await caseOf(name).request(world)
    const bytes = toBinary(v1Message(input), fromJson(v1Message(input), request))
    const answered = fromBinary(v1Message(output), await unary(`/${path}`, bytes, await tokenFor(name)))
    expect(toJson(v1Message(output), answered)).toMatchObject(answer(world))
    expect(unknownNumbers(v1Message(output), answered).filter((number) => number < firstOwnNumber)).toEqual([])
  })

  test.each(Object.keys(table))('REST %s', async (name) => {
    const { input, output, rest, answer } = table[name] as V1Method // see above
    const [verb, template, bodyField] = rest
    const request = toJson(v1Message(input), fromJson(v1Message(input), await caseOf(name).request(world))) as JsonObject // a message is an object
    const token = await tokenFor(name)
    const path = template.replace(/\{(\w+)\}/, (_, variable: string) => encodeURIComponent(String(request[variable])))
    const isBody = bodyField !== undefined
    const flat = Object.entries(request).flatMap(([key, value]) =>
      typeof value === 'object' && value !== null ? Object.entries(value).map(([inner, one]) => [`${key}.${inner}`, String(one)]) : [[key, String(value)]],
    )
    const query = isBody || template !== path ? '' : `?${new URLSearchParams(flat)}`
    const response = await fetch(`http://127.0.0.1:${server.config.api.port}${path}${query}`, {
      method: verb,
      headers: { authorization: `Bearer ${token}`, ...(isBody ? { 'content-type': 'application/json' } : {}) },
      ...(isBody ? { body: JSON.stringify(bodyField === '*' ? request : request[bodyField]) } : {}),
    })
    const answered = await response.text()
    expect(response.status, answered).toBe(200)
    const { emailVerified: _own, ...json } = JSON.parse(answered === '' ? '{}' : answered) as JsonObject
    // Fails on a key that is not in the descriptors; enums are names in JSON.
    const numbers = JSON.parse(JSON.stringify(json).replaceAll(/"(kind|status|catalogTier)":"[A-Z_]+"/g, '"$1":0')) as JsonObject
    expect(isMessage(fromJson(v1Message(output), numbers), v1Message(output))).toBe(true)
    expect(json).toMatchObject(answer(world))
  })
})
