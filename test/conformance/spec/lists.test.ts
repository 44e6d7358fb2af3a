import type { JsonObject } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import type { Options } from '../../support/api-clients.ts'
import { makeOrganisation, ok, type Organisation, type TestServer } from '../../support/test-server.ts'
import { claimMatch, create, identityUnder, specKinds, subgroup } from './spec-kinds.ts'
import { expectFailure, itemsOf, specSuiteEverywhere, uidOf, type Spec } from './spec-suite.ts'

const bulkSize = 205

/** Many identities in one group, made once per server: their names are in another order than their times. */
interface Bulk extends Organisation {
  readonly parent: string
  readonly all: readonly JsonObject[]
}

const bulks = new WeakMap<TestServer, Promise<Bulk>>()

async function makeBulk(server: TestServer): Promise<Bulk> {
  const organisation = await makeOrganisation(server)
  const { group, token } = organisation
  const parent = uidOf(ok(await server.rest.call('CreateGroup', { parent: group, group: { name: 'bulk' } }, { token })))
  const makeOne = async (_: unknown, at: number): Promise<JsonObject> => {
    const identity = { name: `bulk ${String((at * 129) % bulkSize).padStart(3, '0')}`, claimMatch: claimMatch() }
    return ok(await server.rest.call('CreateIdentity', { parent, identity }, { token }))
  }
  return { ...organisation, parent, all: await Promise.all(Array.from({ length: bulkSize }, makeOne)) }
}

async function bulkOf(spec: Spec): Promise<Bulk> {
  const found = bulks.get(spec.server) ?? makeBulk(spec.server)
  bulks.set(spec.server, found)
  const bulk = await found
  // Tests move the time ahead of what older tokens live.
  return { ...bulk, token: await spec.server.tokenFor(bulk.owner) }
}

type Key = (record: JsonObject) => string

const byKey: Readonly<Record<string, Key>> = {
  uid: uidOf,
  name: (record) => String(record['name']),
  created: (record) => String(record['createTime']),
  updated: (record) => String(record['updateTime']),
}

/** The records in an order, ties by uid (docs/spec/conventions.md#ordering). */
function sorted(records: readonly JsonObject[], terms: readonly (readonly [key: string, sign: 1 | -1])[]): string[] {
  const compare = (a: JsonObject, b: JsonObject): number => {
    for (const [name, sign] of [...terms, ['uid', 1] as const]) {
      const key = byKey[name] ?? uidOf
      if (key(a) !== key(b)) return key(a) < key(b) ? -sign : sign
    }
    return 0
  }
  return [...records].sort(compare).map(uidOf)
}

specSuiteEverywhere('list parameters', (spec) => {
  const list = (request: JsonObject, options: Options) => spec.ok('ListIdentities', request, options)
  const refused = (request: JsonObject, options: Options) => spec.call('ListIdentities', request, options)

  /** All pages, followed by their tokens. */
  const walk = async (request: JsonObject, options: Options): Promise<{ uids: string[]; pages: number }> => {
    const uids: string[] = []
    for (let pages = 1, pageToken = ''; ; pages++) {
      const page = await list({ ...request, ...(pageToken === '' ? {} : { pageToken }) }, options)
      expect(page).toMatchObject({ totalCount: String(bulkSize), skipped: 0 })
      uids.push(...itemsOf(page, 'identities').map(uidOf))
      pageToken = String(page['nextPageToken'] ?? '')
      if (pageToken === '') return { uids, pages }
      expect(pages).toBeLessThan(bulkSize)
    }
  }

  // docs/spec/conventions.md#page-size
  test.each([
    ['of absence is 50', {}, 50],
    ['0 is 50', { pageSize: 0 }, 50],
    ['1 is 1', { pageSize: 1 }, 1],
    ['200 is 200', { pageSize: 200 }, 200],
    ['over 200 is 200', { pageSize: 201 }, 200],
    ['far over 200 is 200', { pageSize: 2_147_483_647 }, 200],
  ] as const)('page_size %s', async (_, request, expected) => {
    const { parent, token } = await bulkOf(spec)
    const page = await list({ uidp: { childrenOf: parent }, ...request }, { token })
    expect(itemsOf(page, 'identities')).toHaveLength(expected)
    expect(page).toMatchObject({ totalCount: String(bulkSize), skipped: 0 })
    expect(page['nextPageToken']).toMatch(/./)
  })

  // docs/spec/conventions.md#page-size
  test('a negative page_size is code 3', async () => {
    const { token } = await bulkOf(spec)
    expectFailure(await refused({ pageSize: -1 }, { token }), { code: 3, fields: ['page_size'] })
  })

  // docs/spec/conventions.md#lists
  test('page tokens lead through all results exactly once; the last page has no token', async () => {
    const { parent, token, all } = await bulkOf(spec)
    const { uids, pages } = await walk({ uidp: { childrenOf: parent }, pageSize: 41 }, { token })
    expect(pages).toBe(5)
    expect(uids).toEqual(sorted(all, []))
  })

  // docs/spec/conventions.md#ordering
  test.each([
    ['absent', '', []],
    ['uid', 'uid', []],
    ['uid desc', 'uid desc', [['uid', -1]]],
    ['name', 'name', [['name', 1]]],
    ['name asc', 'name asc', [['name', 1]]],
    ['name desc', 'name desc', [['name', -1]]],
    ['created_at', 'created_at', [['created', 1]]],
    ['created_at desc', 'created_at desc', [['created', -1]]],
    ['camel case', 'createdAt desc', [['created', -1]]],
    ['the field in snake case', 'create_time desc', [['created', -1]]],
    ['the field in camel case', 'createTime desc', [['created', -1]]],
    ['updated_at', 'updated_at', [['updated', 1]]],
    ['updateTime desc', 'updateTime desc', [['updated', -1]]],
    [
      'a comma list',
      'created_at desc,name',
      [
        ['created', -1],
        ['name', 1],
      ],
    ],
    [
      'a comma list with blanks',
      ' name desc , created_at ',
      [
        ['name', -1],
        ['created', 1],
      ],
    ],
  ] as const)('order_by %s stays the same across pages, with ties in the order of uids', async (_, orderBy, terms) => {
    const { parent, token, all } = await bulkOf(spec)
    const { uids } = await walk({ uidp: { childrenOf: parent }, pageSize: 60, ...(orderBy === '' ? {} : { orderBy }) }, { token })
    expect(uids).toEqual(sorted(all, terms))
  })

  // docs/spec/conventions.md#ordering
  test('records with the same time and name are in the order of their uids, also in descending lists', async () => {
    const { group, token: early } = await makeOrganisation(spec.server)
    const parent = await subgroup(spec, group, early)
    const made = await spec.clock.hold(async () => Promise.all(Array.from({ length: 12 }, () => identityUnder(spec, parent, early, 'twin'))))
    expect(new Set(made.map((record) => record['createTime'])).size).toBe(1)
    for (const orderBy of ['name', 'name desc', 'created_at desc', 'updated_at', 'name desc,created_at desc']) {
      const found: string[] = []
      for (let pageToken = '', more = true; more; more = pageToken !== '') {
        const page = await list({ uidp: { childrenOf: parent }, orderBy, pageSize: 5, pageToken }, { token: early })
        found.push(...itemsOf(page, 'identities').map(uidOf))
        pageToken = String(page['nextPageToken'] ?? '')
      }
      expect(found).toEqual(made.map(uidOf).sort())
    }
  })

  // docs/spec/conventions.md#ordering
  test.each([['description'], ['nothing'], ['name sideways'], ['name desc desc'], ['name,,uid'], ['name;uid'], ['claimMatch.issuer']])(
    'order_by %j is code 3',
    async (orderBy) => {
      const { token } = await bulkOf(spec)
      expectFailure(await refused({ orderBy }, { token }), { code: 3, fields: ['order_by'] })
    },
  )

  // docs/spec/conventions.md#ordering
  test.each(specKinds.map((kind) => [kind] as const))('$list sorts by uid, created_at, updated_at, and by name where there is one', async (kind) => {
    const { group, token } = await makeOrganisation(spec.server)
    const parent = await subgroup(spec, group, token)
    const made: JsonObject[] = []
    for (let at = 0; at < 3; at++) {
      // Identities that bindings need lie in the group above.
      const draft = await kind.draft(spec, group)
      made.push(await create(spec, kind, { group: parent, draft }, { token }))
    }
    const rows: [string, Parameters<typeof sorted>[1]][] = [
      ['uid desc', [['uid', -1]]],
      ['created_at desc', [['created', -1]]],
      ['updated_at desc', [['updated', -1]]],
    ]
    if (kind.kind !== 'RoleBinding') rows.push(['name desc', [['name', -1]]])
    for (const [orderBy, terms] of rows) {
      const page = await spec.ok(kind.list, { uidp: { childrenOf: parent }, orderBy }, { token })
      expect(itemsOf(page, kind.plural).map(uidOf)).toEqual(sorted(made, terms))
    }
    const unnamed = await spec.call(kind.list, { uidp: { childrenOf: parent }, orderBy: 'name' }, { token })
    if (kind.kind === 'RoleBinding') expectFailure(unnamed, { code: 3, fields: ['order_by'] })
  })

  // docs/spec/conventions.md#skip
  test('skip leaves out that many results, skipped returns the number, and totalCount is unchanged', async () => {
    const { parent, token, all } = await bulkOf(spec)
    const order = sorted(all, [['name', 1]])
    for (const skip of [0, 1, 60, 204]) {
      const page = await list({ uidp: { childrenOf: parent }, orderBy: 'name', pageSize: 3, skip }, { token })
      expect(itemsOf(page, 'identities').map(uidOf)).toEqual(order.slice(skip, skip + 3))
      expect(page).toMatchObject({ skipped: skip, totalCount: String(bulkSize) })
    }
  })

  // docs/spec/conventions.md#skip
  test('skip beyond the end returns an empty last page', async () => {
    const { parent, token } = await bulkOf(spec)
    const page = await list({ uidp: { childrenOf: parent }, skip: 1_000_000 }, { token })
    expect(page).toMatchObject({ identities: [], skipped: 1_000_000, totalCount: String(bulkSize) })
    expect(page['nextPageToken'] ?? '').toBe('')
  })

  // docs/spec/conventions.md#skip
  test("with a page token, skip counts from the token's position, and skipped returns skip alone", async () => {
    const { parent, token, all } = await bulkOf(spec)
    const order = sorted(all, [['name', -1]])
    const request = { uidp: { childrenOf: parent }, orderBy: 'name desc', pageSize: 10 }
    const first = await list({ ...request, skip: 5 }, { token })
    const second = await list({ ...request, skip: 7, pageToken: first['nextPageToken'] ?? '' }, { token })
    expect(itemsOf(second, 'identities').map(uidOf)).toEqual(order.slice(22, 32))
    expect(second).toMatchObject({ skipped: 7, totalCount: String(bulkSize) })
  })

  // docs/spec/conventions.md#skip
  test('negative skip is code 3', async () => {
    const { token } = await bulkOf(spec)
    expectFailure(await refused({ skip: -1 }, { token }), { code: 3, fields: ['skip'] })
  })

  // docs/spec/conventions.md#list-filters
  test('name is an exact match', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const made = await identityUnder(spec, group, token, 'exact')
    for (const name of ['exact more', 'exac', 'an exact']) await identityUnder(spec, group, token, name)
    expect(await list({ name: 'exact' }, { token })).toMatchObject({ identities: [made], totalCount: '1' })
    expect(await list({ name: 'unknown' }, { token })).toMatchObject({ identities: [], totalCount: '0' })
  })

  // docs/spec/conventions.md#list-filters
  test('an empty filter value counts as absent; over REST an empty place is code 3', async () => {
    const { parent, token } = await bulkOf(spec)
    const page = await list({ uidp: { childrenOf: parent }, name: '', orderBy: '', pageToken: '' }, { token })
    expect(page).toMatchObject({ totalCount: String(bulkSize) })
    const unset = { uidp: { childrenOf: parent, descendantsOf: '', ancestorsOf: '' } }
    if (spec.transport === 'grpc') expect(await list(unset, { token })).toMatchObject({ totalCount: String(bulkSize) })
    else expectFailure(await refused(unset, { token }), { code: 3, fields: ['uidp.descendants_of', 'uidp.ancestors_of'] })
  })
})
