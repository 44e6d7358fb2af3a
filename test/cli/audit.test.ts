import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { parseAge, printAudit, type AuditRequest } from '../../src/cli/audit.ts'
import { freshName, makeMember, makeOrganisation, ok, startTestServer, type Organisation, type TestServer } from '../support/test-server.ts'
import { contextOf } from './client-world.ts'

const deleteGroup = 'taproot.iam.v2.GroupsService/DeleteGroup'

describe('taproot audit', () => {
  let server: TestServer
  let org: Organisation
  let viewer: { uid: string; token: string }
  const groups: string[] = []
  beforeAll(async () => {
    server = await startTestServer()
    org = await makeOrganisation(server)
    viewer = await makeMember(server, org.group, { role: 'viewer' })
    for (let at = 0; at < 3; at += 1)
      groups.unshift(String(ok(await server.rest.call('CreateGroup', { parent: org.group, group: { name: freshName('group') } }, { token: org.token }))['uid']))
    expect((await server.rest.call('DeleteGroup', { uid: groups[0] ?? '' }, { token: viewer.token })).code).toBe(7)
  })
  afterAll(() => server.stop())

  const printed = async (request: Partial<AuditRequest>, token = org.token): Promise<{ lines: string[]; notes: readonly string[] }> => {
    const context = contextOf(server, token)
    await printAudit(context, { limit: 50, output: 'table', ...request })
    return {
      lines: context
        .printed()
        .split('\n')
        .filter((line) => line !== ''),
      notes: context.notes,
    }
  }
  const resources = async (request: Partial<AuditRequest>): Promise<unknown[]> =>
    (await printed({ output: 'json', ...request })).lines.map((line) => (JSON.parse(line) as { resource: unknown }).resource)

  test('taproot audit prints one line for each event, newest first', async () => {
    const { lines } = await printed({ in: org.group, since: 3_600_000 })
    expect(lines[0]).toMatch(new RegExp(`^\\d{4}-\\d\\d-\\d\\dT[\\d:.]+Z +denied +GroupsService/DeleteGroup +${groups[0]}  ${viewer.uid}$`))
    expect(lines[1]).toMatch(new RegExp(`Z +done +GroupsService/CreateGroup +${groups[0]}  ${org.owner}$`))
  })

  test('each option of taproot audit selects, and --limit cuts', async () => {
    const denied = { actor: viewer.uid, resource: groups[0] ?? '', capability: 'groups.delete', method: deleteGroup, outcome: 'denied' } as const
    for (const one of [...Object.entries(denied).map(([name, value]) => ({ [name]: value })), denied, { ...denied, in: groups[0] ?? '' }])
      expect(await resources({ ...one, limit: 1 }), JSON.stringify(one)).toEqual([groups[0]])
    expect(await resources({ actor: org.owner })).toEqual(groups)
    expect(await resources({ actor: org.owner, limit: 2 })).toEqual(groups.slice(0, 2))
    expect(await resources({ actor: org.owner, outcome: 'denied' })).toEqual([])
    const { name } = ok(await server.rest.call('GetGroup', { uid: org.group }, { token: org.token }))
    const { name: child } = ok(await server.rest.call('GetGroup', { uid: groups[1] ?? '' }, { token: org.token }))
    expect(await resources({ resource: `${String(name)}/${String(child)}` })).toEqual([groups[1]])
    await expect(printed({ resource: 'no-such-group' })).rejects.toMatchObject({ code: 5 })
  })

  test('taproot audit notes that there is nothing to see, and reports a group that is missing', async () => {
    expect(await printed({}, viewer.token)).toEqual({ lines: [], notes: ['no audit events that you may see'] })
    await expect(printed({ in: 'nowhere' })).rejects.toMatchObject({ code: 5 })
  })

  test('ages are minutes, hours or days', () => {
    expect(['30m', '24h', '7d'].map(parseAge)).toEqual([1_800_000, 86_400_000, 604_800_000])
    for (const text of ['', '0h', 'h', '24', '24s', '-1h', '1h30m', '1234567m']) expect(() => parseAge(text), text).toThrow(/such as/)
  })
})
