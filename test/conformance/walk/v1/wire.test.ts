import type { JsonObject } from '@bufbuild/protobuf'
import { Client, credentials } from '@grpc/grpc-js'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { methods } from '../../../../src/base/schema/schema.ts'
import { unservedMethods, unservedRoutes } from '../../../../src/v1/index.ts'
import { makeMember, roleUid, type TestServer } from '../../../support/test-server.ts'
import { cases } from '../cases/cases.ts'
import type { MethodCase } from '../cases/method-case.ts'
import { wireName } from './differences.ts'
import { createGrpcWireClient, createRestWireClient, familyPackage, type WireClient } from './wire-client.ts'
import { untabledMethods } from './wire-reports.ts'
import { makeWorld, startWalkServer, tokenWith, walkTerms, type World } from '../world.ts'
import { describeOnStoresOfTier } from '../../../support/parts/require-part.ts'

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
const chart = { repo: text, chart: text }
const tag = { id: text, name: text, digest: text, lastUpdated: time } as JsonObject
const provider = { id: text, name: text, defaultRole: text, oidc: { issuer: text, clientId: text } } as JsonObject
const association = { group: text, name: text, amazon: { account: text } } as JsonObject
const mapping = { id: text, identityProviderUidp: text, externalGroupId: text, roleUidp: text, scope: text, createdAt: time } as JsonObject
const advisory = { id: text, artifactName: text, componentName: text, author: text, createdAt: time, updatedAt: time } as JsonObject
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
  'Registry/CreateDeployment': () => ({ id: text, charts: [chart] }) as JsonObject,
  'Registry/UpdateDeployment': () => ({ id: text, charts: [chart] }) as JsonObject,
  'Registry/GetDeployment': () => ({ id: text, charts: [chart] }) as JsonObject,
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
  'Registry/GetVulnReport': () => ({ id: text, scanner: { name: 'taproot' } }) as JsonObject,
  'Registry/ListEolTags': some({ id: text, name: text, mainPackageVersion: {} }),
  'Registry/GetPackageVersionMetadata': () =>
    ({
      lastUpdatedTimestamp: text,
      latestVersion: '2',
      versions: [{ version: '2', exists: true }],
      eolVersions: [{ version: '1', eolDate: text }],
    }) as JsonObject,
  'Registry/ListTagHistory': () => ({ items: [{ updateTimestamp: time, digest: text }] }) as JsonObject,
  'Vulnerabilities/GetRawVulnReport': () => ({ digest: text, rawReport: expect.stringMatching(/CycloneDX/) as unknown }) as JsonObject,
  'Vulnerabilities/ListCumulativeVulnCountReports': () => ({}),
  'Vulnerabilities/ListVulnCountReports': () => ({}),
  'Vulnerabilities/ListVulnReports': some({ digest: text }),
  'Advisories/Create': () => advisory,
  'Advisories/Update': () => advisory,
  'Advisories/Delete': () => ({}),
  'Advisories/CreateAdvisoryEvent': () => ({ id: text, timestamp: time, author: text, detection: { manual: {} } }) as JsonObject,
  'Advisories/ListAdvisoryEvents': () => ({ parentId: text, items: [{ id: text, author: text }] }) as JsonObject,
  'Advisories/UpdateAdvisoryEvent': () => ({ id: text, timestamp: time, reviewer: 'walk' }) as JsonObject,
  'Advisories/List': some({ id: text, advisoryId: text, artifactName: text, author: text, events: expect.arrayContaining([]) as unknown }),
  'Artifacts/List': some({ id: text, name: text, latestVersion: text, versionCount: 2 }),
  'Artifacts/ListVersions': some({ id: text, name: text, version: text }),
  'Artifacts/GetArtifactCount': () => ({ counts: [{ totalArtifacts: expect.any(Number) as number }] }),
  'SecurityAdvisory/ListDocuments': () => ({}),
  'SecurityAdvisory/ListResolvedVulnsReports': () => ({ items: expect.arrayContaining([{ date: time }]) as JsonObject[] }),
  'SecurityAdvisory/ListVulnerabilityMetadata': () => ({}),
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
  'PingService/Ping': () => ({ response: 'pong' }),
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

describeOnStoresOfTier('messages of version 1 clients', (store) => {
  let server: TestServer
  let world: World
  beforeAll(async () => {
    server = await startWalkServer(store)
    world = await makeWorld(server)
  })
  afterAll(() => server.stop())

  function caseOf(name: string): MethodCase {
    const row = cases[name]
    if (row === undefined) throw new Error(`no case ${name}`)
    return row
  }

  async function tokenFor(name: string): Promise<string> {
    if (name === 'Auth/Validate') return (await makeMember(server, world.group, { role: 'viewer' })).token
    const { caller, grants = [] } = caseOf(name)
    return (await caller?.(world)) ?? tokenWith(world, [...(methods.find((method) => wireName(method) === name)?.capabilities ?? []), ...grants])
  }

  test('messages of version 1 clients cover every method of version 1', () => {
    const known = methods.filter(({ service }) => service.includes('.v1.')).map(wireName)
    expect(Object.keys(answers).toSorted()).toEqual(known.toSorted())
  })

  // docs/spec/version-1.md#methods
  test('methods that are not served are code 12, and HTTP 501 over REST', async () => {
    const token = await server.operatorToken()
    const { port } = server.config.api
    for (const { name, verb, template } of unservedRoutes) {
      const path = template.replaceAll(/\{[^}]*\}/g, world.group.slice(0, 40))
      const answer = await fetch(`http://127.0.0.1:${port}${path}`, { method: verb, headers: { authorization: `Bearer ${token}` } })
      const details = [{ '@type': 'type.googleapis.com/google.rpc.ErrorInfo', domain: `${name.split('.')[0] ?? ''}.taproot.dev` }]
      expect([answer.status, await answer.json()], name).toMatchObject([501, { code: 12, message: `${name} is not served`, details }])
    }
    const client = new Client(`127.0.0.1:${port}`, credentials.createInsecure())
    const same = (bytes: Buffer): Buffer => bytes
    const paths = new Set([...unservedMethods, ...untabledMethods, 'registry.v1.Entitlements/List'])
    const inFamily = [...paths].map((method) => method.replace(/^(\w+)\.v1\./, (_, domain: string) => `${familyPackage(domain)}.`))
    for (const path of [...[...paths].map((method) => `taproot.${method}`), ...inFamily]) {
      const { promise, resolve } = Promise.withResolvers<number>()
      client.makeUnaryRequest(`/${path}`, same, same, Buffer.alloc(0), (error) => resolve(error?.code ?? 0))
      expect(await promise, path).toBe(12)
    }
    client.close()
    // Another verb is refused as in version 2.
    const wrong = await fetch(`http://127.0.0.1:${port}/registry/v1/eoltags`, { method: 'PATCH' })
    expect([wrong.status, wrong.headers.get('allow'), await wrong.json()]).toMatchObject([405, 'HEAD, GET, OPTIONS', { code: 12 }])
  })

  describe.each([
    ['gRPC, in the packages of Taproot', (port: number) => createGrpcWireClient(port, (domain) => `taproot.${domain}.v1`)],
    ['gRPC, in the packages of the API family', (port: number) => createGrpcWireClient(port)],
    ['REST', (port: number) => createRestWireClient(port)],
  ])('over %s', (_, create) => {
    let client: WireClient
    beforeAll(() => {
      client = create(server.config.api.port)
    })
    afterAll(() => client.close())

    test.each(Object.entries(answers))('%s', async (name, answer) => {
      const request = await caseOf(name).request(world)
      expect(await client.call(name, request, await tokenFor(name))).toMatchObject(answer(world))
    })
  })
})
