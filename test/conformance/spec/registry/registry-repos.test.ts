import type { JsonObject } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import { freshName, makeMember, makeOrganisation, ok, type Organisation } from '../../../support/test-server.ts'
import { makeRole } from '../../walk/world.ts'
import { subgroup } from '../spec-kinds.ts'
import { expectFailure, itemsOf, preconditionViolations, specSuite, uidOf, type Spec } from '../spec-suite.ts'

const publicOrganization = 'open'
const dayMs = 24 * 3600 * 1000

/** What a repo inherits when it is synced. */
const catalogue = { catalogTier: 'CATALOG_TIER_BASE', bundles: ['base', 'fips'], aliases: ['library/nginx:latest'], activeTags: ['1', '1.27'] }

function repoTools(spec: Spec) {
  const create = (parent: string, repo: JsonObject, token: string) => spec.ok('CreateRepo', { parent, repo }, { token })
  const update = (repo: JsonObject, token: string, request: JsonObject = {}) => spec.ok('UpdateRepo', { repo, ...request }, { token })
  const get = (uid: string, token: string) => spec.ok('GetRepo', { uid }, { token })
  /** An organisation with a repo that others may sync from once they may pull there. */
  const withSource = async (): Promise<Organisation & { source: string }> => {
    const organisation = await makeOrganisation(spec.server)
    const source = uidOf(await create(organisation.group, { name: freshName('source'), description: 'The web server', ...catalogue }, organisation.token))
    return { ...organisation, source }
  }
  return { create, update, get, withSource }
}

specSuite('repos', (spec) => {
  const { create, update, get } = repoTools(spec)

  // docs/spec/resources.md#record-fields
  test('a repo has uid, name, description, createTime, updateTime', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const made = await create(group, { name: 'nginx', description: 'The web server' }, token)
    expect(made).toMatchObject({
      name: 'nginx',
      description: 'The web server',
      catalogTier: 'CATALOG_TIER_UNSPECIFIED',
      bundles: [],
      aliases: [],
      activeTags: [],
    })
    expect(uidOf(made)).toMatch(new RegExp(`^${group}/[0-9a-f]{16}$`))
    for (const time of ['createTime', 'updateTime']) expect(made[time]).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
    expect(await get(uidOf(made), token)).toEqual(made)
  })

  // docs/spec/conventions.md#list-filters
  test('a list finds repos below a group, in sibling groups, and by their exact name', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const sub = await subgroup(spec, group, token)
    const [top, deep] = [uidOf(await create(group, { name: 'nginx' }, token)), uidOf(await create(sub, { name: 'nginx' }, token))]
    await create(sub, { name: 'redis' }, token)
    const found = async (request: JsonObject) => itemsOf(await spec.ok('ListRepos', request, { token }), 'repos').map(uidOf)
    expect((await found({ uidp: { descendantsOf: group }, name: 'nginx' })).sort()).toEqual([top, deep].sort())
    expect(await found({ uidp: { childrenOf: group } })).toEqual([top])
    expect(await found({ uidp: { childrenOf: sub }, name: 'nginx' })).toEqual([deep])
    expect(await found({ name: 'ngin' })).toEqual([])
  })

  // docs/spec/conventions.md#ordering
  test('repos are sorted by name or time, ascending or descending, page by page', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const names = ['delta', 'alpha', 'charlie', 'bravo', 'echo']
    for (const name of names) await create(group, { name }, token)
    const pages = async (orderBy: string): Promise<string[]> => {
      const seen: string[] = []
      for (let pageToken = ''; ;) {
        const page = await spec.ok('ListRepos', { uidp: { descendantsOf: group }, orderBy, pageSize: 2, pageToken }, { token })
        expect(page['totalCount']).toBe('5')
        seen.push(...itemsOf(page, 'repos').map((repo) => String(repo['name'])))
        pageToken = String(page['nextPageToken'] ?? '')
        if (pageToken === '') return seen
      }
    }
    expect(await pages('name')).toEqual([...names].sort())
    expect(await pages('name desc')).toEqual([...names].sort().reverse())
    // All may be of one millisecond: ties are by uid.
    expect((await pages('created_at desc')).sort()).toEqual([...names].sort())
    const jumped = await spec.ok('ListRepos', { uidp: { descendantsOf: group }, orderBy: 'name', skip: 3 }, { token })
    expect(jumped).toMatchObject({ skipped: 3, totalCount: '5' })
    expect(itemsOf(jumped, 'repos').map((repo) => repo['name'])).toEqual(['delta', 'echo'])
  })

  // docs/spec/conventions.md#update-masks
  test('a PATCH changes the fields of the body, or only those in the mask', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const made = await create(group, { name: 'nginx', description: 'old', aliases: ['nginx:1'] }, token)
    const uid = uidOf(made)
    expect(await update({ uid, description: 'new' }, token)).toMatchObject({ name: 'nginx', description: 'new', aliases: ['nginx:1'] })
    const masked = await update({ uid, description: 'newer', name: 'other', aliases: [] }, token, { updateMask: 'description' })
    expect(masked).toMatchObject({ name: 'nginx', description: 'newer', aliases: ['nginx:1'] })
  })

  // docs/spec/conventions.md#update-masks
  test('the wildcard mask replaces a repo: fields missing in the body are cleared', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const uid = uidOf(await create(group, { name: 'nginx', description: 'old', ...catalogue, customOverlay: { environment: { A: 'b' } } }, token))
    const replaced = await update({ uid, name: 'nginx' }, token, { updateMask: '*' })
    expect(replaced).toMatchObject({ name: 'nginx', description: '', catalogTier: 'CATALOG_TIER_UNSPECIFIED', bundles: [], aliases: [], activeTags: [] })
    expect(replaced).not.toHaveProperty('customOverlay')
  })

  // docs/spec/registry.md#repos
  test('a deleted repo disappears for every reader, its name is free, and its uid is never reused', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const uid = uidOf(await create(group, { name: 'nginx' }, token))
    expect(await spec.ok('DeleteRepo', { uid }, { token })).toEqual({})
    expectFailure(await spec.call('GetRepo', { uid }, { token }), { code: 5, domain: 'registry.taproot.dev' })
    expectFailure(await spec.call('DeleteRepo', { uid }, { token }), { code: 5 })
    expect(await spec.ok('ListRepos', { uidp: { childrenOf: group } }, { token })).toMatchObject({ repos: [], totalCount: '0' })
    expect(uidOf(await create(group, { name: 'nginx' }, token))).not.toBe(uid)
  })

  // docs/spec/registry.md#garbage-collection
  test('a deletion records the repo for the garbage collection of its content', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const uid = uidOf(await create(group, { name: 'nginx' }, token))
    const note = () => spec.server.running.engine.store.get(`x/removed-repo/${uid}`, AbortSignal.timeout(60_000))
    expect(await note()).toBeUndefined()
    await spec.ok('DeleteRepo', { uid }, { token })
    expect(Buffer.from((await note())?.value ?? []).toString()).toMatch(/^\d{13}$/)
  })

  // docs/spec/conventions.md#deletion-order
  test('a group with repos can not be deleted: code 9 with their number', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const sub = await subgroup(spec, group, token)
    const uids = [uidOf(await create(sub, { name: 'one' }, token)), uidOf(await create(sub, { name: 'two' }, token))]
    const refused = await spec.call('DeleteGroup', { uid: sub }, { token })
    expectFailure(refused, { code: 9, message: 'Precondition failed: cannot delete group with child repos', violations: ['RESOURCE_NOT_EMPTY'] })
    expect(preconditionViolations(refused)[0]?.description).toBe('cannot delete group with child repos (2)')
    for (const uid of uids) await spec.ok('DeleteRepo', { uid }, { token })
    await spec.ok('DeleteGroup', { uid: sub }, { token })
  })

  // docs/spec/resources.md#names
  test.each([['a'], ['a.b_c-d e'], ['0'.repeat(100)]])('%j is a valid repo name', async (name) => {
    const { group, token } = await makeOrganisation(spec.server)
    expect(await create(group, { name }, token)).toMatchObject({ name })
  })

  // docs/spec/registry.md#repo-paths
  test('the path of a repo has at most 255 characters, checked at creation and rename', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const { name: root } = await spec.ok('GetGroup', { uid: group }, { token })
    const room = 255 - String(root).length - 1
    const uid = uidOf(await create(group, { name: 'a'.repeat(room) }, token))
    expectFailure(await spec.call('UpdateRepo', { repo: { uid, name: 'a'.repeat(room + 1) } }, { token }), { code: 3, fields: ['name'] })
    expectFailure(await spec.call('CreateRepo', { parent: group, repo: { name: 'b'.repeat(room + 1) } }, { token }), { code: 3, fields: ['name'] })
  })

  // docs/spec/resources.md#descriptions
  test('a description is one line of at most 512 characters', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const description = `Grüße 👋 ${'x'.repeat(500)}`
    expect(await create(group, { name: 'described', description }, token)).toMatchObject({ description })
    for (const bad of ['one\ntwo', 'tab\tbed', 'x'.repeat(513)])
      expectFailure(await spec.call('CreateRepo', { parent: group, repo: { name: 'bad', description: bad } }, { token }), { code: 3, fields: ['description'] })
  })

  // docs/spec/registry.md#repos
  test('repo.update is the right to change tier, bundles, aliases and active tags', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const uid = uidOf(await create(group, { name: 'nginx' }, token))
    const editor = await makeMember(spec.server, group, { role: await makeRole(spec.server, group, ['repo.update']) })
    expect(await update({ uid, ...catalogue }, editor.token)).toMatchObject(catalogue)
    const reader = await makeMember(spec.server, group, { role: 'viewer' })
    expectFailure(await spec.call('UpdateRepo', { repo: { uid, ...catalogue } }, { token: reader.token }), { code: 7 })
  })
})

specSuite(
  'synced repos',
  (spec) => {
    const { create, update, get, withSource } = repoTools(spec)
    const publicGroup = async (): Promise<string> => {
      const token = await spec.server.operatorToken()
      const found = itemsOf(await spec.ok('ListGroups', { name: publicOrganization }, { token }), 'groups')[0]
      return uidOf(found ?? (await spec.ok('CreateGroup', { group: { name: publicOrganization } }, { token })))
    }
    const sync = (source: string): JsonObject => ({ name: freshName('synced'), syncConfig: { source } })
    const hostOf = () => spec.server.config.registry.host

    // docs/spec/registry.md#mirrors
    test('synced repos show the current tier, bundles, aliases and active tags of their source, and copy its description at creation', async () => {
      const { group, token, source } = await withSource()
      const made = await create(group, sync(source), token)
      expect(made).toMatchObject({ ...catalogue, description: 'The web server', syncConfig: { source } })
      await update({ uid: source, bundles: ['ai'], activeTags: ['2'], description: 'Other' }, token)
      expect(await get(uidOf(made), token)).toMatchObject({ ...catalogue, bundles: ['ai'], activeTags: ['2'], description: 'The web server' })
      const listed = itemsOf(await spec.ok('ListRepos', { name: made['name'] ?? '', uidp: { childrenOf: group } }, { token }), 'repos')
      expect(listed[0]).toMatchObject({ bundles: ['ai'], activeTags: ['2'] })
    })

    // docs/spec/registry.md#mirrors
    test.each([
      ['catalog_tier', { catalogTier: 'CATALOG_TIER_AI' }],
      ['bundles', { bundles: ['ai'] }],
      ['aliases', { aliases: ['other:1'] }],
      ['active_tags', { activeTags: ['other'] }],
    ])('synced repos refuse changes of %s', async (field, change) => {
      const { group, token, source } = await withSource()
      expectFailure(await spec.call('CreateRepo', { parent: group, repo: { ...sync(source), ...change } }, { token }), { code: 3, fields: [field] })
      const uid = uidOf(await create(group, sync(source), token))
      expectFailure(await spec.call('UpdateRepo', { repo: { uid, ...change } }, { token }), { code: 3, fields: [field] })
    })

    // docs/spec/registry.md#mirrors
    test('synced repos can be sent back as read, complete, with another description', async () => {
      const { group, token, source } = await withSource()
      const made = await create(group, sync(source), token)
      expect(await update({ ...made, description: 'ours' }, token, { updateMask: '*' })).toMatchObject({
        ...catalogue,
        description: 'ours',
        syncConfig: made['syncConfig'] ?? null,
      })
    })

    // docs/spec/registry.md#mirrors
    test('synced repos have an expirationTime 14 days after the creation of the sync, output-only like uniqueTags, gracePeriod and apkoOverlay', async () => {
      const { group, token, source } = await withSource()
      const given = { source, expirationTime: '2001-01-01T00:00:00.000Z', uniqueTags: true, gracePeriod: true, apkoOverlay: 'mine' }
      const made = await create(group, { name: 'synced', syncConfig: given }, token)
      const { expirationTime = '', ...rest } = made['syncConfig'] as JsonObject
      expect(Date.parse(String(expirationTime)) - Date.parse(String(made['createTime']))).toBe(14 * dayMs)
      expect(rest).toMatchObject({ source, uniqueTags: false, gracePeriod: false, apkoOverlay: '' })
      const changed = await update({ uid: uidOf(made), syncConfig: { ...given, google: 'someone' } }, token)
      expect(changed['syncConfig']).toMatchObject({ google: 'someone', expirationTime, uniqueTags: false, gracePeriod: false, apkoOverlay: '' })
    })

    // docs/spec/registry.md#mirrors
    test('synced repos accept the source as uid, image reference or catalogue name, and store its uid', async () => {
      const staff = await spec.server.operatorToken()
      const open = await publicGroup()
      const name = freshName('image')
      const source = uidOf(await create(open, { name, ...catalogue }, staff))
      const references = [
        source,
        name,
        `${publicOrganization}/${name}`,
        `${hostOf()}/${publicOrganization}/${name}`,
        `${hostOf()}/${publicOrganization}/${name}:1.27`,
      ]
      for (const reference of [...references, `${hostOf()}/${open}/${name}@sha256:${'0'.repeat(64)}`]) {
        const made = await create(open, sync(reference), staff)
        expect(made, reference).toMatchObject({ ...catalogue, syncConfig: { source } })
      }
    })

    // docs/spec/registry.md#mirror-rights
    test('synced repos may have a source in the public organisation, from which anybody may pull', async () => {
      const staff = await spec.server.operatorToken()
      const name = freshName('image')
      const source = uidOf(await create(await publicGroup(), { name, ...catalogue }, staff))
      const { group, token } = await makeOrganisation(spec.server)
      for (const reference of [source, name, `${hostOf()}/${publicOrganization}/${name}`])
        expect(await create(group, sync(reference), token), reference).toMatchObject({ ...catalogue, syncConfig: { source } })
      const missing = await spec.call('CreateRepo', { parent: group, repo: sync(freshName('image')) }, { token })
      expectFailure(missing, { code: 3, fields: ['sync_config.source'] })
    })

    // docs/spec/registry.md#mirror-rights
    test('synced repos need a caller who may pull at the source; foreign, missing and malformed sources are the same code 3', async () => {
      const [own, other] = [await makeOrganisation(spec.server), await withSource()]
      const attempt = (token: string, source: string) => spec.call('CreateRepo', { parent: own.group, repo: sync(source) }, { token })
      const foreign = await attempt(own.token, other.source)
      expectFailure(foreign, { code: 3, fields: ['sync_config.source'] })
      for (const source of [`${other.group}/${'0'.repeat(16)}`, 'f'.repeat(40), other.group, 'unknown/nothing', '../..', `${hostOf()}/`, 'Ä'])
        expect((await attempt(own.token, source)).details['BadRequest'], source).toEqual(foreign.details['BadRequest'])
    })

    // docs/spec/registry.md#mirror-rights
    test.each([['repo.list'], ['manifest.list'], ['repo.blobs.get']])('synced repos are refused without %s at the source', async (missing) => {
      const { group, token, source } = await withSource()
      const sub = await subgroup(spec, group, token)
      const needed = ['repo.list', 'manifest.list', 'repo.blobs.get']
      const maker = await makeMember(spec.server, group, { role: await makeRole(spec.server, group, ['repo.create']), bindAt: sub })
      const bind = async (capabilities: string[]) =>
        ok(
          await spec.server.rest.call(
            'CreateRoleBinding',
            { parent: group, roleBinding: { identityUid: maker.uid, roleUid: await makeRole(spec.server, group, capabilities) } },
            { token: await spec.server.operatorToken() },
          ),
        )
      await bind(needed.filter((name) => name !== missing))
      expectFailure(await spec.call('CreateRepo', { parent: sub, repo: sync(source) }, { token: maker.token }), { code: 3, fields: ['sync_config.source'] })
      await bind([missing])
      expect(await create(sub, sync(source), maker.token)).toMatchObject({ syncConfig: { source } })
    })

    // docs/spec/registry.md#mirror-rights
    test('synced repos keep their sync when the right to the source or the source itself is gone', async () => {
      const { group, token, source } = await withSource()
      const sub = await subgroup(spec, group, token)
      const made = await create(sub, sync(source), token)
      const editor = await makeMember(spec.server, sub, { role: await makeRole(spec.server, group, ['repo.update', 'repo.list']) })
      expect(await update({ ...made, description: 'kept' }, editor.token)).toMatchObject({ description: 'kept', ...catalogue })
      await spec.ok('DeleteRepo', { uid: source }, { token })
      const left = await get(uidOf(made), token)
      expect(left).toMatchObject({ syncConfig: { source }, bundles: [], aliases: [], activeTags: [], catalogTier: 'CATALOG_TIER_UNSPECIFIED' })
      expect(await update({ uid: uidOf(made), description: 'still' }, token)).toMatchObject({ description: 'still', syncConfig: { source } })
    })

    // docs/spec/registry.md#mirrors
    test('synced repos with a synced repo as source show the first source, and a cycle shows nothing', async () => {
      const { group, token, source } = await withSource()
      const one = uidOf(await create(group, sync(source), token))
      const two = uidOf(await create(group, sync(one), token))
      expect(await get(two, token)).toMatchObject(catalogue)
      expectFailure(await spec.call('UpdateRepo', { repo: { uid: one, syncConfig: { source: one } } }, { token }), { code: 3, fields: ['sync_config.source'] })
      await update({ uid: one, syncConfig: { source: two } }, token)
      expect(await get(one, token)).toMatchObject({ bundles: [], aliases: [] })
    })

    // docs/spec/registry.md#mirrors
    test('synced repos lose their own values when the sync starts, and have none after it ends', async () => {
      const { group, token, source } = await withSource()
      const uid = uidOf(await create(group, { name: 'own', bundles: ['ai'], description: 'ours' }, token))
      expect(await update({ uid, syncConfig: { source } }, token)).toMatchObject({ ...catalogue, description: 'ours' })
      const free = await update({ uid }, token, { updateMask: 'syncConfig' })
      expect(free).not.toHaveProperty('syncConfig')
      expect(free).toMatchObject({ bundles: [], aliases: [], activeTags: [] })
      expect(await update({ uid, bundles: ['base'] }, token)).toMatchObject({ bundles: ['base'] })
    })

    // docs/spec/resources.md#json-form
    test('synced repos accept the sync block as syncConfig and as sync_config', async () => {
      const { group, token, source } = await withSource()
      const url = `http://127.0.0.1:${spec.server.config.api.port}/registry/v2/repos`
      const send = async (method: string, path: string, body: JsonObject): Promise<JsonObject> => {
        const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' }
        const response = await fetch(`${url}/${path}`, { method, headers, body: JSON.stringify(body) })
        return (await response.json()) as JsonObject
      }
      const made = await send('POST', group, { name: freshName('snake'), sync_config: { source } })
      expect(made).toMatchObject({ syncConfig: { source, uniqueTags: false } })
      expect(made).not.toHaveProperty('sync_config')
      const changed = await send('PATCH', uidOf(made), { sync_config: { source, amazon: 'them' } })
      expect(changed).toMatchObject({ syncConfig: { source, amazon: 'them' } })
    })
  },
  { env: { TAPROOT_REGISTRY_PUBLIC_ORGANIZATION: publicOrganization } },
)

specSuite(
  'repos in an upstream registry with a long prefix',
  (spec) => {
    const { create } = repoTools(spec)

    // docs/spec/registry.md#repo-paths
    test('repos in an upstream registry with a long prefix are limited so that the upstream repository name has at most 255 characters, prefix included', async () => {
      const { group, token } = await makeOrganisation(spec.server)
      // 180 of the prefix, a slash, 40 and 17 of a repo in the root group; 17 more one group below.
      expect(uidOf(await create(group, { name: 'top' }, token))).toHaveLength(57)
      const sub = await subgroup(spec, group, token)
      expect(uidOf(await create(sub, { name: 'below' }, token))).toHaveLength(74)
      const deep = await subgroup(spec, sub, token)
      expectFailure(await spec.call('CreateRepo', { parent: deep, repo: { name: 'deep' } }, { token }), { code: 3, fields: ['parent'] })
    })
  },
  { env: { TAPROOT_REGISTRY_UPSTREAM_URL: 'http://127.0.0.1:1', TAPROOT_REGISTRY_UPSTREAM_PREFIX: 'p'.repeat(180) } },
)
