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
import { ownerRoleUid } from '../engine/organisation-owners.ts'
import { groupKind, identityKind, roleBindingKind } from '../iam/index.ts'
import type { AnyKind } from '../engine/kind.ts'
import { newUid } from '../engine/write.ts'
import type { Resource } from '../cache/records/cached-record.ts'
import { ownersKey } from '../store/keys.ts'
import type { Config } from '../config/config.ts'
import type { RunningServer } from './server.ts'

/** Name of the root group in a new development store. */
const demoName = 'demo'
/** Subject of the group's owner at the development issuer. */
const ownerSubject = 'demo-owner'
/** Timeout for the store's first answer, in milliseconds. */
const startTimeoutMs = 10_000
/** Age at which the token files are renewed, in milliseconds: half a token's lifetime. */
const renewAfterMs = 30 * 60_000
/** Delay before a failed renewal is retried, in milliseconds. */
const renewAgainMs = 60_000
/** Interval of age checks, in milliseconds. Checks are needed because timers stop while a machine sleeps, but tokens continue to age. */
const renewCheckMs = 2_000

/** The demo group and its owner. */
interface Demo {
  readonly group: Uid
  readonly owner: Uid
}

/** Key of the uids of group and owner from the first start. Names, owners and role bindings may have changed since. */
const demoKey = 'meta/demo'

/** Returns the demo group and owner from an earlier start, whether or not they still exist. */
async function findDemo(server: RunningServer): Promise<Demo | undefined> {
  const entry = await server.engine.store.get(demoKey, AbortSignal.timeout(startTimeoutMs))
  // a cast: only makeDemo writes this key
  return entry === undefined ? undefined : (JSON.parse(Buffer.from(entry.value).toString('utf8')) as Demo)
}

/**
 * Creates the group, its owner and the role binding in one transaction. If two starts run at the same time, the second one uses the
 * records of the first.
 */
async function makeDemo(server: RunningServer, devIssuer: DevIssuer): Promise<Demo> {
  const { services, cache, store } = server.engine
  const nowMs = services.clock.now()
  const changes = new ChangeSet()
  const put = (kind: AnyKind, parent: string, record: unknown): Uid => {
    const uid = newUid(services, parent)
    const facts = { etag: newEtag(services.random), createMs: nowMs, updateMs: nowMs, managedBy: '' }
    // a cast: each record has the message type of its kind
    changes.create(kind, { uid, record: record as Resource, facts })
    return uid
  }
  const group = put(groupKind, '/', create(GroupSchema, { name: demoName, description: 'Created by the first start in development', status: OrgStatus.READY }))
  const match = { iss: { case: 'issuer', value: devIssuer.issuer }, sub: { case: 'subject', value: ownerSubject } } as const
  const owner = put(identityKind, group, create(IdentitySchema, { name: ownerSubject, relationship: { case: 'claimMatch', value: match } }))
  put(roleBindingKind, group, create(RoleBindingSchema, { identityUid: owner, roleUid: ownerRoleUid }))
  changes.write({ kind: 'put', key: ownersKey(group), value: Buffer.from(newEtag(services.random)) })
  changes.guard({ kind: 'absent', key: demoKey })
  changes.write({ kind: 'put', key: demoKey, value: Buffer.from(JSON.stringify({ group, owner })) })
  // The records refer to each other and are all created here, so guards that referenced records exist would fail.
  const guards = changes.guards.filter((guard) => guard.kind !== 'exists')
  const outcome = await store.transact({ guards, writes: changes.writes }, AbortSignal.timeout(startTimeoutMs))
  if (outcome.committed) await cache.reached(outcome.revision, AbortSignal.timeout(startTimeoutMs))
  const made = await findDemo(server)
  if (made === undefined) throw new Error(`the store has a root group "${demoName}" that a development server did not create: use another dataDir`)
  return made
}

/** Returns the paths of the files in `dataDir` that contain a token of the owner, and the audience of each token. */
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
    // Renames a complete file, so that readers see the old or the new token, never a part of one.
    await writeFile(`${path}.new`, `${token}\n`, { mode: 0o600 })
    await rename(`${path}.new`, path)
  }
}

/** The demo group of a development server. If a user deleted the owner, `owner` is undefined and there are no tokens. */
export interface RunningDemo {
  readonly group: Uid
  readonly owner: Uid | undefined
  stop(): void
}

/**
 * Sets up a development server: the root group `demo` with an owner, and files with the owner's tokens for the API and the registry host.
 * All of them exist when this resolves. The tokens are renewed until `stop` is called.
 */
export async function startDemo(server: RunningServer, options: { config: Config; devIssuer: DevIssuer }): Promise<RunningDemo> {
  const demo = (await findDemo(server)) ?? (await makeDemo(server, options.devIssuer))
  if (server.engine.cache.tables.get('Identity', demo.owner) === undefined) {
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
      log.error('the token files cannot be renewed', { error: errorText(error) })
    })
  }, renewCheckMs)
  return { ...demo, stop: () => clearInterval(timer) }
}
