import type { JsonObject } from '@bufbuild/protobuf'
import { expect } from 'vitest'
import { personUid } from '../../../src/auth/oidc/issuer-name.ts'
import type { Reply } from '../../support/api-clients.ts'
import { makeMember, makeOrganisation, ok, roleUid, startTestServer, type TestServer } from '../../support/test-server.ts'
import { one, type Pick } from '../../cache/records.ts'
import { modelKinds, NaiveWorld, type ModelCaller, type ModelKind, type ModelRecord } from './naive-world.ts'

/** The field of a list answer that holds its records. */
export const plurals = { Group: 'groups', Identity: 'identities', Role: 'roles', RoleBinding: 'roleBindings' } as const
/** The list method of each kind. */
export const listRpcs = { Group: 'ListGroups', Identity: 'ListIdentities', Role: 'ListRoles', RoleBinding: 'ListRoleBindings' } as const
/** The field of a create or update request that holds the record. */
export const fields = { Group: 'group', Identity: 'identity', Role: 'role', RoleBinding: 'roleBinding' } as const
/** Names that records get: few, so that they meet. */
export const names = ['alpha', 'beta', 'gamma', 'delta', 'a name with spaces', 'omega.1', 'omega_2']
/** Capabilities that custom roles get. */
export const capabilities = [
  'CAP_IAM_GROUPS_LIST',
  'CAP_IAM_GROUPS_CREATE',
  'CAP_IAM_GROUPS_UPDATE',
  'CAP_IAM_IDENTITY_LIST',
  'CAP_IAM_ROLES_LIST',
  'CAP_IAM_ROLE_BINDINGS_LIST',
  'CAP_REPO_LIST',
]
/** What identities sign in with. */
export const relationships = {
  claimMatch: { value: { issuer: 'https://issuer.example', subject: 'someone' }, type: 'RELATIONSHIP_TYPE_CLAIM_MATCH' },
  awsIdentity: { value: { awsAccount: '123456789012', arn: 'arn:aws:iam::123456789012:role/x', userId: 'AIDA' }, type: 'RELATIONSHIP_TYPE_AWS_IDENTITY' },
} as const
/** A caller of the model with a token for the server. */
export interface Caller extends ModelCaller {
  readonly title: string
  readonly token: string
}

const msOf = (value: unknown): number => Date.parse(String(value))
/** The uid one level up, `/` for a root. */
export const parentOf = (uid: string): string => (uid.includes('/') ? uid.slice(0, uid.lastIndexOf('/')) : '/')

/** What an answered resource is in the model. */
export function modelled(kind: ModelKind, body: JsonObject): ModelRecord {
  const part = (name: string): string => String((body[name] as JsonObject | undefined)?.['uid'] ?? '')
  const uid = String(body['uid'])
  const filters =
    kind === 'RoleBinding'
      ? { identity: part('identity'), role: part('role'), group: part('group') }
      : kind === 'Identity'
        ? { relationship_type: body['claimMatch'] === undefined ? relationships.awsIdentity.type : relationships.claimMatch.type }
        : {}
  return {
    kind,
    uid,
    name: String(body['name'] ?? ''),
    description: String(body['description'] ?? ''),
    createMs: msOf(body['createTime']),
    updateMs: msOf(body['updateTime']),
    etag: String(body['etag']),
    capabilities: (body['capabilities'] ?? []) as string[],
    filters,
  }
}

/** One store's server and the model of it. */
export class Real {
  readonly world = new NaiveWorld(roleUid('owner'))
  readonly callers: Caller[] = []
  readonly protected = new Set<string>()
  readonly server: TestServer
  calls = 0
  pages = 0

  constructor(server: TestServer) {
    this.server = server
  }

  get operator(): Caller {
    const [operator] = this.callers
    if (operator === undefined) throw new Error('no operator')
    return operator
  }

  async call(pick: Pick, caller: Caller, what: { rpc: string; request: JsonObject; ifMatch?: string }): Promise<{ reply: Reply; transport: 'rest' | 'grpc' }> {
    const transport = pick(3) === 0 ? 'grpc' : 'rest'
    this.calls += 1
    const reply = await this.server[transport].call(what.rpc, what.request, {
      token: caller.token,
      ...(what.ifMatch === undefined ? {} : { ifMatch: what.ifMatch }),
    })
    return { reply, transport }
  }

  /** Reads into the model what is there already. */
  async learn(kind: ModelKind): Promise<void> {
    let pageToken = ''
    do {
      const body = ok(await this.server.rest.call(listRpcs[kind], { pageSize: 200, pageToken }, { token: this.operator.token }))
      for (const item of body[plurals[kind]] as JsonObject[]) this.world.put(modelled(kind, item))
      pageToken = String(body['nextPageToken'] ?? '')
    } while (pageToken !== '')
  }
}

/** Starts a server with two organisations and callers of different reach, and a model that knows all of it. */
export async function start(store: 'sqlite' | 'etcd'): Promise<Real> {
  const server = await startTestServer({ store })
  const real = new Real(server)
  const issuer = `${server.config.baseUrl}/dev/issuer`
  real.callers.push({ title: 'operator', operator: true, identity: personUid(issuer, 'operator'), token: await server.operatorToken() })
  const org = await makeOrganisation(server)
  await makeOrganisation(server)
  const { token } = real.operator
  const subgroups: string[] = []
  for (const name of ['first', 'second'])
    subgroups.push(String(ok(await server.rest.call('CreateGroup', { parent: org.group, group: { name } }, { token }))['uid']))
  const [first = '', second = ''] = subgroups
  const reader = await makeMember(server, org.group, { role: 'viewer', bindAt: first })
  ok(await server.rest.call('CreateRoleBinding', { parent: second, roleBinding: { identityUid: reader.uid, roleUid: roleUid('viewer') } }, { token }))
  const local = await makeMember(server, first, { role: 'owner' })
  const powerless = await makeMember(server, org.group)
  real.callers.push({ title: 'owner', operator: false, identity: org.owner, token: org.token })
  real.callers.push({ title: 'viewer of two subgroups', operator: false, identity: reader.uid, token: reader.token })
  real.callers.push({ title: 'owner of a subgroup', operator: false, identity: local.uid, token: local.token })
  real.callers.push({ title: 'unknown', operator: false, identity: powerless.uid, token: powerless.token })
  for (const kind of modelKinds) await real.learn(kind)
  for (const uid of [org.group, first, second, ...real.callers.map((caller) => caller.identity)]) real.protected.add(uid)
  return real
}

/** Mostly a record that is there; now and then a uid that is not. */
export function someUid(pick: Pick, real: Real, kind: ModelKind): string {
  const all = real.world.all(kind)
  if (pick(12) === 0 || all.length === 0) return `${one(pick, real.world.all('Group')).uid}/${'0123456789abcdef'}`
  return one(pick, all).uid
}

export function someCaller(pick: Pick, real: Real): Caller {
  return pick(2) === 0 ? real.operator : one(pick, real.callers)
}

export function expectCode(reply: Reply, code: number, what: unknown): void {
  expect({ code: reply.code, what, message: reply.message }).toEqual({ code, what, message: reply.message })
}

/** The answered record must be what the model says in every field that it knows. */
export function expectShown(real: Real, record: ModelRecord, body: JsonObject): void {
  const { kind, uid, name, description, etag, createMs, updateMs, filters } = record
  const seen = modelled(kind as ModelKind, body)
  expect(seen).toMatchObject({ uid, etag, createMs, updateMs, filters })
  if (kind !== 'RoleBinding') {
    expect(seen).toMatchObject({ name, description, capabilities: record.capabilities })
    return
  }
  // Joined in as they are now (docs/spec/iam.md#role-binding-fields).
  const { identity = '', role = '', group = '' } = filters
  expect(group).toBe(parentOf(uid))
  for (const [part, partKind, partUid] of [
    ['identity', 'Identity', identity],
    ['role', 'Role', role],
    ['group', 'Group', group],
  ] as const) {
    const joined = real.world.get(partKind, partUid)
    expect(body[part]).toMatchObject({ uid: partUid, name: joined?.name ?? '', description: joined?.description ?? '' })
  }
}
