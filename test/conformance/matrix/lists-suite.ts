import type { JsonObject } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import { ok } from '../../support/test-server.ts'
import { isMapped, type Reply } from '../../support/api-clients.ts'
import { builtInRoles } from '../../../src/base/roles.ts'
import { fieldNameAt, methodNamed } from '../walk/cases/method-case.ts'
import { ask, forEach, nowhere } from './asking.ts'
import { callerRows, realPlaces, type CallerName, type CallerRow, type RealPlace } from './callers.ts'
import { may } from './expected.ts'
import { listMethods, type ListRow } from './methods.ts'
import type { Ground } from './places-suite.ts'
import type { MatrixWorld } from './world.ts'

/** Returns the place of a record, if the matrix has it. */
function placeOf({ things }: MatrixWorld, uid: string): RealPlace | undefined {
  const holds = (place: RealPlace): boolean => uid === things[place].place || uid.startsWith(`${things[place].place}/`)
  return (['own', 'sibling', 'ancestor', 'other'] as const).find(holds)
}

/** Returns all records of a list, page by page. */
async function all(page: (pageToken: string) => Promise<Reply>, plural: string): Promise<{ uids: string[]; total: string }> {
  const uids: string[] = []
  for (let token = '', total = '0'; ;) {
    const body: JsonObject = ok(await page(token))
    uids.push(...((body[plural] ?? []) as JsonObject[]).map(({ uid, id, group }) => String(uid ?? id ?? group))) // a list answer
    total = String(body['totalCount'] ?? uids.length)
    token = String(body['nextPageToken'] ?? '')
    if (token === '') return { uids, total }
  }
}

/** Returns whether everyone who may list such records anywhere sees it (docs/spec/iam.md#built-in-roles). */
function isEverywhere(method: string, uid: string): boolean {
  return (method === 'RolesService/ListRoles' || method === 'Roles/List') && builtInRoles.some((role) => role.uid === uid)
}

/** Returns the records that the caller should see, according to the table. */
function seenBy(world: MatrixWorld, universe: readonly string[], { method, row, caller }: { method: string; row: ListRow; caller: CallerRow }): string[] {
  const lists = realPlaces.filter((place) => may(caller, place, [row.needs]))
  return universe.filter((uid) => {
    if (isEverywhere(method, uid)) return lists.length > 0
    const place = placeOf(world, uid)
    return place === undefined ? caller.standing.own === 'everything' : lists.includes(place)
  })
}

/** Returns filters by a record of a place. Each creates a request for `uid`, which `of` finds in the world. */
function filtersBy(method: string): readonly { field: string; of: (world: MatrixWorld, place: RealPlace) => string; request: (uid: string) => JsonObject }[] {
  const place = (world: MatrixWorld, at: RealPlace): string => world.things[at].place
  const thing = listMethods[method]?.of ?? 'group'
  const { fields } = methodNamed(method).input
  const byId = { field: 'id', of: (world: MatrixWorld, at: RealPlace) => world.things[at][thing], request: (id: string) => ({ id }) }
  const own = [
    ...(isMapped(methodNamed(method)) ? [byId] : []),
    { field: 'uidp.children_of', of: place, request: (uid: string) => ({ uidp: { childrenOf: uid } }) },
    { field: 'uidp.descendants_of', of: place, request: (uid: string) => ({ uidp: { descendantsOf: uid } }) },
    { field: 'uidp.ancestors_of', of: (world: MatrixWorld, at: RealPlace) => world.things[at].tag, request: (uid: string) => ({ uidp: { ancestorsOf: uid } }) },
    { field: 'uidp.ids', of: (world: MatrixWorld, at: RealPlace) => world.things[at][thing], request: (uid: string) => ({ uidp: { ids: [uid] } }) },
  ].filter(({ field }) => fields.some(({ name }) => name === field.split('.')[0]))
  if (method === 'RoleBindingsService/ListRoleBindings') {
    const by =
      (field: 'identity' | 'role' | 'place'): ((world: MatrixWorld, at: RealPlace) => string) =>
      (world, at) =>
        world.things[at][field]
    return [
      ...own,
      { field: 'identity', of: by('identity'), request: (identity) => ({ identity }) },
      { field: 'role', of: by('role'), request: (role) => ({ role }) },
      { field: 'group', of: by('place'), request: (group) => ({ group }) },
    ]
  }
  if (method === 'GroupInvites/List' || method === 'GroupAccountAssociations/List')
    return [...own, { field: 'group', of: place, request: (group) => ({ group }) }]
  if (method === 'ExternalGroupRoleMappings/List') {
    const of = (world: MatrixWorld, at: RealPlace): string => world.things[at].mappedProvider
    return [...own, { field: 'identity_provider_uidp', of, request: (identityProviderUidp) => ({ identityProviderUidp }) }]
  }
  if (method === 'Roles/List') return [...own, { field: 'parent', of: place, request: (parent) => ({ parent }) }]
  if (method === 'TagsService/ListTags' || method === 'Registry/ListTags') {
    return [...own, { field: 'digest', of: (world, at) => world.things[at].digest, request: (digest) => ({ digest }) }]
  }
  if (method !== 'ExternalGroupRoleMappingsService/ListExternalGroupRoleMappings') return own
  const provider = (world: MatrixWorld, at: RealPlace): string => world.things[at].mappedProvider
  return [...own, { field: 'identity_provider_uid', of: provider, request: (identityProviderUid) => ({ identityProviderUid }) }]
}

/** Returns the fields of the schema that these filters use. */
export function filterFields(): string[] {
  return Object.keys(listMethods).flatMap((method) => filtersBy(method).map(({ field }) => fieldNameAt(methodNamed(method).input, field.split('.'))))
}

/** Tries every list, for every caller, with every filter that names a record. */
export function listsSuite(ground: Ground): void {
  const page = (method: string, name: CallerName, { pageToken = '', ...filter }: JsonObject): Promise<Reply> => {
    // Most lists of version 1 have no pages.
    const hasPages = methodNamed(method).input.fields.some(({ name }) => name === 'page_token')
    const request = hasPages ? { pageSize: 200, pageToken, ...filter } : filter
    return ask(ground.apiClient(), { name: method, request, token: ground.world().tokens[name] })
  }

  test.each(Object.entries(listMethods))('%s: each caller sees exactly the records in reach', async (method, row) => {
    const world = ground.world()
    const universe = (await all((pageToken) => page(method, 'an operator', { pageToken }), row.plural)).uids
    expect(universe).toEqual(expect.arrayContaining(realPlaces.map((place) => world.things[place][row.of])))
    await forEach(callerRows, async ([name, caller]) => {
      if (caller.anonymous === true) return expect((await page(method, name, {})).code, name).toBe(16)
      const seen = await all((pageToken) => page(method, name, { pageToken }), row.plural)
      const expected = seenBy(world, universe, { method, row, caller })
      expect({ name, ...seen, uids: seen.uids.sort() }).toEqual({ name, total: String(expected.length), uids: [...expected].sort() })
    })
  })

  test.each(Object.entries(listMethods))('%s: a filter by a record out of reach answers like one by a missing record', async (method, row) => {
    const world = ground.world()
    const universe = (await all((pageToken) => page(method, 'an operator', { pageToken }), row.plural)).uids
    const signedIn = callerRows.filter(([, { anonymous }]) => anonymous !== true)
    const tries = signedIn.flatMap(([name, caller]) => realPlaces.flatMap((place) => filtersBy(method).map((filter) => ({ name, caller, place, filter }))))
    const reach = (caller: CallerRow): unknown => [realPlaces.map((one) => may(caller, one, [row.needs])), caller.standing.own === 'everything']
    await forEach(
      ground.chosen(tries, {
        nameOf: ({ name, place, filter }) => `${method} ${name} ${place} ${filter.field}`,
        // Callers who may list the same places see the same.
        kindOf: ({ caller, place, filter }) => JSON.stringify([place, filter.field, reach(caller)]),
      }),
      async ({ name, caller, place, filter }) => {
        const uid = filter.of(world, place)
        const [found, missing] = [await page(method, name, filter.request(uid)), await page(method, name, filter.request(nowhere(uid)))]
        expect(missing, filter.field).toMatchObject({ code: 0, body: isMapped(methodNamed(method)) ? { [row.plural]: [] } : { totalCount: '0' } })
        const visible = new Set(seenBy(world, universe, { method, row, caller }))
        const { uids, total } = await all(() => Promise.resolve(found), row.plural)
        const label = `${name}, ${place}, ${filter.field}`
        expect(
          uids.filter((one) => !visible.has(one)),
          label,
        ).toEqual([])
        expect(total, label).toBe(String(uids.length))
        if (uids.length === 0) expect(found.raw, label).toBe(missing.raw)
        // Visible records are found by their uids.
        if (filter.field === 'uidp.ids' || filter.field === 'id') expect(uids, label).toEqual(visible.has(uid) ? [uid] : [])
      },
    )
  })
}
