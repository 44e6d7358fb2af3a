import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Command, InvalidArgumentError, Option } from 'commander'
import { dockerConfigSecret, expiresAnnotation, isSecretName } from '../base/pull-secret.ts'
import { builtInRoles } from '../base/roles.ts'
import { randomHex, type Clock, type Random } from '../base/runtime.ts'
import { ClientError, textOf, type Json } from './client/client-error.ts'
import { openContext } from './client/connection.ts'
import { findGroup } from './client/places.ts'
import { createPlatformClient, type PlatformClient } from './client/platform-client.ts'
import { alignedLine, columnWidths } from './client/columns.ts'
import { exitAfterParsing, UsageError } from './exit-codes.ts'
import { systemClock, systemRandom } from '../server/runtime.ts'

/** A pull token: an identity with static keys and a role binding to `registry.pull` (docs/spec/registry.md#pull-tokens). */
export interface PullToken {
  /** The uid of the identity, which is also the user name. */
  readonly uid: string
  readonly name: string
  readonly expirationTime: string
  /** Time of the last use; if unused, time of creation. */
  readonly lastSeenTime: string
}

/** A new pull token. Its password is shown only once. */
interface NewPullToken extends PullToken {
  readonly password: string
}

/** Parameters of a new pull token. */
interface PullTokenRequest {
  /** The group, by uid or by a path of names such as `demo/team`. The token can pull from all repos in and below it. */
  readonly group: string
  readonly name: string | undefined
  readonly ttlMs: number
}

/** Dependencies of the pull token functions. */
export interface PullTokensOptions {
  readonly client: PlatformClient
  /** The registry host, which is the audience of the passwords. */
  readonly registry: string
  readonly clock: Clock
  readonly random: Random
}

const hourMs = 3_600_000
/** Default and maximum lifetime of a pull token (docs/spec/registry.md#pull-tokens). */
const pullTokenTtl = { defaultHours: 720, maxHours: 8760 } as const

const roleName = 'registry.pull'
const subjectPrefix = 'pull-token:'

/** Creates a pull token. If this fails, rejects with ClientError, after removing what it has created as far as the caller's rights allow. */
export async function createPullToken(options: PullTokensOptions, request: PullTokenRequest): Promise<NewPullToken> {
  const { client, clock, random, registry } = options
  const group = await findGroup(client, request.group)
  const id = randomHex(random, 8)
  const nowMs = clock.now()
  const facts = { issuer: issuerOf(registry), subject: `${subjectPrefix}${id}`, audience: registry, issuedAtMs: nowMs, expiresAtMs: nowMs + request.ttlMs }
  // Loaded when needed: other commands start in half the time.
  const { createPasswordToken } = await import('../auth/access-tokens/password-token.ts')
  const { token, issuerKeys } = await createPasswordToken(facts)
  const { issuer, subject } = facts
  const staticKeys = { issuer, subject, issuerKeys, expirationTime: new Date(facts.expiresAtMs).toISOString(), audiences: [registry] }
  const body = { name: request.name ?? `pull-token-${id}`, description: `Pulls from ${registry}`, staticKeys }
  const identity = await client.call({ method: 'POST', path: `/iam/v2/identities/${group}`, body })
  const made = shownOf(identity)
  await bind(client, group, made)
  return { ...made, password: token }
}

async function bind(client: PlatformClient, group: string, { uid }: PullToken): Promise<void> {
  const roleUid = builtInRoles.find(({ name }) => name === roleName)?.uid ?? ''
  try {
    await client.call({ method: 'POST', path: `/iam/v2/roleBindings/${group}`, body: { identityUid: uid, roleUid } })
  } catch (error) {
    // The caller may lack the right to delete the identity. Without a role binding, the identity has no rights.
    await client.call({ method: 'DELETE', path: `/iam/v2/identities/${uid}` }).catch(() => undefined)
    throw error
  }
}

/**
 * Lists the pull tokens in and below a group, or in all groups that the caller can access. Needs `identity.list`, which a creator of
 * tokens may lack.
 */
export async function listPullTokens({ client, registry }: PullTokensOptions, group: string | undefined): Promise<readonly PullToken[]> {
  const place = group === undefined ? {} : { 'uidp.descendants_of': await findGroup(client, group) }
  const found: PullToken[] = []
  for await (const identity of client.list('/iam/v2/identities', 'identities', { relationship_type: 'RELATIONSHIP_TYPE_STATIC', ...place })) {
    if (isPullToken(identity, registry)) found.push(shownOf(identity))
  }
  return found
}

/** Deletes a pull token, so that the registry host refuses it. Rejects with ClientError, also if the identity is not a pull token. */
export async function revokePullToken({ client, registry }: PullTokensOptions, uid: string): Promise<void> {
  const path = `/iam/v2/identities/${uid}`
  if (!isPullToken(await client.call({ method: 'GET', path }), registry)) throw new ClientError(`${uid} is an identity, but not a pull token of ${registry}`)
  await client.call({ method: 'DELETE', path })
}

/** Parses a lifetime such as `720h`, `30d` or `90m`. Throws UsageError if it is invalid or too long. */
export function parseTtl(text: string): number {
  const [, digits = '', unit = ''] = /^(\d{1,6})(m|h|d)$/.exec(text) ?? []
  const unitMs = { m: hourMs / 60, h: hourMs, d: 24 * hourMs }[unit]
  const ttlMs = Number(digits) * (unitMs ?? NaN)
  if (!(ttlMs > 0 && ttlMs <= pullTokenTtl.maxHours * hourMs)) {
    throw new UsageError(`--ttl needs a time such as 720h or 30d, ${pullTokenTtl.maxHours}h at most, not "${text}"`)
  }
  return ttlMs
}

/** Returns the issuer of a pull token. It has no key endpoint, since the identity itself holds the keys. */
function issuerOf(registry: string): string {
  return `https://${registry}/pull-tokens`
}

function staticKeysOf(identity: Json): Json {
  const keys = identity['staticKeys']
  return typeof keys === 'object' && keys !== null ? (keys as Json) : {} // A JSON object.
}

function isPullToken(identity: Json, registry: string): boolean {
  const { issuer, subject } = staticKeysOf(identity)
  return issuer === issuerOf(registry) && textOf(subject).startsWith(subjectPrefix)
}

function shownOf(identity: Json): PullToken {
  return {
    uid: textOf(identity['uid']),
    name: textOf(identity['name']),
    expirationTime: textOf(staticKeysOf(identity)['expirationTime']),
    lastSeenTime: textOf(identity['lastSeenTime']),
  }
}

/** Options of all pull token commands. */
interface ClientOptions {
  readonly config?: string
  readonly url?: string
  readonly registry?: string
  readonly tokenFile?: string
  readonly context?: string
  readonly json?: true
}

interface NewOptions extends ClientOptions {
  readonly group: string
  readonly name?: string
  readonly ttl: string
  readonly secret?: string
}

/** Creates the command `taproot pull-token create|list|revoke`. `configOption` creates the option for the configuration file. */
export function pullTokenCommand(configOption: () => Option): Command {
  const command = new Command('pull-token').description('create, list and revoke credentials for pulls from the registry host').exitOverride(exitAfterParsing)
  const add = (name: string, description: string): Command =>
    command
      .command(name)
      .description(description)
      .option('--url <url>', 'URL of the API; default: baseUrl of the configuration')
      .option('--registry <host>', 'the registry host; default: registry.host of the configuration')
      .option('--token-file <file>', 'file with an access token for the API; default: the one in dataDir')
      .addOption(new Option('--context <name>', 'sign-in to use; default: the current one, if dataDir has no token').conflicts(['url', 'tokenFile', 'config']))
      .option('--json', 'print JSON')
      .addOption(configOption())
  add('create', 'create a pull token and print its password once')
    .requiredOption('--group <group>', 'the group to pull from, with all below: a uid, or names such as demo/team')
    .option('--name <text>', 'name of the pull token')
    .addOption(new Option('--ttl <time>', `lifetime: 90m, 720h, 30d; ${pullTokenTtl.maxHours}h at most`).default(`${pullTokenTtl.defaultHours}h`))
    .addOption(
      new Option('--secret <name>', 'print only a Secret of this name, for kubectl apply and imagePullSecrets').argParser(parseSecretName).conflicts('json'),
    )
    .action(async (options: NewOptions) => {
      const ttlMs = parseTtl(options.ttl)
      const tokens = await pullTokensOf(options)
      printNew(options, tokens, await createPullToken(tokens, { group: options.group, name: options.name, ttlMs }))
    })
  add('list', 'list pull tokens')
    .option('--group <group>', 'of this group and below; default: of all groups that you can access')
    .action(async (options: ClientOptions & { group?: string }) => printList(options, await listPullTokens(await pullTokensOf(options), options.group)))
  add('revoke', 'delete a pull token: the registry host refuses it from then on')
    .argument('<uid>', 'user name of the pull token')
    .action(async (uid: string, options: ClientOptions) => {
      await revokePullToken(await pullTokensOf(options), uid)
      process.stdout.write(options.json === true ? `${JSON.stringify({ uid })}\n` : `revoked ${uid}\n`)
    })
  return command
}

function parseSecretName(text: string): string {
  if (!isSecretName(text)) throw new InvalidArgumentError('The name of a Secret consists of lower-case letters, digits, "-" and ".".')
  return text
}

/** Returns the dependencies of the pull token functions. Throws if `--url` is given without the registry host. */
async function pullTokensOf(options: ClientOptions): Promise<PullTokensOptions> {
  const { config: file, url, registry, tokenFile, context } = options
  const { loadConfig } = await import('../config/load-config.ts')
  const { config } = loadConfig({ file, env: process.env, role: 'dev' })
  const isLocal = (url ?? tokenFile ?? file) !== undefined || existsSync(join(config.dataDir, 'token'))
  const signedIn = context === undefined && isLocal ? undefined : await openContext(process.env, context)
  if (signedIn !== undefined) {
    const host = registry ?? signedIn.context.registry
    if (host === '') throw new UsageError(`${signedIn.context.server} names no registry host: set --registry`)
    return { client: signedIn.client, registry: host, clock: systemClock, random: systemRandom }
  }
  if (url !== undefined && registry === undefined) throw new UsageError('--url needs --registry: the registry host of that installation')
  const token = readToken(tokenFile ?? join(config.dataDir, 'token'))
  const client = createPlatformClient({ baseUrl: (url ?? config.baseUrl).replace(/\/+$/, ''), token })
  return { client, registry: registry ?? config.registry.host, clock: systemClock, random: systemRandom }
}

/** Reads a token. If the file cannot be read, throws UsageError with its name. */
function readToken(file: string): string {
  try {
    return readFileSync(file, 'utf8').trim()
  } catch (cause) {
    const { code = 'no file' } = cause as NodeJS.ErrnoException // a cast: the file system throws no other errors
    throw new UsageError(`no access token: ${file} cannot be read (${code}); run "taproot login <server>", or set --token-file to a file with one`, { cause })
  }
}

function printNew({ json, secret }: NewOptions, { registry }: PullTokensOptions, made: NewPullToken): void {
  if (secret !== undefined) {
    const metadata = { name: secret, annotations: { [expiresAnnotation]: made.expirationTime } }
    const login = dockerConfigSecret(registry, { username: made.uid, password: made.password })
    process.stdout.write(`${JSON.stringify({ apiVersion: 'v1', kind: 'Secret', metadata, ...login }, undefined, 2)}\n`)
    return
  }
  const lines = [
    `Pull token ${made.name}, valid until ${made.expirationTime}. The password is shown only once.`,
    `  user name  ${made.uid}`,
    `  password   ${made.password}`,
    'Sign in:',
    `  echo ${made.password} | docker login ${registry} --username ${made.uid} --password-stdin`,
    '',
  ]
  process.stdout.write(json === true ? `${JSON.stringify({ ...made, registry })}\n` : lines.join('\n'))
}

function printList({ json }: ClientOptions, tokens: readonly PullToken[]): void {
  if (json === true) {
    process.stdout.write(`${JSON.stringify(tokens)}\n`)
    return
  }
  const rows = [['USER NAME', 'NAME', 'EXPIRES', 'LAST SEEN'], ...tokens.map((one) => [one.uid, one.name, one.expirationTime, one.lastSeenTime])]
  const widths = columnWidths(rows)
  for (const row of rows) process.stdout.write(`${alignedLine(row, widths)}\n`)
}
