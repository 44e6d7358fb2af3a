import type { TokenRestrictions } from '../../src/auth/access-tokens/token-restrictions.ts'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { create, type JsonObject } from '@bufbuild/protobuf'
import { createDevIssuer, type DevIssuer } from '../../src/auth/oidc/dev-issuer.ts'
import { personUid } from '../../src/auth/oidc/issuer-name.ts'
import type { Config } from '../../src/config/config.ts'
import { loadConfig } from '../../src/config/load-config.ts'
import { systemClock } from '../../src/server/runtime.ts'
import type { SinkOptions } from '../../src/server/delivery.ts'
import { startServer, type RunningServer } from '../../src/server/server.ts'
import { builtInRoles } from '../../src/base/roles.ts'
import type { LogFields } from '../../src/base/log.ts'
import type { Clock } from '../../src/base/runtime.ts'
import type { Tracing } from '../../src/base/tracing.ts'
import { trustedUid } from '../../src/base/uid.ts'
import { IdentitySchema } from '../../src/gen/taproot/iam/v2/identities_pb.ts'
import { ChangeSet, newEtag } from '../../src/engine/change-set.ts'
import { identityKind } from '../../src/iam/records/identities.ts'
import type { Resource } from '../../src/cache/records/cached-record.ts'
import { freePorts } from './parts/free-port.ts'
import { etcdSettings, shareEtcd, type EtcdSpace } from './parts/etcd.ts'
import { grpcClient, restClient, type ApiClient, type Reply } from './api-clients.ts'

/** A log line of the server. */
export interface LogLine {
  readonly level: string
  readonly message: string
  readonly fields: LogFields
}

/** A whole API server in this process, on a real store and real ports, with the development issuer. */
export interface TestServer {
  readonly config: Config
  readonly running: RunningServer
  readonly devIssuer: DevIssuer
  readonly rest: ApiClient
  readonly grpc: ApiClient
  readonly logs: LogLine[]
  /** An access token for this identity, equal to that of an exchange. */
  tokenFor(identityUid: string, restrictions?: TokenRestrictions): Promise<string>
  /** An access token of the configured operator. */
  operatorToken(): Promise<string>
  stop(): Promise<void>
}

/** Options of a test server. */
export interface TestServerOptions {
  readonly store?: 'sqlite' | 'etcd'
  /** By default the worker's etcd, if needed. */
  readonly etcd?: Pick<EtcdSpace, 'endpoints'> & Partial<EtcdSpace>
  /** Kept over restarts; created and removed if absent. */
  readonly dataDir?: string
  /** `TAPROOT_*` settings over the defaults. */
  readonly env?: Readonly<Record<string, string>>
  /** False without a store of bytes: tags then name unchecked digests (docs/spec/registry.md#tag-creation). */
  readonly keepsContent?: boolean
  /** The clock of the server and the development issuer; the machine's by default. */
  readonly clock?: Clock
  /** Interval of reloading files; 10 s by default. */
  readonly filesEveryMs?: number
  readonly sinks?: SinkOptions
  /** False for tests that do the work of the leader themselves. */
  readonly leads?: boolean
  /** True for a server without development issuer, like role `api`. */
  readonly production?: boolean
  readonly tracing?: Tracing
}

/** The uid of a built-in role. */
export function roleUid(name: string): string {
  const role = builtInRoles.find((candidate) => candidate.name === name)
  if (role === undefined) throw new Error(`no role ${name}`)
  return role.uid
}

/** The configuration, without an upstream if no store keeps content. */
function withContent(config: Config, keepsContent: boolean): Config {
  const { upstream: _upstream, ...registry } = config.registry
  return keepsContent ? config : { ...config, registry }
}

/** Starts a server; `stop` removes all its data, and a failed start leaves none. */
export async function startTestServer(options: TestServerOptions = {}): Promise<TestServer> {
  if (options.dataDir !== undefined) return startIn(options.dataDir, options)
  const folder = await mkdtemp(join(tmpdir(), 'taproot-test-'))
  const remove = (): Promise<void> => rm(folder, { recursive: true, force: true })
  try {
    const server = await startIn(folder, options)
    return { ...server, stop: () => server.stop().then(remove) }
  } catch (error) {
    await remove()
    throw error
  }
}

async function startIn(dataDir: string, options: TestServerOptions): Promise<TestServer> {
  const clock = options.clock ?? systemClock
  const [apiPort = 0, opsPort = 0, registryPort = 0] = await freePorts(3)
  const etcd = options.etcd ?? (options.store === 'etcd' ? await shareEtcd() : undefined)
  const baseUrl = `http://localhost:${apiPort}`
  const operator = { issuer: `${baseUrl}/dev/issuer`, subject: 'operator' }
  const env: Record<string, string> = {
    TAPROOT_DATA_DIR: dataDir,
    TAPROOT_API_PORT: String(apiPort),
    TAPROOT_OPS_PORT: String(opsPort),
    TAPROOT_REGISTRY_PORT: String(registryPort),
    // Suites count the events of anonymous calls too.
    TAPROOT_AUDIT_ANONYMOUS_PER_MINUTE: '1000000',
    // A process reads each pushed image: suites that need contents turn it on.
    TAPROOT_REGISTRY_READ_CONTENTS: 'false',
    TAPROOT_BOOTSTRAP_OPERATORS: JSON.stringify([operator]),
    ...(etcd && etcdSettings(etcd)),
    ...options.env,
  }
  const config = withContent(loadConfig({ env, role: 'dev' }).config, options.keepsContent ?? true)
  const devIssuer = await createDevIssuer({ keyFile: join(dataDir, 'dev-issuer.json'), issuer: operator.issuer, clock })
  const logs: LogLine[] = []
  const logAt =
    (level: string) =>
    (message: string, fields: LogFields = {}): void => {
      logs.push({ level, message, fields })
    }
  const log = { debug: logAt('debug'), info: logAt('info'), warn: logAt('warn'), error: logAt('error') }
  const developed = options.production === true ? undefined : devIssuer
  const { filesEveryMs, sinks, tracing, leads = true } = options
  const running = await startServer(
    { config, log, auditLog: log, devIssuer: developed, tracing, clock, leads, ...(filesEveryMs && { filesEveryMs }), ...(sinks && { sinks }) },
    new AbortController().signal,
  )
  const rest = restClient(`http://127.0.0.1:${apiPort}`)
  const grpc = grpcClient(`127.0.0.1:${apiPort}`)
  const mint = async (identityUid: string, subject: string, restrictions: TokenRestrictions = {}): Promise<string> => {
    const act = { issuer: operator.issuer, subject, audience: baseUrl }
    const { token } = await running.signIn.tokens.mint({ identityUid: trustedUid(identityUid), audiences: [baseUrl], act, restrictions })
    return token
  }
  return {
    config,
    running,
    devIssuer,
    rest,
    grpc,
    logs,
    tokenFor: (identityUid, restrictions) => mint(identityUid, 'test', restrictions),
    operatorToken: () => mint(personUid(operator.issuer, operator.subject), operator.subject),
    async stop() {
      rest.close()
      grpc.close()
      await running.stop()
    },
  }
}

/** Returns the answer's body; throws with the answer if it is an error. */
export function ok(reply: Reply): JsonObject {
  if (reply.code !== 0) throw new Error(`code ${reply.code}: ${reply.message} ${JSON.stringify(reply.details)}`)
  return reply.body
}

/** An organisation of a test: root group, owner and the owner's token. */
export interface Organisation {
  readonly group: string
  readonly owner: string
  readonly token: string
}

let counter = 0

/** A unique name. */
export function freshName(stem: string): string {
  counter += 1
  return `${stem}-${process.pid}-${counter}`
}

/** Creates a root group as the operator, an identity under it, and binds the identity as owner. */
export async function makeOrganisation(server: TestServer, name = freshName('org')): Promise<Organisation> {
  const operator = await server.operatorToken()
  const group = String(ok(await server.rest.call('CreateGroup', { group: { name } }, { token: operator }))['uid'])
  const owner = await makeMember(server, group, { role: 'owner' })
  return { group, owner: owner.uid, token: owner.token }
}

/** Creates an identity under `group`, binds it to a role (built-in name or uid; none if absent) and mints a token for it. */
export async function makeMember(server: TestServer, group: string, options: { role?: string; bindAt?: string } = {}): Promise<{ uid: string; token: string }> {
  const token = await server.operatorToken()
  const identity = { name: freshName('member'), claimMatch: { issuer: 'https://issuer.example', subject: freshName('subject') } }
  const uid = String(ok(await server.rest.call('CreateIdentity', { parent: group, identity }, { token }))['uid'])
  if (options.role !== undefined) {
    const role = /^[0-9a-f]{40}/.test(options.role) ? options.role : roleUid(options.role)
    ok(await server.rest.call('CreateRoleBinding', { parent: options.bindAt ?? group, roleBinding: { identityUid: uid, roleUid: role } }, { token }))
  }
  return { uid, token: await server.tokenFor(uid) }
}

/** Registers a person by issuer and subject in the store, like a first sign-in, and mints a token for them. */
export async function makePerson(server: TestServer, person: { issuer: string; subject: string; email?: string }): Promise<{ uid: string; token: string }> {
  const { engine, signIn } = server.running
  const uid = personUid(person.issuer, person.subject)
  const nowMs = engine.services.clock.now()
  if (engine.cache.tables.get('Identity', uid) === undefined) {
    const changes = new ChangeSet()
    const record = create(IdentitySchema, { name: 'person', email: person.email ?? '' }) as unknown as Resource
    changes.create(identityKind, { uid, record, facts: { etag: newEtag(engine.services.random), createMs: nowMs, updateMs: nowMs, managedBy: '' } })
    const outcome = await engine.store.transact(changes, AbortSignal.timeout(60_000))
    if (outcome.committed) await engine.cache.reached(outcome.revision, AbortSignal.timeout(60_000))
  }
  const act = { ...person, audience: server.config.baseUrl }
  const { token } = await signIn.tokens.mint({ identityUid: uid, audiences: [server.config.baseUrl], act, restrictions: {} })
  return { uid, token }
}
