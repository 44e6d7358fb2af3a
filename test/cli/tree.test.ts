import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { parse } from 'yaml'
import type { Forest } from '../../src/cli/tree/branch.ts'
import { tree, type TreeRequest } from '../../src/cli/tree/command.ts'
import type { TreeBounds } from '../../src/cli/tree/gather.ts'
import { freshName, makeMember, ok, roleUid, startTestServer } from '../support/test-server.ts'
import { RegistryWorld, type Tenant } from '../registry/tokens/registry-world.ts'
import { contextOf, makeGroups, type TestContext } from './client-world.ts'

const digest = `sha256:${'cd'.repeat(32)}`
const unbounded: TreeBounds = { depth: Infinity, limit: 20, opened: 500 }

describe('taproot tree', () => {
  let world: RegistryWorld
  let mine: Tenant
  let foreign: Tenant
  let team: string

  beforeAll(async () => {
    world = new RegistryWorld(await startTestServer({ keepsContent: false }))
    mine = await world.tenant(freshName('mine'))
    foreign = await world.tenant(freshName('foreign'))
    team = await world.group(mine.group, 'team')
    await world.group(team, 'inner')
    await world.group(mine.group, 'another')
    const tool = await world.repo(team, 'tool')
    await world.operate('CreateTag', { parent: tool, tag: { name: '1.0', digest } })
    await world.operate('CreateTag', { parent: tool, tag: { name: '2.0', digest } })
    await world.operate('CreateRole', { parent: team, role: { name: 'deployer', capabilities: ['CAP_TAG_CREATE'] } })
    for (const name of ['ci', 'bot']) {
      const claimMatch = { issuer: 'https://issuer.example', subject: name }
      const token = await world.server.operatorToken()
      const { uid } = ok(await world.server.rest.call('CreateIdentity', { parent: team, identity: { name, claimMatch } }, { token }))
      const roleBinding = { identityUid: String(uid), roleUid: roleUid(name === 'ci' ? 'viewer' : 'editor') }
      await world.operate('CreateRoleBinding', { parent: team, roleBinding })
    }
  })
  afterAll(() => world.server.stop())

  async function run(request: Partial<Omit<TreeRequest, 'bounds'>> & { bounds?: Partial<TreeBounds> }, token = mine.token): Promise<TestContext> {
    const context = contextOf(world.server, token)
    await tree(context, { group: undefined, format: 'table', ...request, bounds: { ...unbounded, ...request.bounds } })
    return context
  }

  const drawn = async (...args: Parameters<typeof run>): Promise<string> => (await run(...args)).printed()

  test('taproot tree prints groups and the records in them, each list by name, groups last', async () => {
    const expected = [
      'team  1 group, 2 identities, 1 role, 2 role bindings, 1 repo',
      '├── identity  bot',
      '├── identity  ci',
      '├── role      deployer',
      '├── binding   editor -> bot',
      '├── binding   viewer -> ci',
      '├── repo      tool  2 tags',
      '└── group     inner',
      '',
    ].join('\n')
    expect(await drawn({ group: `${mine.name}/team` })).toBe(expected)
    expect(await drawn({ group: team })).toBe(expected)
  })

  test('taproot tree prints only what the caller may see, of no other tenant, in the same way each time', async () => {
    const text = await drawn({})
    expect(text.split('\n')).toEqual([
      expect.stringMatching(new RegExp(`^${mine.name}  2 groups, 1 identity, 2 role bindings, 1 repo$`)),
      expect.stringMatching(/^├── identity {2}member-/),
      // The binding of the operator who created the group: a person without a name.
      expect.stringMatching(/^├── binding {3}owner -> [0-9a-f]{40}$/),
      expect.stringMatching(/^├── binding {3}owner -> member-/),
      '├── repo      app  0 tags',
      '├── group     another',
      '└── group     team  1 group, 2 identities, 1 role, 2 role bindings, 1 repo',
      '    ├── identity  bot',
      '    ├── identity  ci',
      '    ├── role      deployer',
      '    ├── binding   editor -> bot',
      '    ├── binding   viewer -> ci',
      '    ├── repo      tool  2 tags',
      '    └── group     inner',
      '',
    ])
    expect(await drawn({})).toBe(text)
  })

  test('taproot tree starts at the groups where the caller has a role, if they see no root group', async () => {
    const side = await world.group(foreign.group, 'side')
    await world.group(side, 'below')
    const member = await makeMember(world.server, foreign.group, { role: 'viewer', bindAt: side })
    await world.bindAnyway(side, member.uid, 'editor')
    expect((await drawn({}, member.token)).split('\n').filter((line) => !line.includes('binding '))).toEqual([
      'side  1 group, 2 role bindings',
      '└── group     below',
      '',
    ])
  })

  test('taproot tree says that there is nothing to see for a caller without access', async () => {
    const powerless = await makeMember(world.server, foreign.group)
    const context = await run({}, powerless.token)
    expect([context.printed(), context.notes]).toEqual(['', ['no groups that you may see']])
  })

  test.for([
    ['of another tenant, by its path', (): string => foreign.name],
    ['of another tenant, by its uid', (): string => foreign.group],
    ['that does not exist', (): string => 'nowhere/at-all'],
  ] as const)('taproot tree reports a group as not found: %s', async ([, group]) => {
    await expect(run({ group: group() })).rejects.toMatchObject({ name: 'ClientError', code: 5 })
  })

  test('taproot tree opens as many levels as --depth says and names the groups of the next', async () => {
    const lines = (await drawn({ bounds: { depth: 1 } })).split('\n')
    expect(lines.filter((line) => line.includes('group '))).toEqual(['├── group     another  ...', '└── group     team  ...'])
  })

  test('taproot tree cuts every list at --limit and says how many more there are', async () => {
    expect(await drawn({ group: team, bounds: { limit: 1 } })).toBe(
      [
        'team  1 group, 2 identities, 1 role, 2 role bindings, 1 repo',
        '├── identity  bot',
        '├── ... 1 more identity',
        '├── role      deployer',
        '├── binding   editor -> bot',
        '├── ... 1 more role binding',
        '├── repo      tool  2 tags',
        '└── group     inner',
        '',
      ].join('\n'),
    )
  })

  test('taproot tree cuts the list of root groups in the same way', async () => {
    const lines = (await drawn({ bounds: { limit: 1 } }, await world.server.operatorToken())).trimEnd().split('\n')
    expect(lines.at(-1)).toMatch(/^\.\.\. \d+ more groups?$/)
  })

  test('taproot tree opens a limited number of groups of a large tree, those near the top first', async () => {
    const wide = await world.tenant(freshName('wide'))
    await makeGroups(world.server, wide.group, 300)
    const context = await run({ group: wide.group, bounds: { limit: 10, opened: 4 } }, wide.token)
    const lines = context.printed().trimEnd().split('\n')
    expect(lines[0]).toContain('300 groups')
    expect(lines.filter((line) => line.includes('group-'))).toEqual([
      ...[0, 1, 2].map((at) => `├── group     group-0000${at}`),
      ...[3, 4, 5, 6, 7, 8, 9].map((at) => `├── group     group-0000${at}  ...`),
    ])
    expect(lines.at(-1)).toBe('└── ... 290 more groups')
    expect(context.notes).toEqual([expect.stringMatching(/^opened 4 groups; 7 more/)])
  })

  test('taproot tree prints the same tree as json and yaml, with uids', async () => {
    const forest = JSON.parse(await drawn({ group: team, format: 'json' })) as Forest
    expect(parse(await drawn({ group: team, format: 'yaml' }))).toEqual(forest)
    expect(forest).toMatchObject({
      count: 1,
      groups: [
        {
          uid: team,
          name: 'team',
          opened: true,
          counts: { groups: 1, identities: 2, roles: 1, roleBindings: 2, repos: 1 },
          identities: [{ name: 'bot' }, { name: 'ci' }],
          roleBindings: [
            { role: 'editor', identity: 'bot' },
            { role: 'viewer', identity: 'ci' },
          ],
          repos: [{ name: 'tool', tags: 2 }],
          groups: [{ name: 'inner', opened: true, groups: [] }],
        },
      ],
    })
  })
})
