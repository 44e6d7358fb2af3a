import { fromBinary, fromJson, isMessage, toBinary, toJson, type DescMessage, type JsonObject, type Message } from '@bufbuild/protobuf'
import { reflect } from '@bufbuild/protobuf/reflect'
import { Client, credentials, Metadata } from '@grpc/grpc-js'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { methods } from '../../../../src/base/schema/schema.ts'
import { makeMember, roleUid, type TestServer } from '../../../support/test-server.ts'
import { cases } from '../cases/cases.ts'
import { caseName, type MethodCase } from '../cases/method-case.ts'
import { camel, v1Message } from './descriptors.ts'
import { wireMessages, wireMethods, type WireMethod } from './wire-v1.ts'
import { makeWorld, startWalkServer, tokenWith, walkTerms, type World } from '../world.ts'

/** The required parts of an answer. */
type Required = (world: World) => JsonObject

const text: unknown = expect.stringMatching(/./)
const time: unknown = expect.stringMatching(/Z$/)
const rawToken = { token: text, expiry: time }

const group = { id: text, name: text } as JsonObject
const role = { id: text, name: text, capabilities: ['groups.list'] } as JsonObject
const binding = { id: text, identity: text, group: text, role: text } as JsonObject
const identity = { id: text, name: text, createdAt: time, updatedAt: time, claimMatch: { issuer: text, subject: text } } as JsonObject
const repo = { id: text, name: text, createTime: time } as JsonObject
const tag = { id: text, name: text, digest: text, lastUpdated: time } as JsonObject
const provider = { id: text, name: text, defaultRole: text, oidc: { issuer: text, clientId: text } } as JsonObject
const association = { group: text, name: text, amazon: { account: text } } as JsonObject
const mapping = { id: text, identityProviderUidp: text, externalGroupId: text, roleUidp: text, scope: text, createdAt: time } as JsonObject
const changedGroup = { ...group, description: 'changed' } as JsonObject

/** The answer of a list that contains a record with these fields. */
function some(fields: unknown): Required {
  return () => ({ items: expect.arrayContaining([expect.objectContaining(fields as object)]) as JsonObject[] })
}

/** What the answer of each method must have. */
const answers: Readonly<Record<string, Required>> = {
  'Groups/Create': () => group,
  'Groups/Update': () => changedGroup,
  'Groups/List': some(group),
  'Groups/Delete': () => ({}),
  'Identities/Create': () => identity,
  'Identities/Update': () => identity,
  'Identities/List': some({ id: text, name: text, createdAt: time }),
  'Identities/Lookup': () => ({ id: text, claimMatch: { issuer: text, subject: text } }) as JsonObject,
  'Identities/Delete': () => ({}),
  'Subscriptions/Create': () => ({ id: text, sink: text }) as JsonObject,
  'Subscriptions/List': some({ id: text, sink: text }),
  'Subscriptions/Delete': () => ({}),
  'Registry/CreateRepo': () => repo,
  'Registry/UpdateRepo': () => repo,
  'Registry/ListRepos': some(repo),
  'Registry/DeleteRepo': () => ({}),
  'Registry/CreateTag': () => tag,
  'Registry/UpdateTag': () => ({ ...tag, deprecated: true }),
  'Registry/ListTags': some(tag),
  'Registry/DeleteTag': () => ({}),
  'RoleBindings/CreateBatch': () => ({ roleBindings: [binding] }),
  'IdentityProviders/Create': () => provider,
  'IdentityProviders/Update': () => provider,
  'IdentityProviders/List': some({ id: text, name: text, defaultRole: text }),
  'IdentityProviders/Delete': () => ({}),
  'IdentityProviders/GenerateScimToken': () => ({ token: text, endpointUrl: text, identityProviderId: text, etag: text }) as JsonObject,
  'IdentityProviders/RegenerateScimToken': () =>
    ({ token: text, identityProviderId: text, etag: text, previousTokenExpireTime: time, requestedOverlap: text }) as JsonObject,
  'IdentityProviders/RevokeScimToken': () => ({ identityProviderId: text, etag: text, revokeTime: time }) as JsonObject,
  'IdentityProviders/SetScimEnabled': () => ({ identityProviderId: text, etag: text }) as JsonObject,
  'GroupAccountAssociations/Create': () => association,
  'GroupAccountAssociations/Update': () => association,
  'GroupAccountAssociations/List': some(association),
  'GroupAccountAssociations/Delete': () => ({}),
  'GroupAccountAssociations/Check': () => ({ reason: text }) as JsonObject,
  'GroupInvites/Create': () => ({ id: text, expiration: time, keyId: text, role, code: text }) as JsonObject,
  'GroupInvites/List': some({ id: text, expiration: time, createdAt: time }),
  'GroupInvites/Delete': () => ({}),
  'ExternalGroupRoleMappings/Create': () => mapping,
  'ExternalGroupRoleMappings/Get': () => mapping,
  'ExternalGroupRoleMappings/List': some(mapping),
  'ExternalGroupRoleMappings/Delete': () => ({}),
  'ExternalGroupRoleMappings/BatchDelete': () => ({ parentId: text, items: [mapping, mapping] }) as JsonObject,
  'Terms/AcceptTerms': () => ({ group: text, documentIds: walkTerms.map(({ id }) => id) }) as JsonObject,
  'Terms/ListAccepted': some({ docId: text, acceptedBy: text, acceptedAt: time }),
  'Groups/LookupGroup': () => ({ group }),
  'Groups/RequestGroupAccess': () => ({}),
  'Groups/CheckEligibility': () => ({ eligible: true }),
  'Registry/GetArchs': () => ({ archs: ['amd64'] }),
  'Registry/GetImageConfig': () => ({}),
  'Registry/GetRepoCountBySource': () => ({}),
  'Registry/GetRepoTagsSummary': () => ({ id: text, tagCount: '1', lastUpdated: time, latestTag: { ...tag, name: 'latest' } }) as JsonObject,
  'Registry/GetSize': () => ({ size: text, arch: 'amd64' }) as JsonObject,
  'Registry/ListTagHistory': () => ({ items: [{ updateTimestamp: time, digest: text }] }) as JsonObject,
  'Roles/Create': () => role,
  'Roles/Update': () => role,
  'Roles/List': some({ id: text, name: text, capabilities: ['groups.list'] }),
  'Roles/Delete': () => ({}),
  'RoleBindings/Create': () => binding,
  'RoleBindings/Update': () => binding,
  'RoleBindings/List': some({
    id: text,
    identity: text,
    createdAt: time,
    group: expect.objectContaining({ id: text, name: text }) as unknown,
    role: expect.objectContaining({ id: text, name: text }) as unknown,
  }),
  'RoleBindings/Delete': () => ({}),
  'Auth/Validate': ({ server, group }) =>
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
  'Auth/Register': () => ({ identity: text }) as JsonObject,
  'Auth/GetHeadlessSession': () => ({ ecdhPublicKey: text, encryptedIdtoken: text }) as JsonObject,
  'Auth/Delete': () => ({}),
  'SecurityTokenService/Exchange': () => rawToken as JsonObject,
  'SecurityTokenService/ExchangeRefreshToken': () => ({ token: rawToken, refreshToken: rawToken }) as JsonObject,
}

/** Returns the full names by which clients call a service. Names of the API family have no version. */
function servicesOf(name: string): string[] {
  const domain = methods.find((method) => caseName(method) === name)?.domain ?? ''
  return [`taproot.${domain}.v1`, `chainguard.platform.${domain}`]
}

/** The JSON names of fields with enums. */
const enumNames = new Set(Object.values(wireMessages).flatMap((fields) => [...fields.matchAll(/\d+ (\w+) e\b/g)].map(([, name = '']) => camel(name))))

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
    expect(Object.keys(answers).toSorted()).toEqual(known.toSorted())
  })

  function wireOf(name: string): WireMethod & { readonly answer: Required } {
    const [method, answer] = [wireMethods[name], answers[name]]
    if (method === undefined || answer === undefined) throw new Error(`no method ${name}`)
    return { ...method, answer }
  }

  const calls = Object.keys(answers).flatMap((name) => servicesOf(name).map((domain) => [`${domain}.${name}`, name] as const))
  test.each(calls)('gRPC /%s', async (path, name) => {
    const { input, output, answer } = wireOf(name)
    const request = await caseOf(name).request(world)
    const bytes = toBinary(v1Message(input), fromJson(v1Message(input), request))
    const answered = fromBinary(v1Message(output), await unary(`/${path}`, bytes, await tokenFor(name)))
    expect(toJson(v1Message(output), answered)).toMatchObject(answer(world))
    expect(unknownNumbers(v1Message(output), answered).filter((number) => number < firstOwnNumber)).toEqual([])
  })

  test.each(Object.keys(answers))('REST %s', async (name) => {
    const { input, output, http = '', body, answer } = wireOf(name)
    const [verb = '', template = ''] = http.split(' ')
    const request = toJson(v1Message(input), fromJson(v1Message(input), await caseOf(name).request(world))) as JsonObject // a message is an object
    const token = await tokenFor(name)
    const rest = { ...request }
    const path = template.replaceAll(/\{(\w+)=\*\*?\}/g, (_, variable: string) => {
      const value = String(rest[camel(variable)])
      delete rest[camel(variable)]
      return encodeURIComponent(value)
    })
    const flat = Object.entries(rest).flatMap(([key, value]) =>
      typeof value === 'object' && value !== null ? Object.entries(value).map(([inner, one]) => [`${key}.${inner}`, String(one)]) : [[key, String(value)]],
    )
    const query = body === undefined ? `?${new URLSearchParams(flat)}` : ''
    const response = await fetch(`http://127.0.0.1:${server.config.api.port}${path}${query}`, {
      method: verb,
      headers: { authorization: `Bearer ${token}`, ...(body === undefined ? {} : { 'content-type': 'application/json' }) },
      ...(body === undefined ? {} : { body: JSON.stringify(body === '*' ? request : request[camel(body)]) }),
    })
    const answered = await response.text()
    expect(response.status, answered).toBe(200)
    const { emailVerified: _own, ...json } = JSON.parse(answered === '' ? '{}' : answered) as JsonObject
    // Fails on a key that is not in the descriptors; enums are names in JSON.
    const numbers = JSON.parse(JSON.stringify(json), (key, value: unknown) => (enumNames.has(key) ? 0 : value)) as JsonObject
    expect(isMessage(fromJson(v1Message(output), numbers), v1Message(output))).toBe(true)
    expect(json).toMatchObject(answer(world))
  })
})
