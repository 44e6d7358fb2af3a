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
  return value === undefined || value === null || value === '' || value === 'UNKNOWN' || value === false || value === 0
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
    let shared: Omit<TerraformPlace, 'group'>

    /** Returns the name of a service in the packages of the provider. */
    const serviceOf = ({ service }: MethodRow): string =>
      service.replace(
        /^taproot\.([a-z]+)\.(v\d)\./,
        (_, domain: string, version: string) => `chainguard.platform.${domain}${version === 'v2' ? '.v2beta1' : ''}.`,
      )

    beforeAll(async () => {
      provider = grpcClient(`127.0.0.1:${spec.server.config.api.port}`, serviceOf)
      organisation = await makeOrganisation(spec.server)
      const { group, token } = organisation
      const [one, two] = [await makeMember(spec.server, group), await makeMember(spec.server, group)]
      const role = await spec.ok('CreateRole', { parent: group, role: { name: 'plain', capabilities: ['CAP_IAM_GROUPS_LIST'] } }, { token })
      const source = await spec.ok('CreateRepo', { parent: group, repo: { name: 'source' } }, { token })
      shared = { identities: [one.uid, two.uid], role: uidOf(role), source: uidOf(source) }
    })
    afterAll(() => provider.close())

    const call = (request: ProviderCall) => provider.call(...request, { token: organisation.token })
    const made = async (request: ProviderCall): Promise<JsonObject> => ok(await call(request))
    const newPlace = async (): Promise<TerraformPlace> => {
      const group = await made(['CreateGroup', { parent: organisation.group, group: { name: freshName('place') } }])
      return { ...shared, group: uidOf(group) }
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
      const place: TerraformPlace = { ...shared, group: '' }
      return Object.fromEntries(Object.values(changes).flatMap((change) => Object.keys(change(place)).map((key) => [key, null])))
    }

    async function read({ calls }: ResourceType, id: string): Promise<JsonObject | undefined> {
      const reply = await call(calls.read(id))
      if (reply.code === 5 && calls.forgives) return undefined
      return calls.recordIn(ok(reply))
    }

    async function created(type: ResourceType, place: TerraformPlace): Promise<{ id: string; record: JsonObject }> {
      const repo = async () => String((await made(['Registry/CreateRepo', { parentId: place.group, repo: { name: 'images' } }]))['id'])
      const record = await made(type.calls.create(type.inRepo === undefined ? place.group : await repo(), type.first(place)))
      return { id: type.calls.idOf(record), record }
    }

    async function expectPlanned(type: ResourceType, id: string, attributes: JsonObject): Promise<void> {
      const [first, second] = [await read(type, id), await read(type, id)]
      expectNoChange(type, first ?? {}, attributes)
      expect(second).toEqual(first)
    }

    const rows = Object.entries(resourceTypes)

    test.each(rows)('%s: a plan after the create and after the import has no change', async (_, type) => {
      const place = await newPlace()
      const { id, record } = await created(type, place)
      // The form of ids that the provider accepts.
      expect(id).toMatch(/^[0-9a-f]{40}(\/[0-9a-f]{16})*$/)
      expectNoChange(type, record, type.first(place))
      await expectPlanned(type, id, type.first(place))
    })

    test.each(rows.filter(([, { changes }]) => changes !== undefined))('%s: each attribute is updated, and the next plan has no change', async (_, type) => {
      const place = await newPlace()
      const { id, record } = await created(type, place)
      let attributes = type.first(place)
      for (const [what, change] of Object.entries(type.changes ?? {})) {
        attributes = JSON.parse(JSON.stringify({ ...attributes, ...change(place) })) as JsonObject // without undefined attributes
        const answer = await made(type.calls.update?.(id, attributes) ?? ['', {}])
        expect(type.calls.idOf(answer), what).toBe(id)
        expectNoChange(type, answer, attributes)
        await expectPlanned(type, id, attributes)
        expect(answer['createTime'], what).toEqual(record['createTime'])
      }
    })

    test.each(rows.filter(([, { behind }]) => behind !== undefined))('%s: a plan finds what was changed behind its back, and restores it', async (_, type) => {
      const place = await newPlace()
      const { id } = await created(type, place)
      await made(type.behind?.(id, place) ?? ['', {}])
      const drifted = await read(type, id)
      expect(() => expectNoChange(type, drifted ?? {}, type.first(place))).toThrow()
      const { update } = type.calls
      if (update === undefined) return
      await made(update(id, type.first(place)))
      await expectPlanned(type, id, type.first(place))
    })

    test.each(rows)('%s: a record that is gone is dropped, made again, and deleted twice', async (_, type) => {
      const place = await newPlace()
      const { id } = await created(type, place)
      const { token } = organisation
      const [rpc, request] = typeof type.remove === 'string' ? [type.remove, { uid: id }] : type.remove(id)
      await spec.ok(rpc, request, { token })
      expect(await read(type, id)).toBeUndefined()
      const again = await created(type, place)
      await expectPlanned(type, again.id, type.first(place))
      for (const code of [0, type.calls.forgives ? 5 : 0]) expect((await call(type.calls.delete?.(again.id) ?? ['', {}])).code).toBe(code)
      expect(await read(type, again.id)).toBeUndefined()
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
