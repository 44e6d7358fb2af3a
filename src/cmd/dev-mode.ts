import { mkdir, rename, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { create } from '@bufbuild/protobuf'
import type { DevIssuer } from '../authn/dev-issuer.ts'
import { trustedUid, type Uid } from '../core/uid.ts'
import { GroupSchema, OrgStatus } from '../gen/taproot/iam/v2/groups_pb.ts'
import { IdentitySchema } from '../gen/taproot/iam/v2/identities_pb.ts'
import { RoleBindingSchema } from '../gen/taproot/iam/v2/role_bindings_pb.ts'
import { ChangeSet, newEtag } from '../resources/change-set.ts'
import { bindingOf, ownerBindings, ownerRoleUid } from '../resources/grant-rules.ts'
import { groupKind } from '../resources/iam/groups.ts'
import { identityKind } from '../resources/iam/identities.ts'
import { roleBindingKind } from '../resources/iam/role-bindings.ts'
import type { AnyKind } from '../resources/kind.ts'
import { newUid } from '../resources/write.ts'
import type { Resource } from '../snapshot/row.ts'
import { ownersKey } from '../store/keys.ts'
import type { Config } from './config/config.ts'
import type { RunningServer } from './server.ts'

/** The root group that a fresh development store gets. */
const demoName = 'demo'
/** The subject of its owner at the development issuer. */
const ownerSubject = 'demo-owner'
/** How often the token file is renewed, in milliseconds: half a token's life. */
const renewEveryMs = 30 * 60_000

/** The demo group and its owner. */
export interface Demo {
  readonly group: Uid
  readonly owner: Uid
}

/** The demo group, as an earlier start made it. */
function findDemo(server: RunningServer): Demo | undefined {
  const { snapshot } = server.engine.replica
  for (const row of snapshot.table('Group').matching('name', demoName)) {
    const owner = row.parent === '/' ? ownerBindings(snapshot, row.uid).find((binding) => bindingOf(binding).identityUid.startsWith(row.uid)) : undefined
    if (owner !== undefined) return { group: row.uid, owner: trustedUid(bindingOf(owner).identityUid) }
  }
  return undefined
}

/** Makes group, owner and binding in one transaction; a second start that races this one finds them made. */
async function makeDemo(server: RunningServer, devIssuer: DevIssuer): Promise<Demo> {
  const { services, replica, store } = server.engine
  const nowMs = services.clock.now()
  const changes = new ChangeSet()
  const put = (kind: AnyKind, parent: string, record: unknown): Uid => {
    const uid = newUid(services, parent)
    const facts = { etag: newEtag(services.random), createMs: nowMs, updateMs: nowMs, managedBy: '' }
    // Each record is of the message type of its kind.
    changes.create(kind, { uid, record: record as Resource, facts })
    return uid
  }
  const group = put(groupKind, '/', create(GroupSchema, { name: demoName, description: 'Made by the first start in development', status: OrgStatus.READY }))
  const match = { iss: { case: 'issuer', value: devIssuer.issuer }, sub: { case: 'subject', value: ownerSubject } } as const
  const owner = put(identityKind, group, create(IdentitySchema, { name: ownerSubject, relationship: { case: 'claimMatch', value: match } }))
  put(roleBindingKind, group, create(RoleBindingSchema, { identityUid: owner, roleUid: ownerRoleUid }))
  changes.write({ kind: 'put', key: ownersKey(group), value: Buffer.from(newEtag(services.random)) })
  // All of it is new in this transaction: what the records refer to need not be there before.
  const guards = changes.guards.filter((guard) => guard.kind !== 'exists')
  const outcome = await store.transact({ guards, writes: changes.writes }, AbortSignal.timeout(10_000))
  if (outcome.committed) await replica.reached(outcome.revision, AbortSignal.timeout(10_000))
  const made = findDemo(server)
  if (made === undefined) throw new Error('the demo group could not be made')
  return made
}

async function writeToken(server: RunningServer, demo: Demo, options: { config: Config; devIssuer: DevIssuer }): Promise<void> {
  const { config, devIssuer } = options
  const act = { issuer: devIssuer.issuer, subject: ownerSubject, audience: config.baseUrl }
  const { token } = await server.signIn.tokens.mint({ identityUid: demo.owner, audiences: [config.baseUrl], act, narrowing: {} })
  await mkdir(config.dataDir, { recursive: true, mode: 0o700 })
  const path = join(config.dataDir, 'token')
  // Readers see the old token or the new one, never half of one.
  await writeFile(`${path}.new`, `${token}\n`, { mode: 0o600 })
  await rename(`${path}.new`, path)
}

/**
 * Sets a development server up: the root group `demo` with an owner, and a file with a token of that owner that is always valid while the server runs.
 * Resolves when both are there; `stop` ends the renewal.
 */
export async function startDemo(server: RunningServer, options: { config: Config; devIssuer: DevIssuer }): Promise<{ demo: Demo; stop: () => void }> {
  const demo = findDemo(server) ?? (await makeDemo(server, options.devIssuer))
  await writeToken(server, demo, options)
  const timer = setInterval(() => {
    writeToken(server, demo, options).catch((error: unknown) => server.engine.services.log.error('the token file can not be renewed', { error: String(error) }))
  }, renewEveryMs)
  return { demo, stop: () => clearInterval(timer) }
}
