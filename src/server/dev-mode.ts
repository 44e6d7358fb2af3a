import { errorText } from '../base/error-text.ts'
import { mkdir, rename, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { create } from '@bufbuild/protobuf'
import type { DevIssuer } from '../auth/oidc/dev-issuer.ts'
import type { Uid } from '../base/uid.ts'
import { GroupSchema, OrgStatus } from '../gen/taproot/iam/v2/groups_pb.ts'
import { IdentitySchema } from '../gen/taproot/iam/v2/identities_pb.ts'
import { RoleBindingSchema } from '../gen/taproot/iam/v2/role_bindings_pb.ts'
import { ChangeSet, newEtag } from '../engine/change-set.ts'
import { ownerRoleUid } from '../engine/grant-rules.ts'
import { groupKind, identityKind, roleBindingKind } from '../iam/index.ts'
import type { AnyKind } from '../engine/kind.ts'
import { newUid } from '../engine/write.ts'
import type { Resource } from '../cache/records/cached-record.ts'
import { ownersKey } from '../store/keys.ts'
import type { Config } from '../config/config.ts'
import type { RunningServer } from './server.ts'

/** The root group that a fresh development store gets. */
const demoName = 'demo'
/** The subject of its owner at the development issuer. */
const ownerSubject = 'demo-owner'
/** How long the store may take to answer while starting, in milliseconds. */
const startTimeoutMs = 10_000
/** The age at which the token files are renewed, in milliseconds: half a token's life. */
const renewAfterMs = 30 * 60_000
/** How long after a failure it is tried again, in milliseconds. */
const renewAgainMs = 60_000
/** How often their age is looked at, in milliseconds: timers stand still while a machine sleeps, and its tokens go on ageing. */
const renewCheckMs = 2_000

/** The demo group and its owner. */
interface Demo {
  readonly group: Uid
  readonly owner: Uid
}

/** Remembers what the first start made: names, owners and bindings may change afterwards. */
const demoKey = 'meta/demo'

/** The demo group and owner that an earlier start made, whatever became of them. */
async function findDemo(server: RunningServer): Promise<Demo | undefined> {
  const entry = await server.engine.store.get(demoKey, AbortSignal.timeout(startTimeoutMs))
  // Only makeDemo writes this key.
  return entry === undefined ? undefined : (JSON.parse(Buffer.from(entry.value).toString('utf8')) as Demo)
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
  changes.guard({ kind: 'absent', key: demoKey })
  changes.write({ kind: 'put', key: demoKey, value: Buffer.from(JSON.stringify({ group, owner })) })
  // All of it is new in this transaction: what the records refer to need not be there before.
  const guards = changes.guards.filter((guard) => guard.kind !== 'exists')
  const outcome = await store.transact({ guards, writes: changes.writes }, AbortSignal.timeout(startTimeoutMs))
  if (outcome.committed) await replica.reached(outcome.revision, AbortSignal.timeout(startTimeoutMs))
  const made = await findDemo(server)
  if (made === undefined) throw new Error(`the store has a root group "${demoName}" that no development server made: use another dataDir`)
  return made
}

/** The files of `dataDir` that hold a token of the owner, and whom each is for. */
function tokenFiles({ baseUrl, registry }: Config): readonly { readonly name: string; readonly audience: string }[] {
  return [
    { name: 'token', audience: baseUrl },
    { name: 'registry-token', audience: registry.host },
  ]
}

async function writeTokens(server: RunningServer, demo: Demo, options: { config: Config; devIssuer: DevIssuer }): Promise<void> {
  const { config, devIssuer } = options
  await mkdir(config.dataDir, { recursive: true, mode: 0o700 })
  for (const { name, audience } of tokenFiles(config)) {
    const act = { issuer: devIssuer.issuer, subject: ownerSubject, audience }
    const { token } = await server.signIn.tokens.mint({ identityUid: demo.owner, audiences: [audience], act, restrictions: {} })
    const path = join(config.dataDir, name)
    // Readers see the old token or the new one, never half of one.
    await writeFile(`${path}.new`, `${token}\n`, { mode: 0o600 })
    await rename(`${path}.new`, path)
  }
}

/** A development server's demo: `owner` is undefined where somebody deleted that identity, and there is no token then. */
export interface RunningDemo {
  readonly group: Uid
  readonly owner: Uid | undefined
  stop(): void
}

/**
 * Sets a development server up: the root group `demo` with an owner, and files with tokens of that owner, for the API and for the registry host, that are valid while the server runs. All are there
 * when it resolves; `stop` ends the renewal.
 */
export async function startDemo(server: RunningServer, options: { config: Config; devIssuer: DevIssuer }): Promise<RunningDemo> {
  const demo = (await findDemo(server)) ?? (await makeDemo(server, options.devIssuer))
  if (server.engine.replica.snapshot.get('Identity', demo.owner) === undefined) {
    for (const { name } of tokenFiles(options.config)) await rm(join(options.config.dataDir, name), { force: true })
    return { group: demo.group, owner: undefined, stop: () => undefined }
  }
  const { clock, log } = server.engine.services
  let writtenMs = clock.now()
  await writeTokens(server, demo, options)
  const timer = setInterval(() => {
    const nowMs = clock.now()
    if (nowMs - writtenMs < renewAfterMs) return
    writtenMs = nowMs
    writeTokens(server, demo, options).catch((error: unknown) => {
      writtenMs = nowMs - renewAfterMs + renewAgainMs
      log.error('the token files can not be renewed', { error: errorText(error) })
    })
  }, renewCheckMs)
  return { ...demo, stop: () => clearInterval(timer) }
}
