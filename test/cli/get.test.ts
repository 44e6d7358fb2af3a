import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { parse } from 'yaml'
import type { Json } from '../../src/cli/client/client-error.ts'
import { UsageError } from '../../src/cli/exit-codes.ts'
import { get, type GetRequest } from '../../src/cli/get.ts'
import { freshName, makeMember, ok, roleUid, startTestServer } from '../support/test-server.ts'
import { RegistryWorld, type Tenant } from '../registry/tokens/registry-world.ts'
import { contextOf, makeGroups, type TestContext } from './client-world.ts'

const terms = JSON.stringify([{ id: 'terms', label: 'Terms', url: 'https://example.com/terms' }])
const digest = `sha256:${'ab'.repeat(32)}`

describe('taproot get', () => {
  let world: RegistryWorld
  let mine: Tenant
  let foreign: Tenant
  let team: string

  beforeAll(async () => {
    world = new RegistryWorld(await startTestServer({ keepsContent: false, env: { TAPROOT_TERMS: terms } }))
    mine = await world.tenant(freshName('mine'))
    foreign = await world.tenant(freshName('foreign'))
    team = await world.group(mine.group, 'team')
    await world.group(team, 'deep')
    const tool = await world.repo(team, 'tool')
    for (const name of ['1.0', 'latest']) await world.operate('CreateTag', { parent: tool, tag: { name, digest } })
  })
  afterAll(() => world.server.stop())

  async function run(request: Partial<GetRequest> & { kind: string }, token = mine.token): Promise<TestContext> {
    const context = contextOf(world.server, token)
    await get(context, { record: undefined, filter: [], format: 'json', ...request })
    return context
  }

  async function listed(request: Partial<GetRequest> & { kind: string }, token = mine.token): Promise<readonly Json[]> {
    return JSON.parse((await run(request, token)).printed()) as readonly Json[]
  }

  async function namesOf(request: Partial<GetRequest> & { kind: string }, token = mine.token): Promise<unknown[]> {
    return (await listed(request, token)).map(({ name }) => name)
  }

  async function one(request: Partial<GetRequest> & { kind: string; record: string }, token = mine.token): Promise<Json> {
    return JSON.parse((await run(request, token)).printed()) as Json
  }

  describe('a list', () => {
    test('a list contains all that the caller may see, of no other tenant', async () => {
      expect((await namesOf({ kind: 'groups' })).toSorted()).toEqual(['deep', 'team', mine.name].toSorted())
      expect(await namesOf({ kind: 'prepo' }, foreign.token)).toEqual(['app'])
    })

    test('deliveries are listed per subscription, with event, state and reason', async () => {
      const hooked = await world.tenant(freshName('hooked'))
      const subscription = { sink: 'https://sink.invalid/', types: ['dev.taproot.api.iam.group.'] }
      await world.operate('CreateSubscription', { parent: hooked.group, subscription })
      const uid = (await run({ kind: 'psub', format: 'name' }, hooked.token)).printed().trim()
      await world.operate('PauseSubscription', { uid })
      const below = await world.group(hooked.group, 'below')
      await expect(run({ kind: 'deliveries' })).rejects.toThrow('deliveries are listed per subscription: set --in to one')
      const [delivery] = await listed({ kind: 'deliveries', in: uid }, hooked.token)
      expect(delivery).toMatchObject({ state: 'PENDING', eventType: 'dev.taproot.api.iam.group.created.v1', subject: below })
      expect((await run({ kind: 'deliveries', in: uid, format: 'name' }, hooked.token)).printed()).toBe(`${String(delivery?.['eventId'])}\n`)
      expect(await listed({ kind: 'deliveries', in: uid, filter: ['state=DEAD'] }, hooked.token)).toEqual([])
      const table = (await run({ kind: 'deliveries', in: uid, format: 'table' }, hooked.token)).printed()
      expect(table).toMatch(/^EVENT ID +TYPE +AGE +STATE +ATTEMPTS +STATUS +NEXT +ERROR\n\S+ +dev\.taproot\S+ +\d+s +PENDING\n$/)
      expect((await run({ kind: 'psub', format: 'table' }, hooked.token)).printed()).toMatch(/PAUSED .* paused by :pause\n$/)
    })

    test('a list is empty for a caller who may list nothing, and a table says so next to the results', async () => {
      const powerless = await makeMember(world.server, mine.group)
      expect(await listed({ kind: 'identities' }, powerless.token)).toEqual([])
      const context = await run({ kind: 'identities', format: 'table' }, powerless.token)
      expect([context.printed(), context.notes]).toEqual(['', ['no identities that you may see']])
    })

    test.for([
      ['a group: its direct children', () => ({ kind: 'groups', in: mine.name }), ['team']],
      ['a group with --descendants: children at any depth', () => ({ kind: 'groups', in: mine.name, descendants: true }), ['deep', 'team']],
      ['a group by its path', () => ({ kind: 'groups', in: `${mine.name}/team` }), ['deep']],
      ['a group by its uid', () => ({ kind: 'groups', in: team }), ['deep']],
      ['a repo by its path', () => ({ kind: 'tags', in: `${mine.name}/team/tool` }), ['1.0', 'latest']],
      ['a group with --descendants: tags below it', () => ({ kind: 'tags', in: mine.name, descendants: true }), ['1.0', 'latest']],
      ['a filter', () => ({ kind: 'tags', filter: ['name=1.0'] }), ['1.0']],
      ['filters in camel case that match two', () => ({ kind: 'tags', filter: ['includeDates=true', 'include_referrers=true'] }), ['1.0', 'latest']],
    ] as const)('a list is narrowed by %s', async ([, request, names]) => {
      expect((await namesOf({ filter: [], ...request() })).toSorted()).toEqual(names)
    })

    test('a list is in the requested order', async () => {
      expect(await namesOf({ kind: 'tags', orderBy: 'name desc' })).toEqual(['latest', '1.0'])
    })

    test.for([
      ['another tenant', () => ({ kind: 'repos', in: foreign.name }), `there is no group or repo`],
      ['a path below another tenant', () => ({ kind: 'tags', in: `${foreign.name}/app` }), 'there is no group'],
    ] as const)('a list is refused as not found in %s', async ([, request]) => {
      await expect(run(request())).rejects.toMatchObject({ name: 'ClientError', code: 5 })
    })

    test.for([
      ['tags directly in a group', () => ({ kind: 'tags', in: mine.name }), '--descendants'],
      ['an unknown filter', () => ({ kind: 'groups', filter: ['colour=red'] }), 'use name'],
      ['paging as a filter', () => ({ kind: 'groups', filter: ['page_size=3'] }), 'page_size'],
      ['no group for a kind that needs one', () => ({ kind: 'terms' }), '--in'],
      ['a malformed path', () => ({ kind: 'groups', in: 'a//b' }), 'not a path'],
    ] as const)('a list with %s is a usage error', async ([, request, part]) => {
      await expect(run({ filter: [], ...request() })).rejects.toThrow(UsageError)
      await expect(run({ filter: [], ...request() })).rejects.toThrow(part)
    })

    test('a list of acceptances of terms needs a group', async () => {
      const documents = { group: mine.group, documentIds: ['terms'] }
      expect((await world.server.rest.call('AcceptTerms', documents, { token: mine.token })).code).toBe(0)
      const context = await run({ kind: 'terms', in: `${mine.name}/team`, format: 'table' })
      expect(context.printed()).toMatch(new RegExp(`^DOCUMENT +GROUP UID +ACCEPTED BY +AGE\\nterms +${mine.group} +${mine.owner} +\\d+s\\n$`))
    })
  })

  describe('one record', () => {
    test.for([
      ['a group by name', () => ['group', 'deep'], 'deep'],
      ['a root by name', () => ['group', mine.name], (): string => mine.name],
      ['a group by path', () => ['group', `${mine.name}/team/deep`], 'deep'],
      ['a group by uid', () => ['group', team], 'team'],
      ['a repo by path', () => ['repo', `${mine.name}/team/tool`], 'tool'],
      ['a tag by path', () => ['tag', `${mine.name}/team/tool/1.0`], '1.0'],
      ['a tag as in an image reference', () => ['tag', `${mine.name}/team/tool:latest`], 'latest'],
      ['a built-in role by name', () => ['role', 'viewer'], 'viewer'],
    ] as const)('one record is found: %s', async ([, request, name]) => {
      const [kind = '', record = ''] = request()
      expect(await one({ kind, record })).toMatchObject({ name: typeof name === 'string' ? name : name() })
    })

    test('one record with an ambiguous name is refused with the uids, unless --in selects one', async () => {
      const other = await world.group(mine.group, freshName('other'))
      const repo = await world.repo(other, 'tool')
      const refused = run({ kind: 'repo', record: 'tool' })
      await expect(refused).rejects.toThrow('2 repos are named tool')
      await expect(refused).rejects.toThrow(repo)
      expect(await one({ kind: 'repo', record: 'tool', in: other })).toMatchObject({ uid: repo })
    })

    test.for([
      ['that does not exist, by name', () => ['group', 'nowhere']],
      ['that does not exist, by path', () => ['repo', `${mine.name}/team/nothing`]],
      ['that does not exist, by uid', () => ['group', `${mine.group}/0123456789abcdef`]],
      ['of another tenant, by name', () => ['group', foreign.name]],
      ['of another tenant, by path', () => ['repo', foreign.path]],
      ['of another tenant, by uid', () => ['repo', foreign.repo]],
    ] as const)('%s, is reported as not found', async ([, request]) => {
      const [kind = '', record = ''] = request()
      await expect(run({ kind, record })).rejects.toMatchObject({ name: 'ClientError', code: 5 })
    })

    test('one record is reported as denied, with reason and request id, to a caller who sees its group but lacks the right', async () => {
      const puller = await makeMember(world.server, mine.group, { role: 'registry.pull' })
      const denied = await run({ kind: 'identity', record: mine.owner }, puller.token).catch((error: unknown) => error)
      expect(denied).toMatchObject({ name: 'ClientError', code: 7, reason: 'PERMISSION_DENIED', requestId: expect.stringMatching(/./) as unknown })
      expect((denied as { line: string }).line).toMatch(/identity\.list.*\(code 7 PERMISSION_DENIED, request [\w-]+\)$/)
    })

    test.for([
      ['a name for a kind without names', { kind: 'rolebinding', record: 'owner' }, 'uid'],
      ['a uid for a kind that can only be listed', { kind: 'terms', record: 'a'.repeat(40) }, 'list them'],
      ['both a path and --in', { kind: 'repo', record: 'a/b', in: 'a' }, '--in'],
      ['an option for lists', { kind: 'repo', record: 'tool', limit: 3 }, 'need a list'],
    ] as const)('one record with %s is a usage error', async ([, request, part]) => {
      await expect(run(request)).rejects.toThrow(UsageError)
      await expect(run(request)).rejects.toThrow(part)
    })
  })

  describe('output formats', () => {
    test('a table has the columns of its kind', async () => {
      const context = await run({ kind: 'tags', format: 'table', orderBy: 'name' })
      const [head = '', ...rows] = context.printed().trimEnd().split('\n')
      expect(head).toMatch(/^PATH +DIGEST +DEPRECATED +UPDATED$/)
      expect(rows.map((row) => row.split(/ +/).slice(0, 3))).toEqual([
        [`${mine.name}/team/tool:1.0`, digest.slice(0, 19), 'false'],
        [`${mine.name}/team/tool:latest`, digest.slice(0, 19), 'false'],
      ])
      for (const row of rows) expect(row.indexOf('sha256:')).toBe(head.indexOf('DIGEST'))
    })

    test('role bindings show names', async () => {
      const viewer = await makeMember(world.server, team, { role: 'viewer' })
      const context = await run({ kind: 'prb', in: team, filter: [`identity=${viewer.uid}`, `role=${roleUid('viewer')}`], format: 'table' })
      expect(context.printed()).toMatch(/^GROUP +ROLE +IDENTITY +UID +AGE\n\S+\/team +viewer +member-\S+ +\S+ +\d+s\n$/)
    })

    test('wide adds the uid, and a path shows that there are groups which the caller may not see', async () => {
      const viewer = await makeMember(world.server, team, { role: 'viewer' })
      const context = await run({ kind: 'groups', format: 'wide' }, viewer.token)
      expect(context.printed()).toMatch(new RegExp(`^PATH +AGE +DESCRIPTION +UID\\n…/team +\\d+s +${team}\\n…/team/deep +\\d+s +`))
    })

    test('an identity that was never used says so, and a built-in role has its name as path', async () => {
      const claimMatch = { issuer: 'https://ci.example', subject: 'idle' }
      await world.operate('CreateIdentity', { parent: team, identity: { name: 'idle', claimMatch } })
      expect((await run({ kind: 'identity', record: 'idle', format: 'table' })).printed()).toMatch(/ never +\d+s\n$/)
      expect((await run({ kind: 'role', record: roleUid('viewer'), format: 'table' })).printed()).toMatch(/\nviewer /)
    })

    test('json, yaml and name contain the same records', async () => {
      const request = { kind: 'tags', orderBy: 'name' } as const
      const records = await listed(request)
      expect(parse((await run({ ...request, format: 'yaml' })).printed())).toEqual(records)
      expect((await run({ ...request, format: 'name' })).printed()).toBe(records.map(({ uid }) => `${String(uid)}\n`).join(''))
      const record = records[0] ?? {}
      expect(parse((await run({ kind: 'tag', record: String(record['uid']), format: 'yaml' })).printed())).toEqual(record)
      const answer = await world.server.rest.call('GetTag', { uid: String(record['uid']) }, { token: mine.token })
      expect(record).toEqual(ok(answer))
    })

    test.for(['json', 'yaml'] as const)('an empty list as %s is empty', async (format) => {
      const powerless = await makeMember(world.server, mine.group)
      expect((await run({ kind: 'groups', format }, powerless.token)).printed()).toBe('[]\n')
    })
  })

  describe('a list with more than 1,000 records', () => {
    let names: string[]
    let wide: string
    const token = (): Promise<string> => world.server.operatorToken()

    beforeAll(async () => {
      wide = (await world.tenant(freshName('wide'))).group
      names = await makeGroups(world.server, wide, 1_050)
    })

    test('a list with more than 1,000 records is printed in full, page by page, in the requested order', async () => {
      const context = await run({ kind: 'groups', in: wide, orderBy: 'name' }, await token())
      const records = JSON.parse(context.printed()) as readonly Json[]
      expect(records.map(({ name }) => name)).toEqual(names)
      expect(context.writes()).toBe(7)
    })

    test.for([1, 200, 201, 1_000, 1_051] as const)('a list with more than 1,000 records is limited by --limit %i', async (limit) => {
      const context = await run({ kind: 'groups', in: wide, orderBy: 'name', limit, format: 'name' }, await token())
      expect(context.printed().trimEnd().split('\n')).toHaveLength(Math.min(limit, names.length))
    })

    test('a list with more than 1,000 records has its head once as a table', async () => {
      const context = await run({ kind: 'groups', in: wide, format: 'table' }, await token())
      const lines = context.printed().trimEnd().split('\n')
      expect(lines).toHaveLength(1_051)
      expect(lines.filter((line) => line.startsWith('PATH'))).toHaveLength(1)
    })

    test('a list with more than 1,000 records is one sequence as yaml', async () => {
      const context = await run({ kind: 'groups', in: wide, format: 'yaml', limit: 450, orderBy: 'name' }, await token())
      expect((parse(context.printed()) as Json[]).map(({ name }) => name)).toEqual(names.slice(0, 450))
    })
  })
})
