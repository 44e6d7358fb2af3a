import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Command, InvalidArgumentError, Option } from 'commander'
import { dockerConfigSecret, expiresAnnotation, isSecretName } from '../base/pull-secret.ts'
import { loadConfig } from '../config/load-config.ts'
import { createPlatformClient } from './client/platform-client.ts'
import { alignedLine, columnWidths } from './client/table.ts'
import { exitAfterParsing } from './exit-codes.ts'
import { UsageError } from './usage-error.ts'
import { systemClock, systemRandom } from '../server/runtime.ts'
import {
  createPullToken,
  listPullTokens,
  parseTtl,
  pullTokenTtl,
  revokePullToken,
  type NewPullToken,
  type PullToken,
  type PullTokensOptions,
} from './pull-tokens.ts'

/** Where the API is, and who asks: what all commands take. */
interface ClientOptions {
  readonly config?: string
  readonly url?: string
  readonly registry?: string
  readonly tokenFile?: string
  readonly json?: true
}

interface NewOptions extends ClientOptions {
  readonly group: string
  readonly name?: string
  readonly ttl: string
  readonly secret?: string
}

/** `taproot pull-token create|list|revoke`. `configOption` is the option that names a configuration. */
export function pullTokenCommand(configOption: () => Option): Command {
  const command = new Command('pull-token').description('make, list and revoke credentials that pull from the registry host').exitOverride(exitAfterParsing)
  const add = (name: string, description: string): Command =>
    command
      .command(name)
      .description(description)
      .option('--url <url>', 'where the API is; baseUrl of the configuration if absent')
      .option('--registry <host>', 'the registry host; registry.host of the configuration if absent')
      .option('--token-file <file>', 'file with an access token for the API; the one in dataDir if absent')
      .option('--json', 'print JSON')
      .addOption(configOption())
  add('create', 'make a pull token: its password is printed once')
    .requiredOption('--group <group>', 'what it pulls from, with all below: a uid, or names such as demo/team')
    .option('--name <text>', 'what it is for')
    .addOption(new Option('--ttl <time>', `how long it is good: 90m, 720h, 30d; ${pullTokenTtl.maxHours}h at most`).default(`${pullTokenTtl.defaultHours}h`))
    .addOption(
      new Option('--secret <name>', 'print a Secret of this name, for kubectl apply and imagePullSecrets, and nothing else')
        .argParser(parseSecretName)
        .conflicts('json'),
    )
    .action(async (options: NewOptions) => {
      const ttlMs = parseTtl(options.ttl)
      const tokens = pullTokensOf(options)
      printNew(options, tokens, await createPullToken(tokens, { group: options.group, name: options.name, ttlMs }))
    })
  add('list', 'list pull tokens')
    .option('--group <group>', 'of this group and below; of all groups within reach if absent')
    .action(async (options: ClientOptions & { group?: string }) => printList(options, await listPullTokens(pullTokensOf(options), options.group)))
  add('revoke', 'delete a pull token: it is refused from then on')
    .argument('<uid>', 'its user name')
    .action(async (uid: string, options: ClientOptions) => {
      await revokePullToken(pullTokensOf(options), uid)
      process.stdout.write(options.json === true ? `${JSON.stringify({ uid })}\n` : `revoked ${uid}\n`)
    })
  return command
}

function parseSecretName(text: string): string {
  if (!isSecretName(text)) throw new InvalidArgumentError('A Secret is named with lower-case letters, digits, "-" and ".".')
  return text
}

/** Throws where it is not clear which registry host belongs to the API. */
function pullTokensOf({ config: file, url, registry, tokenFile }: ClientOptions): PullTokensOptions {
  const { config } = loadConfig({ file, env: process.env, role: 'dev' })
  if (url !== undefined && registry === undefined) throw new UsageError('--url needs --registry: the registry host of that installation')
  const token = readToken(tokenFile ?? join(config.dataDir, 'token'))
  const client = createPlatformClient({ baseUrl: (url ?? config.baseUrl).replace(/\/+$/, ''), token })
  return { client, registry: registry ?? config.registry.host, clock: systemClock, random: systemRandom }
}

/** Throws UsageError with the file's name where it can't be read. */
function readToken(file: string): string {
  try {
    return readFileSync(file, 'utf8').trim()
  } catch (cause) {
    const { code = 'no file' } = cause as NodeJS.ErrnoException // a cast: the file system throws nothing else
    throw new UsageError(`no access token: ${file} can not be read (${code}); name the file that has one with --token-file`, { cause })
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
    `Pull token ${made.name}, good until ${made.expirationTime}. The password is shown this once.`,
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
