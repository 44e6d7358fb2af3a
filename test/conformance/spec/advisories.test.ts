import type { JsonObject } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import { setOf } from '../../../src/base/capability.ts'
import { trustedUid } from '../../../src/base/uid.ts'
import { importDocuments, osvDocument } from '../../support/import-advisories.ts'
import { freshName, makeMember, makeOrganisation, ok, type Organisation } from '../../support/test-server.ts'
import { expectFailure, itemsOf, specSuite, uidOf, type Spec } from './spec-suite.ts'

/** Advisories of one organisation, with names that no other test has. */
interface Imported extends Organisation {
  readonly spec: Spec
  readonly prefix: string
}

const packageOf = (name: string, more: JsonObject = {}): JsonObject => ({ package: { ecosystem: 'PyPI', name }, ...more })

async function imported(spec: Spec, documents: (prefix: string) => readonly JsonObject[]): Promise<Imported> {
  const organisation = await makeOrganisation(spec.server)
  const prefix = freshName('pkg')
  await importDocuments(spec.server, organisation.group, documents(prefix))
  return { ...organisation, spec, prefix }
}

async function listed({ spec, token }: Pick<Imported, 'spec' | 'token'>, request: JsonObject = {}): Promise<string[]> {
  return itemsOf(await spec.ok('ListAdvisories', request, { token }), 'advisories').map((advisory) => String(advisory['advisoryId']))
}

specSuite('advisories', (spec) => {
  // docs/spec/advisories.md#advisories-from-osv
  test('an advisory has the fields of the specification', async () => {
    const world = await imported(spec, (prefix) => [
      osvDocument('PYSEC-2026-1', {
        aliases: [`CVE-${prefix}`],
        severity: [{ type: 'CVSS_V3', score: 'CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H' }],
        affected: [packageOf(prefix, { ranges: [{ type: 'ECOSYSTEM', events: [{ introduced: '0' }, { fixed: '1.2.3' }] }] })],
      }),
    ])
    const { group, token, prefix } = world
    const [advisory = {}] = itemsOf(await spec.ok('ListAdvisories', { artifactNames: [prefix] }, { token }), 'advisories')
    expect(advisory).toMatchObject({
      uid: expect.stringMatching(new RegExp(`^${group}/[0-9a-f]{16}$`)) as unknown,
      advisoryId: 'PYSEC-2026-1',
      createTime: '2026-01-02T03:04:05.678Z',
      updateTime: '2026-02-03T04:05:06.000Z',
      author: 'PYSEC',
      artifactName: prefix,
      artifactType: 'PyPI',
      componentName: prefix,
      aliases: [`CVE-${prefix}`],
      severities: [{ type: 'TYPE_CVSS_V3', score: 'CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H' }],
      events: [
        { author: 'PYSEC', reviewState: 'REVIEW_STATE_APPROVED', detection: { manual: {} } },
        { author: 'PYSEC', reviewState: 'REVIEW_STATE_APPROVED', fixed: { fixedVersion: '1.2.3' } },
      ],
    })
    expect(await spec.ok('GetAdvisory', { uid: uidOf(advisory) }, { token })).toEqual(advisory)
  })

  // docs/spec/advisories.md#advisory-filters
  test('a filter with the name 0 finds that name, and an empty one counts as absent', async () => {
    const world = await imported(spec, () => [osvDocument('Z-1', { affected: [packageOf('0')] }), osvDocument('Z-2', { affected: [packageOf('1')] })])
    expect(await listed(world, { artifactNames: ['0'] })).toEqual(['Z-1'])
    expect(await listed(world, { artifactNames: [''] })).toHaveLength(2)
  })

  // docs/spec/advisories.md#advisory-severities
  test('an advisory without scores has those of its vulnerability or of an alias', async () => {
    const score = (at: number): JsonObject => ({ type: 'CVSS_V3', score: `CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:${['H', 'L', 'N'][at] ?? ''}` })
    const shown = (at: number): JsonObject => ({ ...score(at), type: 'TYPE_CVSS_V3' })
    const world = await imported(spec, (prefix) => [
      osvDocument(`CVE-${prefix}`, { affected: [], severity: [score(0)] }),
      osvDocument(`A-${prefix}`, { affected: [packageOf(prefix)], aliases: ['CVE-none', `CVE-${prefix}`] }),
      osvDocument(`B-${prefix}`, { affected: [packageOf(prefix, { severity: [score(1)] })], aliases: [`CVE-${prefix}`] }),
      osvDocument(`C-${prefix}`, { affected: [packageOf(prefix)] }),
    ])
    const { token, prefix } = world
    const advisories = itemsOf(await spec.ok('ListAdvisories', { artifactNames: [prefix] }, { token }), 'advisories')
    const severities = Object.fromEntries(advisories.map(({ advisoryId, severities: found }) => [String(advisoryId)[0], found ?? []]))
    expect(severities).toEqual({ A: [shown(0)], B: [shown(1)], C: [] })
    for (const advisory of advisories) expect(await spec.ok('GetAdvisory', { uid: uidOf(advisory) }, { token })).toEqual(advisory)
  })

  test('long scores of a vulnerability end a page early, and no advisory is left out', async () => {
    const count = 200
    const severity = Array.from({ length: 600 }, (_, at) => ({ type: 'CVSS_V3', score: String(at).padEnd(500, '€') }))
    const world = await imported(spec, (prefix) => [
      osvDocument(`CVE-${prefix}`, { affected: [], severity }),
      ...Array.from({ length: count }, (_, at) => osvDocument(`A-${at}`, { affected: [packageOf(`${prefix}`)], aliases: [`CVE-${prefix}`] })),
    ])
    const { token, prefix } = world
    const sizes: number[] = []
    for (let pageToken = ''; sizes.length === 0 || pageToken !== '';) {
      const page = await spec.ok('ListAdvisories', { artifactNames: [prefix], pageSize: count, pageToken }, { token })
      const advisories = itemsOf(page, 'advisories')
      expect(advisories.every(({ severities }) => (severities as JsonObject[]).length === 20)).toBe(true)
      sizes.push(advisories.length)
      pageToken = String(page['nextPageToken'] ?? '')
    }
    expect(sizes.length).toBeGreaterThan(1)
    expect(sizes.reduce((sum, size) => sum + size)).toBe(count)
  })

  test('a missing advisory is 404 with ResourceInfo', async () => {
    const { group, token } = await imported(spec, () => [osvDocument('A-1')])
    const reply = await spec.call('GetAdvisory', { uid: `${group}/${'0'.repeat(16)}` }, { token })
    expectFailure(reply, { code: 5, domain: 'vulnerabilities.taproot.dev' })
    expect(reply.details['ResourceInfo']).toMatchObject({ resourceType: 'vulnerabilities.taproot.dev/Advisory', resourceName: `${group}/${'0'.repeat(16)}` })
  })

  // docs/spec/advisories.md#advisory-filters
  test('values of one filter are alternatives, and filters are joined', async () => {
    const world = await imported(spec, (prefix) => [
      osvDocument('A-1', { affected: [packageOf(`${prefix}-one`)] }),
      osvDocument('A-2', { affected: [packageOf(`${prefix}-one`), packageOf(`${prefix}-two`)] }),
      osvDocument('B-3', { affected: [packageOf(`${prefix}-three`)], aliases: [`CVE-${prefix}`] }),
    ])
    const { prefix } = world
    const lists = async (request: JsonObject): Promise<string[]> => (await listed(world, request)).sort()
    expect(await lists({ artifactNames: [`${prefix}-one`, `${prefix}-three`] })).toEqual(['A-1', 'A-2', 'B-3'])
    expect(await lists({ artifactNames: [`${prefix}-one`, `${prefix}-three`], advisoryIds: ['A-2', 'B-3'] })).toEqual(['A-2', 'B-3'])
    expect(await lists({ aliases: [`CVE-${prefix}`] })).toEqual(['B-3'])
    expect(await lists({ origin: `${prefix}-two`, artifactNames: ['ignored'] })).toEqual(['A-2'])
    expect(await lists({ query: `${prefix}-THREE`.toUpperCase() })).toEqual(['B-3'])
    expect(await lists({ eventAuthors: ['A'] })).toEqual(['A-1', 'A-2', 'A-2'])
    expect(await lists({ excludeEventAuthors: ['A'] })).toEqual(['B-3'])
    expect(await lists({ eventTypes: ['EVENT_TYPE_FILTER_FIXED'] })).toEqual([])
    expect(await lists({ latestEventType: 'EVENT_TYPE_FILTER_DETECTION', artifactTypes: ['PyPI'] })).toEqual(['A-1', 'A-2', 'A-2', 'B-3'])
  })

  // docs/spec/advisories.md#advisory-lists
  test('pages keep their order, and the envelope counts all of them', async () => {
    const world = await imported(spec, (prefix) =>
      ['1', '2', '3', '4', '5'].map((day) => osvDocument(`A-${day}`, { modified: `2026-03-0${day}T00:00:00Z`, affected: [packageOf(prefix)] })),
    )
    const { token, prefix } = world
    const page = (more: JsonObject): Promise<JsonObject> =>
      spec.ok('ListAdvisories', { artifactNames: [prefix], orderBy: 'updated_at desc', pageSize: 2, ...more }, { token })
    const ids = (body: JsonObject): unknown[] => itemsOf(body, 'advisories').map((advisory) => advisory['advisoryId'])
    const first = await page({})
    expect([ids(first), Number(first['totalCount']), first['skipped']]).toEqual([['A-5', 'A-4'], 5, 0])
    const second = await page({ pageToken: String(first['nextPageToken']) })
    expect(ids(second)).toEqual(['A-3', 'A-2'])
    const last = await page({ pageToken: String(second['nextPageToken']) })
    expect([ids(last), last['nextPageToken'] ?? '']).toEqual([['A-1'], ''])
    expect([ids(await page({ skip: 3 })), (await page({ skip: 3 }))['skipped']]).toEqual([['A-2', 'A-1'], 3])
    expectFailure(await spec.call('ListAdvisories', { pageToken: String(first['nextPageToken']) }, { token }), {
      code: 3,
      domain: 'vulnerabilities.taproot.dev',
      fields: ['page_token'],
    })
  })

  test('a page token goes on in a newer catalogue', async () => {
    const document = (day: number, prefix: string): JsonObject =>
      osvDocument(`A-${day}`, { modified: `2026-03-0${day}T00:00:00Z`, affected: [packageOf(prefix)] })
    const world = await imported(spec, (prefix) => [1, 2, 4].map((day) => document(day, prefix)))
    const { group, token, prefix } = world
    const page = (more: JsonObject): Promise<JsonObject> =>
      spec.ok('ListAdvisories', { artifactNames: [prefix], orderBy: 'updated_at', pageSize: 2, ...more }, { token })
    const { nextPageToken } = await page({})
    await importDocuments(spec.server, group, [document(3, prefix), document(2, prefix)])
    expect(await listed(world, { artifactNames: [prefix], orderBy: 'updated_at', pageSize: 2, pageToken: nextPageToken ?? '' })).toEqual(['A-3', 'A-4'])
  })

  test('a caller sees the advisories of the groups within reach', async () => {
    const world = await imported(spec, (prefix) => [osvDocument('A-1', { affected: [packageOf(prefix)] })])
    const { group, token, prefix } = world
    const team = uidOf(await spec.ok('CreateGroup', { parent: group, group: { name: 'team' } }, { token }))
    await importDocuments(spec.server, team, [osvDocument('T-1', { affected: [packageOf(prefix)] })])
    const other = await makeOrganisation(spec.server)
    const member = await makeMember(spec.server, group, { role: 'viewer', bindAt: team })
    const artifactNames = [prefix]
    expect((await listed(world, { artifactNames })).sort()).toEqual(['A-1', 'T-1'])
    expect(await listed({ spec, token: member.token }, { artifactNames })).toEqual(['T-1'])
    expect(await listed({ spec, token: other.token }, { artifactNames })).toEqual([])
    expect(await listed(world, { artifactNames, uidp: { childrenOf: group } })).toEqual(['A-1'])
    expect((await listed(world, { artifactNames, uidp: { descendantsOf: group } })).sort()).toEqual(['A-1', 'T-1'])
    expect(await listed(world, { artifactNames, uidp: { descendantsOf: team } })).toEqual(['T-1'])
    const [mine] = itemsOf(await spec.ok('ListAdvisories', { uidp: { childrenOf: group } }, { token }), 'advisories')
    expect(await listed(world, { uidp: { ids: [String(mine?.['uid'])] } })).toEqual(['A-1'])
    expectFailure(await spec.call('GetAdvisory', { uid: String(mine?.['uid']) }, { token: other.token }), { code: 5, domain: 'vulnerabilities.taproot.dev' })
  })

  test('a narrowed token sees its places only, also with a page token of the same caller, and in a newer catalogue', async () => {
    const world = await imported(spec, (prefix) => [1, 2].map((at) => osvDocument(`A-${at}`, { affected: [packageOf(prefix)] })))
    const { group, owner, token, prefix } = world
    const team = uidOf(await spec.ok('CreateGroup', { parent: group, group: { name: 'team' } }, { token }))
    const ofTeam = (...ids: number[]): JsonObject[] => ids.map((at) => osvDocument(`T-${at}`, { affected: [packageOf(prefix)] }))
    await importDocuments(spec.server, team, ofTeam(1, 2, 3))
    const narrowed = await spec.server.tokenFor(owner, { scopes: [trustedUid(team)] })
    const without = await spec.server.tokenFor(owner, { capabilities: setOf(['groups.list']) })
    const other = await makeOrganisation(spec.server)
    const first = await spec.ok('ListAdvisories', { artifactNames: [prefix], pageSize: 1 }, { token })
    const next = { artifactNames: [prefix], pageSize: 1, pageToken: first['nextPageToken'] ?? '' }
    const isOfTeam = (ids: readonly string[]): boolean => ids.length > 0 && ids.every((id) => id.startsWith('T-'))
    for (let round = 0; round < 2; round++) {
      expect(isOfTeam(await listed({ spec, token: narrowed }, next))).toBe(true)
      expect((await spec.ok('ListAdvisories', next, { token: narrowed }))['totalCount']).toBe('3')
      expect(await listed({ spec, token: without }, next)).toEqual([])
      expectFailure(await spec.call('ListAdvisories', next, { token: other.token }), { code: 3, domain: 'vulnerabilities.taproot.dev' })
      await importDocuments(spec.server, team, ofTeam(1, 3, 4), { replace: true })
    }
    const [mine] = itemsOf(await spec.ok('ListAdvisories', { uidp: { childrenOf: group } }, { token }), 'advisories')
    expectFailure(await spec.call('GetAdvisory', { uid: uidOf(mine ?? {}) }, { token: narrowed }), { code: 5, domain: 'vulnerabilities.taproot.dev' })
  })

  test('the advisories of a deleted group are hidden at once, and do not keep it', async () => {
    const world = await imported(spec, (prefix) => [osvDocument('A-1', { affected: [packageOf(prefix)] })])
    const { group, token } = world
    const team = uidOf(await spec.ok('CreateGroup', { parent: group, group: { name: 'team' } }, { token }))
    await importDocuments(spec.server, team, [osvDocument('T-1')])
    const [advisory] = itemsOf(await spec.ok('ListAdvisories', { uidp: { childrenOf: team } }, { token }), 'advisories')
    await spec.ok('DeleteGroup', { uid: team }, { token })
    expect(await listed(world)).toEqual(['A-1'])
    expectFailure(await spec.call('GetAdvisory', { uid: String(advisory?.['uid']) }, { token }), { code: 5, domain: 'vulnerabilities.taproot.dev' })
  })

  test('a withdrawn advisory is in no list, and can still be read', async () => {
    const world = await imported(spec, (prefix) => [osvDocument('A-1', { affected: [packageOf(prefix)] })])
    const { group, token, prefix } = world
    const [advisory] = itemsOf(await spec.ok('ListAdvisories', {}, { token }), 'advisories')
    const withdrawn = '2026-04-01T00:00:00Z'
    await importDocuments(spec.server, group, [osvDocument('A-1', { withdrawn, affected: [packageOf(prefix)] })])
    expect(await listed(world)).toEqual([])
    expect(await spec.ok('GetAdvisory', { uid: String(advisory?.['uid']) }, { token })).toMatchObject({ deleteTime: '2026-04-01T00:00:00.000Z' })
  })

  // docs/spec/advisories.md#advisory-imports
  test('the same import twice changes nothing, and replacing removes what the files do not have', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const documents = [osvDocument('A-1'), osvDocument('A-2')]
    expect(await importDocuments(spec.server, group, documents)).toMatchObject({ added: 2, changed: 0, unchanged: 0, removed: 0, refused: 0 })
    const before = await spec.ok('ListAdvisories', {}, { token })
    expect(await importDocuments(spec.server, group, documents)).toMatchObject({ added: 0, unchanged: 2, published: new Map() })
    expect(await importDocuments(spec.server, group, [osvDocument('A-1')], { dryRun: true, replace: true })).toMatchObject({ removed: 1, published: new Map() })
    expect(await spec.ok('ListAdvisories', {}, { token })).toEqual(before)
    expect(await importDocuments(spec.server, group, [osvDocument('A-1')], { replace: true })).toMatchObject({ unchanged: 1, removed: 1 })
    expect(await listed({ spec, token })).toEqual(['A-1'])
  })
})

specSuite(
  'without an upstream there are no advisories',
  (spec) => {
    test('lists are empty', async () => {
      const { token } = await makeOrganisation(spec.server)
      expect(ok(await spec.call('ListAdvisories', {}, { token }))).toMatchObject({ skipped: 0 })
      expect(await listed({ spec, token })).toEqual([])
    })
  },
  { keepsContent: false },
)
