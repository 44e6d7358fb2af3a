import { randomBytes } from 'node:crypto'
import { create, type JsonObject, type Message } from '@bufbuild/protobuf'
import { personUid } from '../../../src/auth/oidc/issuer-name.ts'
import { capabilityByName, type CapabilitySet } from '../../../src/base/capability.ts'
import { IdentitySchema } from '../../../src/gen/taproot/iam/v2/identities_pb.ts'
import { RoleBindingSchema } from '../../../src/gen/taproot/iam/v2/role_bindings_pb.ts'
import { ChangeSet } from '../../../src/engine/change-set.ts'
import { identityKind } from '../../../src/iam/records/identities.ts'
import { roleBindingKind } from '../../../src/iam/records/role-bindings.ts'
import type { AnyKind } from '../../../src/engine/kind.ts'
import type { Resource } from '../../../src/cache/records/cached-record.ts'
import { isUid, parentOf, rootParent, trustedUid, type Uid } from '../../../src/base/uid.ts'
import {
  freshName,
  makeMember,
  makeOrganisation,
  ok,
  roleUid,
  startTestServer,
  type LogLine,
  type Organisation,
  type TestServer,
} from '../../support/test-server.ts'

/** The terms documents in the configuration of the server. */
export const walkTerms = [
  { id: 'walk-terms', label: 'Terms', url: 'https://example.com/terms' },
  { id: 'walk-privacy', label: 'Privacy', url: 'https://example.com/privacy' },
] as const

/** An issuer in the configuration whose e-mail claims are trusted. */
export const trustedIssuer = 'https://login.example'

/** The records that requests of the walk name: an organisation with a subgroup, and another tenant. */
export interface World extends Organisation {
  readonly server: TestServer
  readonly subgroup: string
  readonly other: Organisation
  /** A custom role of the organisation that holds exactly `plainCapability`. */
  readonly plainRole: string
  readonly plainRoleName: string
}

/** What `plainRole` grants. */
export const plainCapability = 'groups.list'
/** A capability that no method of the walk needs. */
const uselessCapability = 'libraries.python.list'

/** The feeds of these servers, as a setting. Their source cannot be reached. */
export const walkFeeds = JSON.stringify([{ name: 'walk', source: 'https://feeds.invalid/all.zip' }])

/** Starts a server on a store, with the configuration that the walk needs. */
export function startWalkServer(store: 'sqlite' | 'etcd'): Promise<TestServer> {
  return startTestServer({
    store,
    env: {
      TAPROOT_ISSUERS: JSON.stringify([{ issuer: trustedIssuer }]),
      TAPROOT_TERMS: JSON.stringify(walkTerms),
      TAPROOT_EVENTS_DELIVER: 'false',
      TAPROOT_CATALOGUES_FEEDS: walkFeeds,
    },
  })
}

/** Creates both tenants. */
export async function makeWorld(server: TestServer): Promise<World> {
  const organisation = await makeOrganisation(server)
  const other = await makeOrganisation(server)
  const { group, token } = organisation
  const subgroup = String(ok(await server.rest.call('CreateGroup', { parent: group, group: { name: 'team' } }, { token }))['uid'])
  const plainRoleName = freshName('plain')
  const role = { name: plainRoleName, capabilities: ['CAP_IAM_GROUPS_LIST'] }
  const plainRole = String(ok(await server.rest.call('CreateRole', { parent: group, role }, { token }))['uid'])
  return { ...organisation, server, subgroup, other, plainRole, plainRoleName }
}

/** Creates a record as an operator, and returns its uid. */
export async function made(world: World, rpc: string, request: JsonObject): Promise<string> {
  return String(ok(await world.server.rest.call(rpc, request, { token: await world.server.operatorToken() }))['uid'])
}

/** Creates a custom role below `group`, and returns its uid. */
export async function makeRole(server: TestServer, group: string, capabilities: readonly string[]): Promise<string> {
  const names = capabilities.map((name) => capabilityByName(name)?.enumName ?? name)
  const request = { parent: group, role: { name: freshName('role'), capabilities: names } }
  return String(ok(await server.rest.call('CreateRole', request, { token: await server.operatorToken() }))['uid'])
}

const remembered = new WeakMap<object, Map<string, Promise<unknown>>>()

/** Makes something once for each world and name. */
export function once<Made>(world: object, name: string, make: () => Promise<Made>): Promise<Made> {
  const known = remembered.get(world) ?? new Map<string, Promise<unknown>>()
  remembered.set(world, known)
  const made = (known.get(name) as Promise<Made> | undefined) ?? make() // each name is used for one type
  known.set(name, made)
  return made
}

/** Returns a token of an identity of the organisation with exactly these capabilities on its root group and an unused one. Calls with the same capabilities share it. */
export function tokenWith(world: World, capabilities: readonly string[]): Promise<string> {
  return once(world, `caller with ${capabilities.toSorted().join()}`, async () => {
    const role = await makeRole(world.server, world.group, [...capabilities, uselessCapability])
    return (await makeMember(world.server, world.group, { role })).token
  })
}

/** Returns a token of the organisation's owner, restricted to these capabilities or groups. */
export function restrictedToken(world: World, restrictions: { capabilities?: CapabilitySet; scopes?: readonly string[] }): Promise<string> {
  const { capabilities, scopes } = restrictions
  return world.server.tokenFor(world.owner, {
    ...(capabilities === undefined ? {} : { capabilities }),
    ...(scopes === undefined ? {} : { scopes: scopes.map(trustedUid) }),
  })
}

/** Writes a record to the store without any check, for states that no method creates (any more). */
async function plant(server: TestServer, kind: AnyKind, source: { uid: Uid; record: Message }): Promise<void> {
  const { store, cache } = server.running.engine
  const changes = new ChangeSet()
  const now = Date.now()
  // The record is one of the kind's own messages.
  const record = source.record as unknown as Resource
  changes.create(kind, { uid: source.uid, record, facts: { etag: freshName('etag'), createMs: now, updateMs: now, managedBy: '' } })
  const outcome = await store.transact({ guards: changes.guards, writes: changes.writes }, AbortSignal.timeout(60_000))
  if (!outcome.committed) throw new Error(`${source.uid} can not be planted`)
  await cache.barrier(AbortSignal.timeout(60_000))
}

/** Returns a token of a registered person with an e-mail address from the trusted issuer. */
export async function personToken({ server }: World, email: string): Promise<string> {
  const subject = freshName('person')
  const uid = personUid(trustedIssuer, subject)
  await plant(server, identityKind, { uid, record: create(IdentitySchema, { name: subject }) })
  const { baseUrl } = server.config
  const act = { issuer: trustedIssuer, subject, audience: baseUrl, email }
  return (await server.running.signIn.tokens.mint({ identityUid: uid, audiences: [baseUrl], act, restrictions: {} })).token
}

/** A token of an identity of the subgroup, which owns it and, by a binding that no method would make, the root group too (docs/spec/iam.md#reach). */
export function confinedToken(world: Pick<World, 'server' | 'group' | 'subgroup'>): Promise<string> {
  return once(world, 'caller of the subgroup', async () => {
    const { server, group, subgroup } = world
    const { uid, token } = await makeMember(server, subgroup, { role: 'owner' })
    const record = create(RoleBindingSchema, { identityUid: uid, roleUid: roleUid('owner') })
    await plant(server, roleBindingKind, { uid: trustedUid(`${group}/${randomBytes(8).toString('hex')}`), record })
    return token
  })
}

/** An unused uid next to this one. */
export function missingSibling(uid: string): string {
  if (!isUid(uid)) throw new Error(`no uid: ${uid}`)
  const parent = parentOf(uid)
  return parent === rootParent ? randomBytes(20).toString('hex') : `${parent}/${randomBytes(8).toString('hex')}`
}

/** Returns the audit lines of one call. */
export function auditLines(server: TestServer, requestId: string): LogLine[] {
  return server.logs.filter(({ message, fields }) => message === 'audit' && fields['requestId'] === requestId)
}

/** Waits until all sweeps have ended, so that no sweep writes during a test. */
export async function swept(server: TestServer, boundMs = 5_000): Promise<void> {
  const { cascader } = server.running.engine.services
  for (const end = Date.now() + boundMs; await cascader.finish(AbortSignal.timeout(boundMs));)
    if (Date.now() > end) throw new Error('the sweeper does not come to an end')
}
