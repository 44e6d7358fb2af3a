import type { JsonObject } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import { specSuite } from '../conformance/spec/spec-suite.ts'
import { freshName, makeMember, makeOrganisation, makePerson, type Organisation } from '../support/test-server.ts'

const create = 'taproot.iam.v2.GroupsService/CreateGroup'

specSuite('the list of audit events', (spec) => {
  const list = async (request: JsonObject, token: string): Promise<JsonObject[]> => {
    const body = await spec.ok('ListAuditEvents', request, { token })
    return (body['events'] ?? []) as JsonObject[]
  }
  const newGroup = async ({ token }: Organisation, parent: string): Promise<string> =>
    String((await spec.ok('CreateGroup', { parent, group: { name: freshName('group') } }, { token }))['uid'])
  const resources = (events: readonly JsonObject[]): unknown[] => events.map(({ resource }) => resource)
  const code = async (request: JsonObject, token: string): Promise<number> => (await spec.call('ListAuditEvents', request, { token })).code

  // docs/audit.md#list
  test('an owner sees each change at once, newest first, and oldest first on request', async () => {
    const org = await makeOrganisation(spec.server)
    const first = await newGroup(org, org.group)
    const second = await newGroup(org, first)
    const events = await list({ method: create, actor: org.owner }, org.token)
    expect(resources(events)).toEqual([second, first])
    expect(events[0]).toMatchObject({ outcome: 'DONE', method: create, capabilities: ['groups.create'], actor: org.owner, group: second, root: org.group })
    expect(resources(await list({ method: create, actor: org.owner, orderBy: 'time asc' }, org.token))).toEqual([first, second])
    expect(resources(await list({ method: create, actor: org.owner, orderBy: 'time' }, org.token))).toEqual([first, second])
  })

  test('a read leaves no event', async () => {
    const org = await makeOrganisation(spec.server)
    await spec.ok('ListGroups', {}, { token: org.token })
    await list({}, org.token)
    expect(await list({ actor: org.owner }, org.token)).toEqual([])
  })

  test('each filter selects by its field, and all together', async () => {
    const org = await makeOrganisation(spec.server)
    const { uid: viewer, token } = await makeMember(spec.server, org.group, { role: 'viewer' })
    const group = await newGroup(org, org.group)
    const below = await newGroup(org, group)
    expect((await spec.call('DeleteGroup', { uid: below }, { token })).code).toBe(7)
    const denial = { actor: viewer, resource: below, capability: 'groups.delete', outcome: 'DENIED', method: 'taproot.iam.v2.GroupsService/DeleteGroup' }
    for (const filter of [...Object.entries(denial).map(([name, value]) => ({ [name]: value })), denial]) {
      const events = await list(filter, org.token)
      expect(resources(events), JSON.stringify(filter)).toContain(below)
      for (const event of events) expect(event).toMatchObject('capability' in filter ? {} : filter)
    }
    expect(await list({ ...denial, actor: org.owner }, org.token)).toEqual([])
    expect(resources(await list({ uidp: { descendantsOf: group }, outcome: 'DONE' }, org.token))).toEqual([below, group])
    const [event] = await list(denial, org.token)
    const time = String(event?.['time'])
    const after = new Date(Date.parse(time) + 1).toISOString()
    expect(await list({ ...denial, start: time, end: after }, org.token)).toEqual([event])
    expect(await list({ ...denial, start: after }, org.token)).toEqual([])
    expect(await list({ ...denial, end: time }, org.token)).toEqual([])
  })

  test('pages follow each other without a gap, also while events arrive, and skip counts from the cursor', async () => {
    const org = await makeOrganisation(spec.server)
    const groups: string[] = []
    for (let number = 0; number < 5; number += 1) groups.push(await newGroup(org, org.group))
    const seen: unknown[] = []
    let pageToken = ''
    do {
      const body = await spec.ok('ListAuditEvents', { method: create, actor: org.owner, pageSize: 2, pageToken }, { token: org.token })
      seen.push(...resources((body['events'] ?? []) as JsonObject[]))
      pageToken = String(body['nextPageToken'] ?? '')
      await newGroup(org, org.group)
    } while (pageToken !== '')
    expect(seen).toEqual(groups.toReversed())
    expect(resources(await list({ method: create, actor: org.owner, orderBy: 'time', skip: 1, pageSize: 2 }, org.token))).toEqual(groups.slice(1, 3))
    const body = await spec.ok('ListAuditEvents', { method: create, actor: org.owner, pageSize: 1 }, { token: org.token })
    expect(await code({ method: create, actor: org.owner, outcome: 'DONE', pageToken: String(body['nextPageToken']) }, org.token)).toBe(3)
  })

  test('a caller sees the events of the groups at which it holds audit.list, and of no other', async () => {
    const [org, other] = [await makeOrganisation(spec.server), await makeOrganisation(spec.server)]
    const [seen, hidden] = [await newGroup(org, org.group), await newGroup(org, org.group)]
    const below = await newGroup(org, seen)
    const { uid: role } = await spec.ok(
      'CreateRole',
      { parent: org.group, role: { name: freshName('auditor'), capabilities: ['CAP_AUDIT_LIST'] } },
      { token: org.token },
    )
    const auditor = await makeMember(spec.server, seen, { role: 'registry.pull' })
    await spec.ok('CreateRoleBinding', { parent: seen, roleBinding: { identityUid: auditor.uid, roleUid: String(role) } }, { token: org.token })
    expect(resources(await list({ method: create }, auditor.token))).toEqual([below, seen])
    expect(await list({ method: create, uidp: { descendantsOf: hidden } }, auditor.token)).toEqual([])
    expect(await list({ method: create, uidp: { descendantsOf: org.group } }, other.token)).toEqual([])
    expect(await list({ actor: org.owner }, other.token)).toEqual([])
    for (const name of ['viewer', 'editor']) expect(await list({}, (await makeMember(spec.server, org.group, { role: name })).token), name).toEqual([])
    const operator = await spec.server.operatorToken()
    expect(resources(await list({ resource: hidden, method: create }, operator))).toEqual([hidden])
  })

  test('an actor of another organisation is shown by its uid only, except to operators', async () => {
    const org = await makeOrganisation(spec.server)
    const person = await makePerson(spec.server, { issuer: 'https://login.example', subject: freshName('person'), email: 'person@example.com' })
    const group = await newGroup(org, org.group)
    const role = (await spec.ok('ListRoles', { name: 'viewer' }, { token: org.token }))['roles'] as JsonObject[]
    await spec.ok('CreateRoleBinding', { parent: org.group, roleBinding: { identityUid: person.uid, roleUid: String(role[0]?.['uid']) } }, { token: org.token })
    expect((await spec.call('DeleteGroup', { uid: group }, { token: person.token })).code).toBe(7)
    const [foreign] = await list({ actor: person.uid, outcome: 'DENIED' }, org.token)
    expect(foreign).toMatchObject({ actor: person.uid, resource: group })
    for (const name of ['claimedIssuer', 'claimedSubject', 'remoteAddress', 'userAgent']) expect(foreign, name).not.toHaveProperty(name)
    const [whole] = await list({ actor: person.uid, outcome: 'DENIED', resource: group }, await spec.server.operatorToken())
    expect(whole).toHaveProperty('claimedSubject')
    expect(whole).toHaveProperty('remoteAddress')
    await spec.ok('JoinGroup', { uid: org.group }, { token: person.token })
    expect((await list({ actor: person.uid, outcome: 'DENIED' }, org.token))[0]).toHaveProperty('claimedSubject')
  })

  test.each([
    ['uidp', { uidp: { childrenOf: 'a'.repeat(40) } }],
    ['a place that is no uid', { uidp: { descendantsOf: 'acme' } }],
    ['another order', { orderBy: 'name' }],
    ['a negative page size', { pageSize: -1 }],
    ['a page token of another list', { pageToken: 'x' }],
  ])('%s is refused', async (_what, request) => {
    const org = await makeOrganisation(spec.server)
    expect(await code(request, org.token)).toBe(3)
  })
})
