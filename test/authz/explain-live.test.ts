import type { JsonObject } from '@bufbuild/protobuf'
import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { capabilityByName, setOf } from '../../src/base/capability.ts'
import { trustedUid } from '../../src/base/uid.ts'
import type { Options, Reply } from '../support/api-clients.ts'
import { freshName, makeMember, makePerson, ok, roleUid, startTestServer, type TestServer } from '../support/test-server.ts'

const runs = 200

/** A call that needs one capability at one record, and how its answer shows whether it was allowed. */
interface Probe {
  readonly rpc: string
  readonly kind: keyof Records
  readonly capability: string
  readonly request: (uid: string) => JsonObject
  /** The field of a list answer that contains the record or not. A list never refuses a caller. */
  readonly shows?: string
}

const description = 'changed'
const claimMatch = { issuer: 'https://issuer.example', subject: 'probe' }

const probes: readonly Probe[] = [
  { rpc: 'GetGroup', kind: 'groups', capability: 'groups.list', request: (uid) => ({ uid }) },
  { rpc: 'ListGroups', kind: 'groups', capability: 'groups.list', request: (uid) => ({ uidp: { ids: [uid] } }), shows: 'groups' },
  { rpc: 'UpdateGroup', kind: 'groups', capability: 'groups.update', request: (uid) => ({ group: { uid, description } }) },
  { rpc: 'DeleteGroup', kind: 'groups', capability: 'groups.delete', request: (uid) => ({ uid }) },
  { rpc: 'CreateGroup', kind: 'groups', capability: 'groups.create', request: (parent) => ({ parent, group: { name: 'probe' } }) },
  { rpc: 'CreateIdentity', kind: 'groups', capability: 'identity.create', request: (parent) => ({ parent, identity: { name: 'probe', claimMatch } }) },
  { rpc: 'CreateRepo', kind: 'groups', capability: 'repo.create', request: (parent) => ({ parent, repo: { name: 'probe' } }) },
  { rpc: 'ListTermsAcceptances', kind: 'groups', capability: 'terms.list', request: (group) => ({ group }) },
  { rpc: 'ListAccess', kind: 'groups', capability: 'role_bindings.list', request: (resource) => ({ resource }) },
  { rpc: 'GetRepo', kind: 'repos', capability: 'repo.list', request: (uid) => ({ uid }) },
  { rpc: 'ListRepos', kind: 'repos', capability: 'repo.list', request: (uid) => ({ uidp: { ids: [uid] } }), shows: 'repos' },
  { rpc: 'UpdateRepo', kind: 'repos', capability: 'repo.update', request: (uid) => ({ repo: { uid, description } }) },
  { rpc: 'DeleteRepo', kind: 'repos', capability: 'repo.delete', request: (uid) => ({ uid }) },
  { rpc: 'GetIdentity', kind: 'identities', capability: 'identity.list', request: (uid) => ({ uid }) },
  { rpc: 'ListIdentities', kind: 'identities', capability: 'identity.list', request: (uid) => ({ uidp: { ids: [uid] } }), shows: 'identities' },
  { rpc: 'DeleteIdentity', kind: 'identities', capability: 'identity.delete', request: (uid) => ({ uid }) },
  { rpc: 'GetRole', kind: 'roles', capability: 'roles.list', request: (uid) => ({ uid }) },
  { rpc: 'DeleteRole', kind: 'roles', capability: 'roles.delete', request: (uid) => ({ uid }) },
  { rpc: 'GetRoleBinding', kind: 'bindings', capability: 'role_bindings.list', request: (uid) => ({ uid }) },
  { rpc: 'ListRoleBindings', kind: 'bindings', capability: 'role_bindings.list', request: (uid) => ({ uidp: { ids: [uid] } }), shows: 'roleBindings' },
  { rpc: 'DeleteRoleBinding', kind: 'bindings', capability: 'role_bindings.delete', request: (uid) => ({ uid }) },
]

/** The created records, by kind. */
interface Records {
  readonly groups: string[]
  readonly repos: string[]
  readonly identities: string[]
  readonly roles: string[]
  readonly bindings: string[]
}

/** Two organisations of three groups each, roles with some capabilities each, and bindings all over. */
async function populate(server: TestServer): Promise<Records> {
  const token = await server.operatorToken()
  const make = async (rpc: string, request: JsonObject): Promise<string> => String(ok(await server.rest.call(rpc, request, { token }))['uid'])
  const made: Records = { groups: [], repos: [], identities: [], roles: [], bindings: [] }
  const wanted = [...new Set(probes.map(({ capability }) => capability))]
  const bind = async (parent: string, identityUid: string, role: string): Promise<void> => {
    made.bindings.push(await make('CreateRoleBinding', { parent, roleBinding: { identityUid, roleUid: role } }))
  }
  const person = await makePerson(server, { issuer: 'https://people.example', subject: 'ann' })
  made.identities.push(person.uid)
  for (const org of ['north', 'south']) {
    const top = await make('CreateGroup', { group: { name: freshName(org) } })
    const middle = await make('CreateGroup', { parent: top, group: { name: 'middle' } })
    const low = await make('CreateGroup', { parent: middle, group: { name: 'low' } })
    const sibling = await make('CreateGroup', { parent: top, group: { name: 'beside' } })
    made.groups.push(top, middle, low, sibling)
    for (const parent of [top, low]) made.repos.push(await make('CreateRepo', { parent, repo: { name: 'repo' } }))
    const own: string[] = []
    for (const part of [0, 1, 2]) {
      const names = wanted.filter((_, at) => at % 3 === part).map((name) => capabilityByName(name)?.enumName ?? name)
      own.push(await make('CreateRole', { parent: part === 0 ? middle : top, role: { name: `part-${part}`, capabilities: names } }))
    }
    made.roles.push(...own)
    const [inMiddle = '', one = '', two = ''] = own
    for (const home of [top, top, middle, low]) made.identities.push((await makeMember(server, home)).uid)
    const [first = '', second = '', third = '', fourth = ''] = made.identities.slice(-4)
    await bind(top, first, roleUid('owner'))
    await bind(middle, second, one)
    await bind(low, second, two)
    await bind(middle, third, inMiddle)
    await bind(low, third, roleUid('viewer'))
    await bind(low, fourth, two)
    await bind(org === 'north' ? middle : low, person.uid, org === 'north' ? inMiddle : roleUid('editor'))
  }
  return made
}

/** Returns the outcome for the caller's rights: refused as missing, refused, or allowed whatever followed. */
function outcomeOf(reply: Reply, probe: Probe): 'allowed' | 'denied' | 'hidden' | 'not shown' {
  if (probe.shows !== undefined) return (ok(reply)[probe.shows] as JsonObject[]).length > 0 ? 'allowed' : 'not shown'
  if (reply.code === 5) return 'hidden'
  if (reply.code !== 7) return 'allowed'
  const { missingCapabilities } = reply.details['ErrorInfo']?.['metadata'] as JsonObject // the shape of google.rpc.ErrorInfo
  expect(missingCapabilities).toBe(probe.capability)
  return 'denied'
}

const expected: Readonly<Record<string, 'allowed' | 'denied' | 'hidden'>> = {
  OBSTACLE_UNSPECIFIED: 'allowed',
  OBSTACLE_MISSING_CAPABILITY: 'denied',
  OBSTACLE_NO_REACH: 'hidden',
}

describe.each(['rest', 'grpc'] as const)('explain and the actual API calls, over %s', (transport) => {
  let server: TestServer
  let records: Records
  beforeAll(async () => {
    server = await startTestServer({ store: 'sqlite' })
    records = await populate(server)
  })
  afterAll(() => server?.stop())

  const call = (rpc: string, request: JsonObject, options: Options): Promise<Reply> => server[transport].call(rpc, request, options)
  const place = fc.nat({ max: 1000 })
  const at = (list: readonly string[], index: number): string => list[index % list.length] ?? ''
  const question = fc.record({
    probe: fc.constantFrom(...probes),
    who: place,
    what: place,
    scope: fc.option(place, { nil: undefined }),
    capability: fc.option(fc.constantFrom(...probes.map(({ capability }) => capability)), { nil: undefined }),
  })

  test(`explain and the actual API calls agree ${runs} times, and no narrowed token exceeds its limits`, async () => {
    const operator = await server.operatorToken()
    const seen = new Set<string>()
    await fc.assert(
      fc.asyncProperty(question, async ({ probe, who, what, scope, capability }) => {
        const identity = at(records.identities, who)
        const resource = at(records[probe.kind], what)
        const answer = ok(await call('Explain', { identity, capability: probe.capability, resource }, { token: operator }))
        const outcome = expected[String(answer['obstacle'])]
        seen.add(`${outcome}`)
        const options = { validateOnly: true }
        const request = probe.request(resource)
        const found = outcomeOf(await call(probe.rpc, request, { ...options, token: await server.tokenFor(identity) }), probe)
        expect(found, probe.rpc).toBe(probe.shows !== undefined && outcome !== 'allowed' ? 'not shown' : outcome)
        expect(answer['allowed']).toBe(found === 'allowed')
        const restrictions = {
          ...(scope === undefined ? {} : { scopes: [trustedUid(at(records.groups, scope))] }),
          ...(capability === undefined ? {} : { capabilities: setOf([capability]) }),
        }
        const restricted = outcomeOf(await call(probe.rpc, request, { ...options, token: await server.tokenFor(identity, restrictions) }), probe)
        if (restricted === 'allowed') expect(answer['allowed']).toBe(true)
        const holders = ok(await call('ListAccess', { resource, capability: probe.capability, pageSize: 200 }, { token: operator }))['access'] as JsonObject[]
        expect(holders.some((row) => (row['identity'] as JsonObject)['uid'] === identity)).toBe(answer['allowed'])
      }),
      { numRuns: runs },
    )
    expect([...seen].toSorted()).toEqual(['allowed', 'denied', 'hidden'])
  })
})
