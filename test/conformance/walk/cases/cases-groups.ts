import { create, toBinary, type JsonObject } from '@bufbuild/protobuf'
import { HeldNameSchema } from '../../../../src/gen/taproot/store/v1/envelope_pb.ts'
import { heldNameKey } from '../../../../src/store/keys.ts'
import { freshName, makeOrganisation, makePerson, ok } from '../../../support/test-server.ts'
import { inCreate, inUpdate, long, type BadField } from '../bad-fields.ts'
import type { BadInput, MethodCase } from './method-case.ts'
import { made, personToken, trustedIssuer, type World } from '../world.ts'

const badGroup: readonly BadField[] = [
  { what: 'no name', breaks: ['name:required'], clear: ['name'] },
  { what: 'an empty name', breaks: ['name:required'], set: { name: '' } },
  { what: 'a name with capitals', breaks: ['name:string.pattern'], set: { name: 'Platform' } },
  { what: 'a name with a slash', breaks: ['name:string.pattern'], set: { name: 'a/b' } },
  { what: 'a name of 64 characters', breaks: ['name:string.pattern'], set: { name: long(64) } },
  { what: 'a name with a line break', breaks: ['name:string.pattern'], set: { name: 'one\ntwo' } },
  { what: 'a description of 513 characters', breaks: ['description:string.max_len'], set: { description: long(513) } },
  { what: 'a kind whose number is unknown', breaks: ['kind:enum.defined_only'], set: { kind: 99 } },
  { what: 'a kind whose name is unknown', only: 'rest', set: { kind: 'ORG_KIND_GALACTIC' }, fields: ['kind'] },
  { what: 'a number for a name', only: 'rest', set: { name: 42 }, fields: ['name'] },
  { what: 'a list for a description', only: 'rest', set: { description: ['text'] }, fields: ['description'] },
  { what: 'a text for a flag', only: 'rest', set: { verified: 'yes' }, fields: ['verified'] },
  { what: 'every field wrong at once', set: { name: 'A', description: long(513), kind: 99 }, fields: ['name', 'description', 'kind'] },
]

function newGroup(world: World): Promise<string> {
  return made(world, 'CreateGroup', { parent: world.group, group: { name: freshName('group') } })
}

/** Creates a verified organisation that is named by a domain. */
async function verifiedOrganisation(world: World): Promise<{ uid: string; domain: string }> {
  const domain = `${freshName('corp')}.example`
  const request = { group: { name: domain, verified: true, kind: 'ORG_KIND_CUSTOMER' } }
  return { uid: String(ok(await world.server.rest.call('CreateGroup', request, { token: await world.server.operatorToken() }))['uid']), domain }
}

/** The domain of the last request of a world, for a caller with an address in it. */
const domains = new WeakMap<World, string>()

export async function prepareVerified(world: World): Promise<string> {
  const { uid, domain } = await verifiedOrganisation(world)
  domains.set(world, domain)
  return uid
}

/** Returns the token of a person with a verified e-mail address in that domain. */
export const callerOfDomain = (world: World): Promise<string> => personToken(world, `person@${domains.get(world) ?? ''}`)

const operator = ({ server }: World): Promise<string> => server.operatorToken()

/** Returns a name that a deleted organisation left reserved. */
async function reservedName({ running: { engine } }: World['server']): Promise<string> {
  const name = freshName('reserved')
  const { clock, cache } = engine.services
  const held = create(HeldNameSchema, { releaseTimeMs: BigInt(clock.now()), groupUid: 'e'.repeat(40) })
  const put = { kind: 'put', key: heldNameKey(name), value: toBinary(HeldNameSchema, held) } as const
  const outcome = await engine.store.transact({ guards: [], writes: [put] }, AbortSignal.timeout(60_000))
  if (outcome.committed) await cache.reached(outcome.revision)
  return name
}

const belowTheRoot: BadInput = { what: 'a group that is no root', request: (valid, { subgroup }) => ({ ...valid, uid: subgroup }), fields: ['uid'] }

function limited(resourceLimits: JsonObject): (valid: JsonObject) => JsonObject {
  return (valid) => ({ ...valid, resourceLimits })
}

/** GroupsService. */
export const groupCases: Readonly<Record<string, MethodCase>> = {
  'GroupsService/GetGroup': { request: async (world): Promise<JsonObject> => ({ uid: await newGroup(world) }), badInputs: [] },
  'GroupsService/DeleteGroup': { request: async (world) => ({ uid: await newGroup(world) }), badInputs: [] },
  'GroupsService/ListGroups': {
    request: (world) => ({ uidp: { descendantsOf: world.group }, orderBy: 'created_at desc', pageSize: 200 }),
    list: {
      item: (world, parent) => made(world, 'CreateGroup', { parent, group: { name: freshName('listed') } }),
      filters: () => [{ name: 'team' }],
    },
    badInputs: [{ what: 'a name that is too long', breaks: ['name:string.max_len'], request: (valid) => ({ ...valid, name: long(256) }), fields: ['name'] }],
  },
  'GroupsService/CreateGroup': {
    request: (world) => ({ parent: world.group, group: { name: freshName('made') } }),
    badInputs: [
      { what: 'no group at all', breaks: ['group:required'], request: ({ parent = '' }) => ({ parent }), fields: ['name'] },
      { what: 'a parent that is too long', breaks: ['parent:string.max_len'], request: (valid) => ({ ...valid, parent: long(256) }), fields: ['parent'] },
      { what: 'no parent, for a caller who is no operator', request: ({ group = {} }) => ({ group }), code: 7 },
      { what: 'a name that a sibling has', request: ({ parent = '' }) => ({ parent, group: { name: 'team' } }), code: 6 },
      {
        what: 'a kind for a subgroup',
        request: ({ parent = '' }) => ({ parent, group: { name: 'kindly', kind: 'ORG_KIND_DEV' } }),
        caller: ({ server }) => server.operatorToken(),
        fields: ['kind'],
      },
      {
        what: 'verified below the root',
        request: ({ parent = '' }) => ({ parent, group: { name: 'verily', verified: true } }),
        caller: ({ server }) => server.operatorToken(),
        fields: ['verified'],
      },
      ...inCreate('group', badGroup),
    ],
  },
  'GroupsService/UpdateGroup': {
    request: async (world) => ({ group: { uid: await newGroup(world), description: 'changed' } }),
    badInputs: [
      {
        what: 'a name that a sibling has',
        request: ({ group }) => ({ group: { ...(group as JsonObject), name: 'team' } }), // the valid request above
        code: 6,
      },
      { what: 'verified, by a customer', request: (_, world) => ({ group: { uid: world.group, verified: true, kind: 'ORG_KIND_CUSTOMER' } }), code: 7 },
      { what: 'a kind, by a customer', request: (_, world) => ({ group: { uid: world.group, kind: 'ORG_KIND_DEV' } }), code: 7 },
      ...inUpdate('group', badGroup),
    ],
  },
  'GroupsService/LookupGroup': {
    request: async (world) => {
      await prepareVerified(world)
      return {}
    },
    caller: callerOfDomain,
    outsider: { code: 5 },
    badInputs: [],
  },
  'GroupsService/RequestGroupAccess': {
    request: async (world) => ({ groupUid: await prepareVerified(world) }),
    caller: callerOfDomain,
    outsider: { code: 5 },
    badInputs: [
      { what: 'no group', only: 'grpc', breaks: ['group_uid:required'], request: () => ({}), fields: ['group_uid'] },
      { what: 'no group in the path', only: 'rest', raw: { path: '/iam/v2/groups/:requestGroupAccess', body: '{}' }, fields: ['group_uid'] },
      { what: 'a group that is no uid', request: () => ({ groupUid: 'not-a-uid' }), code: 5 },
      { what: 'a group of another domain', request: (_, world) => ({ groupUid: world.other.group }), code: 5 },
    ],
  },
  'GroupsService/JoinGroup': {
    request: (world) => ({ uid: world.group }),
    caller: async (world) => {
      const { uid, token } = await makePerson(world.server, { issuer: trustedIssuer, subject: freshName('person') })
      await made(world, 'CreateRoleBinding', { parent: world.group, roleBinding: { identityUid: uid, roleUid: world.plainRole } })
      return token
    },
    outsider: { code: 5 },
    badInputs: [
      { what: 'no group', only: 'grpc', breaks: ['uid:required'], request: () => ({}), fields: ['uid'] },
      { what: 'no group in the path', only: 'rest', raw: { path: '/iam/v2/groups/:join', body: '{}' }, fields: ['uid'] },
      { what: 'a group that is no uid', request: () => ({ uid: 'not-a-uid' }), code: 5 },
      { what: 'a group in which nothing is bound to the caller', request: (_, world) => ({ uid: world.other.group }), code: 5 },
    ],
  },
  'GroupsService/ReleaseGroupName': {
    request: async ({ server }) => ({ name: await reservedName(server) }),
    caller: operator,
    outsider: { code: 7 },
    badInputs: [
      { what: 'no name', breaks: ['name:required'], request: () => ({}), fields: ['name'] },
      { what: 'a name that is too long', breaks: ['name:string.max_len'], request: () => ({ name: long(256) }), fields: ['name'] },
      { what: 'a name that is not reserved', request: () => ({ name: freshName('free') }), code: 5 },
    ],
  },
  'GroupsService/CheckEligibility': {
    request: async (world) => {
      await prepareVerified(world)
      return {}
    },
    caller: callerOfDomain,
    outsider: { code: 0, body: { eligible: false } },
    badInputs: [],
  },
  'GroupsService/GetGroupUsage': { request: ({ group: uid }) => ({ uid }), badInputs: [belowTheRoot] },
  'GroupsService/SetGroupLimits': {
    request: ({ group: uid }) => ({ uid, resourceLimits: { clusters: 3 } }),
    caller: operator,
    badInputs: [
      belowTheRoot,
      { what: 'an unknown limit', request: limited({ colours: 1 }), fields: ['resource_limits'] },
      { what: 'a negative limit', breaks: ['resource_limits{value}:int32.gte'], request: limited({ groups: -1 }), fields: ['resource_limits'] },
      { what: 'a name that is too long', breaks: ['resource_limits{key}:string.max_len'], request: limited({ [long(65)]: 1 }), fields: ['resource_limits'] },
      {
        what: 'more limits than 64',
        breaks: ['resource_limits:map.max_pairs'],
        request: limited(Object.fromEntries(Array.from({ length: 65 }, (_, at) => [`limit${at}`, 1]))),
        fields: ['resource_limits'],
      },
      { what: 'a limit beyond 32 bits', only: 'rest', request: limited({ groups: 2 ** 31 }), fields: ['resource_limits'] },
      { what: 'a stale If-Match', options: { ifMatch: '0123456789abcdef' }, code: 10 },
    ],
  },
  'GroupsService/SuspendGroup': {
    request: async ({ server }) => ({ uid: (await makeOrganisation(server)).group }),
    caller: operator,
    badInputs: [belowTheRoot, { what: 'a stale If-Match', options: { ifMatch: '0123456789abcdef' }, code: 10 }],
  },
  'GroupsService/ResumeGroup': {
    request: ({ group: uid }) => ({ uid }),
    caller: operator,
    badInputs: [belowTheRoot, { what: 'a stale If-Match', options: { ifMatch: '0123456789abcdef' }, code: 10 }],
  },
}
