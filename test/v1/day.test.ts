import type { JsonObject } from '@bufbuild/protobuf'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { createGrpcWireClient, createRestWireClient, type WireClient, type WireError } from '../conformance/walk/v1/wire-client.ts'
import { OciClient } from '../registry/oci/oci-client.ts'
import { freshName, roleUid, startTestServer, type TestServer } from '../support/test-server.ts'
import { describeOnChosenStore } from '../support/parts/require-part.ts'

const terms = [{ id: 'terms', label: 'Terms', url: 'https://terms.example' }]
const time: unknown = expect.stringMatching(/Z$/)

/** The items of a list. Clients of version 1 get an empty list without the field. */
function itemsIn(body: JsonObject): JsonObject[] {
  return (body['items'] ?? []) as JsonObject[] // a list answer
}

function idIn({ id }: JsonObject): string {
  return String(id)
}

/** A client that knows version 1 alone, and the token that it has now. */
interface Day {
  readonly server: TestServer
  readonly client: WireClient
  readonly subject: string
  token: string
}

function call({ client, token }: Day, name: string, request: JsonObject): Promise<JsonObject> {
  return client.call(name, request, token)
}

async function codeOf(answer: Promise<unknown>): Promise<number> {
  return answer.then(
    () => 0,
    (error: WireError) => error.code,
  )
}

/** Exchanges the token of the identity provider for one with this audience. */
async function exchanged({ server, client, subject }: Day, audience = server.config.baseUrl): Promise<string> {
  const external = await server.devIssuer.mintDevToken({ subject, audience: server.config.baseUrl })
  const { token, expiry } = await client.call('SecurityTokenService/Exchange', { aud: [audience] }, external)
  expect(expiry).toEqual(time)
  return String(token)
}

/** Registers the person and signs in. */
async function signIn(day: Day): Promise<void> {
  const { server, client, subject } = day
  expect(await client.call('PingService/Ping', {})).toEqual({ response: 'pong' })
  const external = await server.devIssuer.mintDevToken({ subject, audience: server.config.baseUrl })
  const { identity } = await client.call('Auth/Register', {}, external)
  day.token = await exchanged(day)
  expect(await call(day, 'Auth/Validate', {})).toMatchObject({ subject: identity, issuedAt: time, expiry: time })
  expect(await call(day, 'Identities/Lookup', { issuer: server.devIssuer.issuer, subject })).toMatchObject({ id: identity })
}

/** Creates the organisation and a group in it. */
async function makeGroups(day: Day): Promise<{ root: string; team: string }> {
  expect(await call(day, 'Groups/List', {})).toEqual({})
  const root = await call(day, 'Groups/Create', { group: { name: freshName('day'), description: 'first' } })
  day.token = await exchanged(day)
  expect(itemsIn(await call(day, 'Groups/List', { id: idIn(root) }))).toEqual([root])
  const { capabilities } = await call(day, 'Auth/Validate', {})
  expect(capabilities).toMatchObject([{ group: { id: root['id'] }, role: { name: 'owner' } }])
  const team = await call(day, 'Groups/Create', { parent: idIn(root), group: { name: 'team', description: 'first' } })
  const renamed = await call(day, 'Groups/Update', { ...team, name: 'crew' })
  expect(renamed).toEqual({ ...team, name: 'crew' })
  expect(itemsIn(await call(day, 'Groups/List', { uidp: { childrenOf: idIn(root) } }))).toEqual([renamed])
  expect(await codeOf(call(day, 'Groups/Create', { parent: idIn(root), group: { name: 'No Good' } }))).toBe(3)
  return { root: idIn(root), team: idIn(team) }
}

/** A create of a record, a change of it, and the list that shows it. */
interface Round {
  readonly service: string
  readonly create: JsonObject
  readonly list: (id: string) => JsonObject
  /** Fields of the replacing record. Absent for records that cannot change. */
  readonly change?: JsonObject
  readonly idField?: string
}

/** Creates a record, finds it unchanged in a list, and replaces it. Returns its id. */
async function lives(day: Day, { service, create, list, change, idField = 'id' }: Round): Promise<string> {
  const made = await call(day, `${service}/Create`, create)
  const id = String(made[idField])
  expect(itemsIn(await call(day, `${service}/List`, list(id))), service).toEqual([made])
  if (change === undefined) return id
  const replaced = await call(day, `${service}/Update`, { ...made, ...change })
  expect(replaced, service).toMatchObject(change)
  expect(itemsIn(await call(day, `${service}/List`, list(id))), service).toEqual([replaced])
  return id
}

/** Gives others access, in each way of version 1. Returns the deletes that undo it, in their order. */
async function giveAccess(day: Day, team: string): Promise<[name: string, request: JsonObject][]> {
  const byId = (id: string): JsonObject => ({ id })
  const claimMatch = { issuer: 'https://issuer.example', subject: 'ci' }
  const role = await lives(day, {
    service: 'Roles',
    create: { parentId: team, role: { name: 'builder', capabilities: ['groups.list', 'repo.list'] } },
    list: byId,
    change: { description: 'builds', capabilities: ['groups.list'] },
  })
  const identities: string[] = []
  for (const name of ['one', 'two', 'three'])
    identities.push(await lives(day, { service: 'Identities', create: { parentId: team, identity: { name, claimMatch } }, list: byId }))
  const [one = '', two = '', three = ''] = identities
  const binding = await call(day, 'RoleBindings/Create', { parent: team, roleBinding: { identity: one, role } })
  const { roleBindings } = await call(day, 'RoleBindings/CreateBatch', {
    parent: team,
    roleBindings: [two, three].map((identity) => ({ identity, role: roleUid('viewer') })),
  })
  const bound = itemsIn(await call(day, 'RoleBindings/List', { uidp: { childrenOf: team } }))
  expect(bound.map(({ identity }) => identity).toSorted()).toEqual(identities.toSorted())
  expect(bound.find(({ id }) => id === binding['id'])).toMatchObject({ role: { name: 'builder' }, group: { name: 'crew' }, claimMatchSubject: 'ci' })
  const oidc = { issuer: 'https://login.example', clientId: 'day', clientSecret: 'a secret' }
  const provider = await lives(day, {
    service: 'IdentityProviders',
    create: { parentId: team, identityProvider: { name: 'sso', defaultRole: roleUid('viewer'), oidc } },
    list: byId,
  })
  const mapping = await call(day, 'ExternalGroupRoleMappings/Create', {
    parentId: provider,
    mapping: { externalGroupId: 'staff', roleUidp: roleUid('viewer'), scope: team.slice(0, 40) },
  })
  expect(await call(day, 'ExternalGroupRoleMappings/Get', { uid: idIn(mapping) })).toEqual(mapping)
  const invite = await call(day, 'GroupInvites/Create', { group: team, role: roleUid('viewer'), ttl: '3600s', email: 'new@acme.example' })
  expect(itemsIn(await call(day, 'GroupInvites/List', { group: team }))).toMatchObject([{ id: invite['id'], email: 'new@acme.example' }])
  const group = await lives(day, {
    service: 'GroupAccountAssociations',
    create: { group: team, name: 'accounts', amazon: { account: '123456789012' } },
    list: (id) => ({ group: id }),
    change: { google: { projectId: 'acme', projectNumber: '42' } },
    idField: 'group',
  })
  await call(day, 'Terms/AcceptTerms', { group: team, documentIds: ['terms'] })
  expect(itemsIn(await call(day, 'Terms/ListAccepted', { group: team }))).toMatchObject([{ docId: 'terms', acceptedAt: time }])
  const subscription = await lives(day, {
    service: 'Subscriptions',
    create: { parentId: team, subscription: { sink: 'https://hooks.example.com/day' } },
    list: byId,
  })
  return [
    ['Subscriptions/Delete', { id: subscription }],
    ['GroupAccountAssociations/Delete', { group }],
    ['GroupInvites/Delete', { id: idIn(invite) }],
    ['ExternalGroupRoleMappings/BatchDelete', { parentId: provider, ids: [idIn(mapping)] }],
    ['IdentityProviders/Delete', { id: provider }],
    ...[binding, ...((roleBindings ?? []) as JsonObject[])].map((one): [string, JsonObject] => ['RoleBindings/Delete', { id: idIn(one) }]),
    ...identities.map((id): [string, JsonObject] => ['Identities/Delete', { id }]),
    ['Roles/Delete', { id: role }],
  ]
}

/** Reads the reports of version 1 about an image that three tags of a repo name. */
async function readReports(day: Day, { repo, digest }: { repo: string; digest: string }): Promise<void> {
  const tags = itemsIn(await call(day, 'Registry/ListEolTags', { uidp: { childrenOf: repo } }))
  expect(tags.map(({ name }) => name).toSorted()).toEqual(['1.27', 'latest', 'soon'])
  for (const { mainPackageVersion } of tags) expect(mainPackageVersion).toEqual({})
  expect(await call(day, 'Registry/GetVulnReport', { repoId: repo, digest })).toMatchObject({ id: digest, scanner: { name: 'taproot' } })
  const byTag = itemsIn(await call(day, 'Vulnerabilities/ListVulnReports', { repoId: repo }))
  expect(byTag).toMatchObject([{ digest }])
  expect(itemsIn(await call(day, 'Vulnerabilities/ListVulnReports', { digest }))).toMatchObject([{ digest }])
  const { rawReport } = await call(day, 'Vulnerabilities/GetRawVulnReport', { digest })
  expect(JSON.parse(String(rawReport))).toMatchObject({ bomFormat: 'CycloneDX', metadata: { component: { name: 'nginx', version: digest } } })
  const now = new Date().toISOString()
  for (const method of ['ListVulnCountReports', 'ListCumulativeVulnCountReports'])
    for (const { repo: of, tag } of itemsIn(await call(day, `Vulnerabilities/${method}`, { repo: 'nginx', from: now, to: now })))
      expect([of, tag]).toEqual(['nginx', 'latest'])
}

/** Pushes images, and reads what version 1 says of them. */
async function useRepo(day: Day, { root, team }: { root: string; team: string }): Promise<string> {
  const { server } = day
  const wanted = { name: 'nginx', readme: '# Read me', catalogTier: 'FIPS', bundles: ['base'], aliases: ['nginx:1'], activeTags: ['2', '1'] }
  const made = await call(day, 'Registry/CreateRepo', { parentId: team, repo: wanted })
  expect(made).toMatchObject({ ...wanted, createTime: time })
  const [listed] = itemsIn(await call(day, 'Registry/ListRepos', { id: idIn(made) }))
  expect(listed).toEqual(made)
  const changed = await call(day, 'Registry/UpdateRepo', { ...made, description: 'a web server' })
  expect(changed).toEqual({ ...made, description: 'a web server' })
  const repo = idIn(made)
  const [{ name = '' } = {}] = itemsIn(await call(day, 'Groups/List', { id: root }))
  const client = new OciClient(server.config.registry.port, await exchanged(day, server.config.registry.host))
  const path = `${String(name)}/crew/nginx`
  const digests = [(await client.pushImage(path, 'latest')).digest, (await client.pushImage(path, 'latest')).digest]
  client.close()
  const [, digest = ''] = digests
  const [tag] = itemsIn(await call(day, 'Registry/ListTags', { uidp: { childrenOf: repo } }))
  expect(tag).toMatchObject({ name: 'latest', digest })
  const copy = await call(day, 'Registry/CreateTag', { repoId: repo, tag: { name: '1.27', digest } })
  expect(itemsIn(await call(day, 'Registry/ListTags', { id: idIn(copy) }))).toEqual([copy])
  const ended = await call(day, 'Registry/UpdateTag', { ...copy, deprecated: true })
  expect(ended).toMatchObject({ name: '1.27', digest, deprecated: true })
  const soon = await call(day, 'Registry/CreateTag', { repoId: repo, tag: { name: 'soon' } })
  expect(soon).toMatchObject({ name: 'soon', lastUpdated: time })
  expect(await call(day, 'Registry/GetRepoTagsSummary', { repoId: repo })).toMatchObject({
    id: repo,
    tagCount: '3',
    latestTag: tag ?? {},
    latestVersion: '1.27',
  })
  const history = itemsIn(await call(day, 'Registry/ListTagHistory', { parentId: idIn(tag ?? {}) }))
  expect(history.map((one) => one['digest'])).toEqual(digests)
  expect(await call(day, 'Registry/GetArchs', { repoId: repo, digest })).toEqual({ archs: ['amd64'] })
  expect(await call(day, 'Registry/GetSize', { repoId: repo, digest })).toMatchObject({ arch: 'amd64' })
  expect(await call(day, 'Registry/GetImageConfig', { repoId: repo, digest })).toEqual({})
  expect(await call(day, 'Registry/GetRepoCountBySource', { id: repo })).toEqual({})
  await readReports(day, { repo, digest })
  for (const one of [copy, soon]) await call(day, 'Registry/DeleteTag', { id: idIn(one) })
  return repo
}

describeOnChosenStore('a day of a client that only knows version 1', (store) => {
  let server: TestServer
  beforeAll(async () => {
    server = await startTestServer({ store, env: { TAPROOT_TERMS: JSON.stringify(terms) } })
  })
  afterAll(() => server.stop())

  describe.each([
    ['gRPC', createGrpcWireClient],
    ['REST', createRestWireClient],
  ] as const)('over %s', (_, create) => {
    test('it signs in, makes groups, gives access, uses a repo, and leaves nothing', async () => {
      const client = create(server.config.api.port)
      const day: Day = { server, client, subject: freshName('person'), token: '' }
      await signIn(day)
      const groups = await makeGroups(day)
      const undo = await giveAccess(day, groups.team)
      const repo = await useRepo(day, groups)
      expect(await codeOf(call(day, 'Groups/Delete', { id: groups.team }))).toBe(9)
      undo.push(['Registry/DeleteRepo', { id: repo }], ['Groups/Delete', { id: groups.team }], ['Groups/Delete', { id: groups.root }])
      // Each delete can be repeated.
      for (const [name, request] of undo) for (let times = 0; times < 2; times++) await call(day, name, request)
      for (const list of ['Groups', 'Roles', 'RoleBindings', 'Identities', 'IdentityProviders', 'GroupInvites', 'GroupAccountAssociations', 'Subscriptions']) {
        const left = itemsIn(await call(day, `${list}/List`, {}))
        expect(
          left.filter(({ id, group }) => String(id ?? group).startsWith(groups.root)),
          list,
        ).toEqual([])
      }
      expect(await codeOf(client.call('Groups/List', {}))).toBe(16)
      client.close()
    })
  })
})
