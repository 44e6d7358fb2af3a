import type { JsonObject, JsonValue } from '@bufbuild/protobuf'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { MethodRow } from '../../src/base/schema/method.ts'
import { specSuite, itemsOf, uidOf } from '../conformance/spec/spec-suite.ts'
import { grpcClient, type ApiClient } from '../support/api-clients.ts'
import { resourceTypes, type ProviderCall, type ResourceType, type TerraformPlace } from './terraform-resources.ts'
import { importProduct } from '../support/import-advisories.ts'
import { freshName, makeMember, makeOrganisation, ok, roleUid } from '../support/test-server.ts'

function isEmpty(value: JsonValue | undefined): boolean {
  if (typeof value === 'object' && value !== null) return Object.keys(value).length === 0
  if (typeof value === 'string') return /^$|^UNKNOWN$|_UNSPECIFIED$/.test(value)
  return value === undefined || value === null || value === false || value === 0
}

/** Returns a value as Terraform compares it: empty values are none, times are whole seconds. */
function normal(value: JsonValue): JsonValue {
  if (typeof value === 'string') return /^\d{4}-\d\d-\d\dT.*Z$/.test(value) ? `${value.slice(0, 19)}Z` : value
  if (Array.isArray(value)) return value.map(normal)
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(
    Object.entries(value)
      .filter(([, inner]) => !isEmpty(inner))
      .map(([key, inner]) => [key, normal(inner)]),
  )
}

specSuite(
  'resources of a Terraform provider',
  (spec) => {
    let provider: ApiClient
    let organisation: Awaited<ReturnType<typeof makeOrganisation>>
    let operator: string
    let shared: Omit<TerraformPlace, 'group' | 'name'>

    /** Returns the name of a service in the packages of the provider. */
    const serviceOf = ({ service }: MethodRow): string =>
      service.replace(
        /^taproot\.([a-z]+)\.(v\d)\./,
        (_, domain: string, version: string) => `chainguard.platform.${domain}${version === 'v2' ? '.v2beta1' : ''}.`,
      )

    beforeAll(async () => {
      provider = grpcClient(`127.0.0.1:${spec.server.config.api.port}`, serviceOf)
      organisation = await makeOrganisation(spec.server)
      operator = await spec.server.operatorToken()
      const { group, token } = organisation
      const [one, two] = [await makeMember(spec.server, group), await makeMember(spec.server, group)]
      const role = await spec.ok('CreateRole', { parent: group, role: { name: 'plain', capabilities: ['CAP_IAM_GROUPS_LIST'] } }, { token })
      const source = await spec.ok('CreateRepo', { parent: group, repo: { name: 'source' } }, { token })
      shared = { identities: [one.uid, two.uid], role: uidOf(role), source: uidOf(source) }
    })
    afterAll(() => provider.close())

    const tokenOf = ({ where }: Partial<ResourceType>): string => (where === 'nowhere' ? operator : organisation.token)
    const call = (request: ProviderCall, token = organisation.token) => provider.call(...request, { token })
    const made = async (request: ProviderCall, token = organisation.token): Promise<JsonObject> => ok(await call(request, token))
    const newPlace = async (): Promise<TerraformPlace> => {
      const name = freshName('place')
      const group = await made(['CreateGroup', { parent: organisation.group, group: { name } }])
      return { ...shared, group: uidOf(group), name }
    }

    /** Compares what an answer has with the configuration: a difference is a plan with a change. */
    function expectNoChange(type: ResourceType, record: JsonObject, attributes: JsonObject): void {
      const { attributesOf = (read) => read, ignored = [], computed = [] } = type
      const known = new Set(Object.keys({ ...attributes, ...noAttributes(type) }))
      const read = Object.fromEntries(Object.entries(attributesOf(record)).filter(([key]) => known.has(key)))
      expect(normal(withoutKeys(read, ignored))).toEqual(normal(withoutKeys(attributes, ignored)))
      for (const name of computed) expect(record, name).toHaveProperty(name)
    }

    /** Returns the attributes that a change can set. */
    function noAttributes({ changes = {} }: ResourceType): JsonObject {
      const place: TerraformPlace = { ...shared, group: '', name: '' }
      return Object.fromEntries(Object.values(changes).flatMap((change) => Object.keys(change(place)).map((key) => [key, null])))
    }

    async function read(type: ResourceType, id: string): Promise<JsonObject | undefined> {
      const { calls } = type
      const reply = await call(calls.read(id), tokenOf(type))
      if (reply.code === 5 && calls.forgives) return undefined
      return calls.recordIn(ok(reply))
    }

    async function created(type: ResourceType, place: TerraformPlace): Promise<{ id: string; record: JsonObject }> {
      const repo = async () => String((await made(['Registry/CreateRepo', { parentId: place.group, repo: { name: 'images' } }]))['id'])
      const parent = type.where === undefined ? place.group : type.where === 'repo' ? await repo() : ''
      const record = await made(type.calls.create(parent, type.first(place)), tokenOf(type))
      return { id: type.calls.idOf(record), record }
    }

    async function expectPlanned(type: ResourceType, id: string, attributes: JsonObject): Promise<void> {
      const [first, second] = [await read(type, id), await read(type, id)]
      expectNoChange(type, first ?? {}, attributes)
      expect(second).toEqual(first)
      for (const name of type.once ?? []) expect(first, name).not.toHaveProperty(name)
    }

    const rows = Object.entries(resourceTypes)

    test.each(rows)('%s: a plan after the create and after the import has no change', async (_, type) => {
      const place = await newPlace()
      const { id, record } = await created(type, place)
      // The form of ids that the provider accepts.
      expect(id).toMatch(/^[0-9a-f]{40}(\/[0-9a-f]{16})*$/)
      expectNoChange(type, record, type.first(place))
      for (const name of type.once ?? []) expect(record[name], name).toMatch(/./)
      await expectPlanned(type, id, type.first(place))
    })

    test.each(rows.filter(([, { changes }]) => changes !== undefined))('%s: each attribute is updated, and the next plan has no change', async (_, type) => {
      const place = await newPlace()
      const { id, record } = await created(type, place)
      let attributes = type.first(place)
      for (const [what, change] of Object.entries(type.changes ?? {})) {
        const changed = change(place)
        attributes = JSON.parse(JSON.stringify({ ...attributes, ...changed })) as JsonObject // without undefined attributes
        const answer = await made(type.calls.update?.(id, attributes, Object.keys(changed)) ?? ['', {}], tokenOf(type))
        expect(type.calls.idOf(answer), what).toBe(id)
        expectNoChange(type, answer, attributes)
        await expectPlanned(type, id, attributes)
        expect(answer['createTime'], what).toEqual(record['createTime'])
      }
    })

    test.each(rows.filter(([, { behind }]) => behind !== undefined))('%s: a plan finds what was changed behind its back, and restores it', async (_, type) => {
      const place = await newPlace()
      const { id } = await created(type, place)
      await made(type.behind?.(id, place) ?? ['', {}], tokenOf(type))
      const drifted = await read(type, id)
      expect(() => expectNoChange(type, drifted ?? {}, type.first(place))).toThrow()
      const { update, delete: remove = () => ['', {}] } = type.calls
      const isReplaced = update === undefined
      await made(isReplaced ? remove(id) : update(id, type.first(place), Object.keys(noAttributes(type))), tokenOf(type))
      await expectPlanned(type, isReplaced ? (await created(type, place)).id : id, type.first(place))
    })

    test.each(rows)('%s: a record that is gone is dropped, made again, and deleted twice', async (_, type) => {
      const place = await newPlace()
      const { id } = await created(type, place)
      const token = tokenOf(type)
      const [rpc, request] = typeof type.remove === 'string' ? [type.remove, { uid: id }] : type.remove(id)
      await spec.ok(rpc, request, { token })
      expect(await read(type, id)).toBeUndefined()
      const again = await created(type, place)
      await expectPlanned(type, again.id, type.first(place))
      for (const code of [0, type.calls.forgives ? 5 : 0]) expect((await call(type.calls.delete?.(again.id) ?? ['', {}], token)).code).toBe(code)
      expect(await read(type, again.id)).toBeUndefined()
    })

    test('attributes for services of the vendor are refused, and nothing is made', async () => {
      const { group, identities } = await newPlace()
      const identity = { name: 'ci', servicePrincipal: 14 }
      const bound = { name: 'accounts', platform: { serviceBindings: { INGESTER: identities[0] } } }
      expect((await call(['CreateIdentity', { parent: group, identity }])).code).toBe(3)
      expect((await call(['CreateAccountAssociation', { parent: group, accountAssociation: bound }])).code).toBe(3)
      expect(await all('ListIdentities', 'identities', { uidp: { childrenOf: group } })).toEqual([])
      expect((await call(['GetAccountAssociation', { uid: group }])).code).toBe(5)
    })

    test('a deployment that exists is updated in place of the create', async () => {
      const { group } = await newPlace()
      const { id } = await made(['Registry/CreateRepo', { parentId: group, repo: { name: 'images' } }])
      const [one, two] = [[{ repo: 'oci://charts.example/one' }], [{ repo: 'oci://charts.example/two' }]]
      await made(['Registry/CreateDeployment', { parentId: String(id), charts: one }])
      expect((await call(['Registry/CreateDeployment', { parentId: String(id), charts: two }])).code).toBe(6)
      await made(['Registry/UpdateDeployment', { repoId: String(id), charts: two }])
      expect(await made(['Registry/GetDeployment', { repoId: String(id) }])).toMatchObject({ id: id ?? '', charts: two })
      // The provider takes a missing repo for an error.
      expect((await call(['Registry/GetDeployment', { repoId: `${group}/0123456789abcdef` }])).code).toBe(5)
    })

    test('updates of the provider keep what it does not send', async () => {
      const { group, role } = await newPlace()
      const customOverlay = { environment: { LANG: 'C' } }
      const repo = uidOf(await made(['CreateRepo', { parent: group, repo: { name: 'nginx', customOverlay } }]))
      await made(['Registry/UpdateRepo', { id: repo, name: 'nginx', description: 'changed' }])
      expect(await made(['GetRepo', { uid: repo }])).toMatchObject({ description: 'changed', customOverlay })
      const login = { issuer: 'https://login.example', clientId: 'one', clientSecret: 'a secret' }
      const correlationRule = 'CORRELATION_RULE_OID_EQUALS_EXTERNAL_ID'
      const identityProvider = { name: 'sso', defaultRole: role, oidc: { ...login, correlationRule, groupsClaim: 'groups' } }
      const uid = uidOf(await made(['CreateIdentityProvider', { parent: group, identityProvider }]))
      const { oidc } = await made(['UpdateIdentityProvider', { identityProvider: { uid, name: 'sso', defaultRole: role, oidc: login }, updateMask: '*' }])
      expect(oidc).toMatchObject({ correlationRule, groupsClaim: '' })
    })

    test('a new root group is seen at once by who made it, with a new token, in version 1', async () => {
      const subject = freshName('person')
      const external = () => spec.server.devIssuer.mintDevToken({ subject, audience: spec.server.config.baseUrl })
      await provider.call('Auth/Register', {}, { token: await external() })
      const exchanged = async (): Promise<string> =>
        String(ok(await provider.call('SecurityTokenService/Exchange', { aud: [spec.server.config.baseUrl] }, { token: await external() }))['token'])
      const name = freshName('root')
      const record = ok(await provider.call('CreateGroup', { group: { name, description: 'by Terraform', verified: false } }, { token: await exchanged() }))
      const id = uidOf(record)
      const token = await exchanged()
      expect(itemsOf(ok(await provider.call('Groups/List', { id }, { token })), 'items')).toMatchObject([{ id, name }])
      const update = { group: { uid: id, name, description: 'changed', verified: false }, updateMask: 'name,description,verified' }
      expect(ok(await provider.call('UpdateGroup', update, { token }))).toMatchObject({ name, description: 'changed' })
      // The mask always has `verified`, which only operators change.
      const verified = { group: { uid: id, verified: true, kind: 'ORG_KIND_CUSTOMER' }, updateMask: 'verified,kind' }
      ok(await provider.call('UpdateGroup', verified, { token: operator }))
      const again = { group: { uid: id, name, description: 'again', verified: true }, updateMask: 'name,description,verified' }
      expect(ok(await provider.call('UpdateGroup', again, { token }))).toMatchObject({ description: 'again', verified: true, kind: 'ORG_KIND_CUSTOMER' })
      ok(await provider.call('DeleteGroup', { uid: id }, { token }))
      expect((await provider.call('GetGroup', { uid: id }, { token })).code).toBe(5)
    })

    /** Reads all pages of a list. */
    async function all(rpc: string, plural: string, filter: JsonObject): Promise<JsonObject[]> {
      const found: JsonObject[] = []
      let pageToken = ''
      do {
        const body = await made([rpc, { ...filter, pageSize: 50, pageToken }])
        found.push(...itemsOf(body, plural))
        pageToken = String(body['nextPageToken'] ?? '')
      } while (pageToken !== '')
      return found
    }

    test('data sources find groups, roles and repos by their names', async () => {
      const { group } = organisation
      const [{ name }] = (await all('ListGroups', 'groups', { uidp: { ids: [group] } })) as [JsonObject]
      // The provider sends no filter for the parent `/`, and keeps root groups.
      const roots = (await all('ListGroups', 'groups', { name: String(name) })).filter(({ uid }) => !String(uid).includes('/'))
      expect(roots.map(uidOf)).toEqual([group])
      const place = await newPlace()
      const child = await made(['CreateGroup', { parent: place.group, group: { name: 'child' } }])
      expect((await all('ListGroups', 'groups', { name: 'child', uidp: { childrenOf: place.group } })).map(uidOf)).toEqual([uidOf(child)])
      const viewers = await all('ListRoles', 'roles', { name: 'viewer' })
      expect(viewers).toMatchObject([{ uid: roleUid('viewer'), name: 'viewer', description: expect.stringMatching(/./) as unknown }])
      const repo = await made(['Registry/CreateRepo', { parentId: place.group, repo: { name: 'nginx', readme: '# Read me' } }])
      const repos = await all('ListRepos', 'repos', { name: 'nginx', uidp: { childrenOf: place.group } })
      expect(repos.map(uidOf)).toEqual([repo['id']])
      expect(itemsOf(await made(['Registry/ListRepos', { id: String(repo['id']) }]), 'items')).toMatchObject([{ readme: '# Read me' }])
      // The provider sends the parent `/` of repos as it is.
      expect(await all('ListRepos', 'repos', { name: 'nginx', uidp: { childrenOf: '/' } })).toEqual([])
    })

    test('data sources find groups, roles and repos by their uids, and on each page', async () => {
      const { group, role, source } = await newPlace()
      for (const [kind, uid] of [
        ['Group', group],
        ['Role', role],
        ['Repo', source],
      ] as const) {
        expect(await made([`Get${kind}`, { uid }])).toMatchObject({ uid })
        expect((await call([`Get${kind}`, { uid: `${group}/0123456789abcdef` }])).code, kind).toBe(5)
      }
      // A page of the provider has 50.
      const names = Array.from({ length: 51 }, (_, at) => `repo-${100 + at}`)
      await Promise.all(names.map((name) => made(['CreateRepo', { parent: group, repo: { name } }])))
      const repos = await all('ListRepos', 'repos', { uidp: { childrenOf: group } })
      expect(repos.map(({ name }) => name).toSorted()).toEqual(names)
    })

    test('the data source of versions finds a product of the catalogue, and nothing else', async () => {
      const product = await importProduct(spec.server, organisation.group, [
        { cycle: '1', eol: '2001-02-03' },
        { cycle: '2', eol: false },
      ])
      const found = await made(['Registry/GetPackageVersionMetadata', { package: product }])
      // The provider parses the day of each version at its end, and takes the first of the others for the newest.
      expect(itemsOf(found, 'eolVersions')).toMatchObject([{ version: '1', eolDate: '2001-02-03', exists: true }])
      expect(itemsOf(found, 'versions')).toMatchObject([{ version: '2', exists: true }])
      expect((await call(['Registry/GetPackageVersionMetadata', { package: freshName('none') }])).code).toBe(5)
    })

    test('the data source of an identity finds a person who signed in, and nothing else', async () => {
      const subject = freshName('person')
      const person = { issuer: spec.server.devIssuer.issuer, subject }
      expect((await call(['Identities/Lookup', person])).code).toBe(5)
      const external = await spec.server.devIssuer.mintDevToken({ subject, audience: spec.server.config.baseUrl })
      const { identity: uid } = ok(await provider.call('Auth/Register', {}, { token: external }))
      expect(await made(['Identities/Lookup', person])).toMatchObject({ id: uid, claimMatch: person })
    })
  },
  { transports: ['grpc'] },
)

/** Returns the value without these keys, at any depth. */
function withoutKeys(value: JsonObject, keysLeftOut: readonly string[]): JsonObject {
  return JSON.parse(JSON.stringify(value, (key, inner: unknown) => (keysLeftOut.includes(key) ? undefined : inner))) as JsonObject
}
