import { fromJson, type DescMessage, type JsonObject } from '@bufbuild/protobuf'
import { everywhere } from '../../src/authz/effective-permissions.ts'
import { allCapabilities } from '../../src/base/capability.ts'
import { registry } from '../../src/base/schema/schema.ts'
import { GroupSchema } from '../../src/gen/taproot/iam/v2/groups_pb.ts'
import { IdentitySchema } from '../../src/gen/taproot/iam/v2/identities_pb.ts'
import { RoleBindingSchema } from '../../src/gen/taproot/iam/v2/role_bindings_pb.ts'
import { RoleSchema } from '../../src/gen/taproot/iam/v2/roles_pb.ts'
import { clusterIdentity } from '../../src/kubernetes/world.ts'
import { createManaged, type ObjectCaller } from '../../src/domains/managed-records.ts'
import { managedByText } from '../../src/engine/ownership.ts'
import type { Resource } from '../../src/cache/records/cached-record.ts'
import { ok, roleUid, type TestServer } from '../support/test-server.ts'

/** Records of two organisations, by the ways to name them. */
export interface Population {
  readonly groups: string[]
  readonly roles: string[]
  readonly identities: string[]
  /** The uids of all records, and some without a record. */
  readonly uids: string[]
  /** Names of records. */
  readonly names: readonly string[]
  /** Names that objects have. */
  readonly objectNames: readonly string[]
}

const roleSets = [['CAP_IAM_GROUPS_LIST'], ['CAP_IAM_GROUPS_LIST', 'CAP_IAM_GROUPS_DELETE'], ['CAP_IAM_ROLES_LIST']] as const

/** Creates two organisations: nested groups, roles, identities and bindings. */
export async function populate(server: TestServer): Promise<Population> {
  const token = await server.operatorToken()
  const uids: string[] = ['f'.repeat(40), `${'f'.repeat(40)}/${'e'.repeat(16)}`]
  const make = async (rpc: string, request: JsonObject): Promise<string> => {
    const uid = String(ok(await server.rest.call(rpc, request, { token }))['uid'])
    uids.push(uid)
    return uid
  }
  const [groups, roles, identities]: [string[], string[], string[]] = [[], [], []]
  for (const root of ['north', 'south']) {
    const top = await make('CreateGroup', { group: { name: `population-${root}` } })
    const below = await make('CreateGroup', { parent: top, group: { name: 'alpha' } })
    groups.push(top, below, await make('CreateGroup', { parent: below, group: { name: 'beta' } }))
    for (const [index, capabilities] of roleSets.entries())
      roles.push(await make('CreateRole', { parent: top, role: { name: `role-${index}`, capabilities: [...capabilities] } }))
    for (const parent of [top, below]) {
      const identity = { name: 'gamma', claimMatch: { issuer: 'https://issuer.example', subject: `${root}-${parent.length}` } }
      const identityUid = await make('CreateIdentity', { parent, identity })
      identities.push(identityUid)
      await make('CreateRoleBinding', { parent, roleBinding: { identityUid, roleUid: roleUid('viewer') } })
    }
  }
  return { groups, roles, identities, uids, names: ['alpha', 'beta', 'gamma', 'delta'], objectNames: ['red', 'green', 'blue'] }
}

/** Creates records that objects of this cluster own, and some of another cluster. */
export async function ownedRecords(
  server: TestServer,
  population: Population,
  { clusterId, namespaces }: { clusterId: string; namespaces: readonly string[] },
): Promise<void> {
  const { services } = server.running.engine
  for (const [index, owner] of [clusterId, `not-${clusterId}`].flatMap((id) => namespaces.map((namespace) => ({ clusterId: id, namespace }))).entries()) {
    const caller: ObjectCaller = {
      managedBy: managedByText({ ...owner, name: 'red' }),
      identity: clusterIdentity({ id: owner.clusterId }),
      permissions: () => ({ operator: false, grants: [{ group: everywhere, capabilities: allCapabilities }] }),
      authorize: () => undefined,
      requestId: 'population',
      signal: AbortSignal.timeout(60_000),
    }
    const parent = population.groups[(index * 2) % population.groups.length] ?? ''
    const make = async (kind: string, desc: DescMessage, json: JsonObject): Promise<string> => {
      // A message of a resource is one.
      const { uid } = await createManaged(services, caller, { kind, parent, record: fromJson(desc, json, { registry }) as Resource, paths: [] })
      population.uids.push(uid)
      return uid
    }
    const name = `owned-${index}`
    population.groups.push(await make('Group', GroupSchema, { name }))
    population.roles.push(await make('Role', RoleSchema, { name, capabilities: ['CAP_IAM_GROUPS_LIST'] }))
    const identityUid = await make('Identity', IdentitySchema, { name, claimMatch: { issuer: 'https://issuer.example', subject: name } })
    population.identities.push(identityUid)
    await make('RoleBinding', RoleBindingSchema, { identityUid, roleUid: roleUid('viewer') })
  }
}
