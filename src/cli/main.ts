import { Command, Option, InvalidArgumentError } from 'commander'
import { completionCommands } from './client/completion.ts'
import { clientCommands } from './client-program.ts'
import type { CollectGarbageOptions } from './collect-garbage.ts'
import { encryptionKeyCommand } from './encryption-key.ts'
import { exitAfterParsing, UsageError } from './exit-codes.ts'
import type { ImportCommandOptions } from './import.ts'
import { initSecretsCommand } from './init-secrets/command.ts'
import { pullTokenCommand } from './pull-token.ts'
import { nameProgram, reportError } from './report-error.ts'
import { version } from '../server/version.ts'
import type { Role } from '../config/config.ts'
import type * as Server from '../server/run.ts'

/** Parses a number of hours, 0 or more. Throws InvalidArgumentError. */
function parseHours(text: string): number {
  const hours = Number(text)
  if (text.trim() === '' || !Number.isFinite(hours) || hours < 0) throw new InvalidArgumentError('Use a number of hours, 0 or more.')
  return hours
}

const configOption = (): Option => new Option('--config <file>', 'YAML file with settings; TAPROOT_* variables take precedence')

const after = `
Settings come from --config and from environment variables: TAPROOT_ and the key path in upper snake case, e.g.
  TAPROOT_API_PORT=8081 taproot dev
  TAPROOT_STORE_KIND=etcd TAPROOT_STORE_ETCD_ENDPOINTS=http://127.0.0.1:2379 TAPROOT_ENCRYPTION_KEY_FILE=key taproot api
docs/configuration.md lists all of them; "taproot config" prints the settings in effect.`

function addClaim(text: string, claims: Record<string, string>): Record<string, string> {
  const at = text.indexOf('=')
  if (at < 1) throw new UsageError(`--claim needs name=value, not "${text}"`)
  return { ...claims, [text.slice(0, at)]: text.slice(at + 1) }
}

/** `taproot import`: loads what it needs when it is called. */
function importAdvisoriesCommand(): Command {
  return new Command('import')
    .exitOverride(exitAfterParsing)
    .description('import advisories and other catalogues: files, folders, zip and tar archives, from disk, https URLs or registries')
    .argument('[source...]', 'files in JSON, JSON lines or YAML, folders, or archives of them; https URLs, or artifacts: oci://registry.example.com/name:tag')
    .option('--feed <name>', 'import this feed of the settings (catalogues.feeds) now')
    .option('--group <group>', 'uid or path of the group that advisories belong to, e.g. acme/security')
    .option('--ecosystem <ecosystem>', 'OSV ecosystem of packages whose documents name no distribution, e.g. Wolfi or Alpine:v3.20')
    .option('--replace', 'remove what the files do not have: advisories of the group, and other rows of the same sources')
    .option('--token-file <path>', 'file with a bearer token for the URLs; for a registry also user:password')
    .option('--ca-file <path>', 'PEM file with the CA certificate of the URLs')
    .option('--allow-private', 'allow URLs with private addresses, and http')
    .option('--dry-run', 'read everything and count, but change nothing')
    .addOption(new Option('--role <role>', 'role whose settings apply').choices(['api', 'dev']).default('dev'))
    .addOption(configOption())
    .action(async (sources: string[], options: ImportCommandOptions) => (await import('./import.ts')).importCommand(sources, options))
}

/** The commands that run until a signal ends them. */
const servers: readonly { readonly name: string; readonly run: keyof typeof Server; readonly description: string }[] = [
  { name: 'dev', run: 'runDev', description: 'run everything in one process on the embedded store, with a development token issuer and a demo group' },
  { name: 'api', run: 'runApi', description: 'serve the platform API: REST and gRPC on api.port, health and metrics on ops.port' },
  {
    name: 'registry',
    run: 'runRegistry',
    description: 'serve the registry host on registry.port: tokens, the OCI distribution API, tag history; health and metrics on ops.port',
  },
  { name: 'controller', run: 'runController', description: 'synchronise records and Kubernetes objects, both ways; health and metrics on ops.port' },
  { name: 'worker', run: 'runWorker', description: 'run what takes long, such as feeds of catalogues; health and metrics on ops.port' },
]

function addServerCommands(program: Command): void {
  for (const { name, run, description } of servers) {
    program
      .command(name)
      .description(description)
      .addOption(configOption())
      .action(async (options: { config?: string }) => (await import('../server/run.ts'))[run](options))
  }
}

/** The commands that are described where they are defined. */
function ownCommands(program: string): Command[] {
  const own = [pullTokenCommand(configOption), encryptionKeyCommand(configOption), initSecretsCommand(), importAdvisoriesCommand()]
  return [...own, ...clientCommands(program)]
}

/**
 * Runs the command `taproot`. Ends the process with 0, or after one line per fault on standard error with one of `exitCodes`. Server
 * modules are loaded only by the commands that need them, so that other commands start quickly.
 */
export async function main(argv: readonly string[]): Promise<void> {
  const program = new Command('taproot')
    .description('A platform control plane for organisations that run container registries: groups, identities, roles and role bindings.')
    .version(version(), '--version', 'print the version')
    .addHelpText('after', after)
    .exitOverride(exitAfterParsing)
  addServerCommands(program)
  program
    .command('token')
    .description('print an OIDC token of the development issuer')
    .requiredOption('--subject <text>', 'the token\'s subject, e.g. "ci-deployer"')
    .option('--audience <text>', "the token's audience; default: baseUrl")
    .addOption(new Option('--claim <name=value>', 'an extra claim; may be repeated').argParser(addClaim).default({}, 'none'))
    .addOption(configOption())
    .action(async (options: { subject: string; audience?: string; claim: Record<string, string>; config?: string }) =>
      (await import('../server/print-dev-token.ts')).printDevToken(options),
    )
  for (const command of ownCommands(program.name())) program.addCommand(command)
  program
    .command('collect-garbage')
    .description('remove manifests and blobs that nothing refers to, and on the embedded upstream also bytes without a record.')
    .option('--dry-run', 'only count, remove nothing')
    .option('--grace-hours <hours>', 'hours to keep unused content; default: registry.collect.graceHours', parseHours)
    .addOption(new Option('--role <role>', 'role whose settings apply').choices(['registry', 'dev']).default('dev'))
    .addOption(configOption())
    .action(async (options: CollectGarbageOptions) => (await import('./collect-garbage.ts')).collectGarbage(options))
  program
    .command('config')
    .description('print the effective configuration as YAML, secrets masked')
    .addOption(new Option('--role <role>', 'role whose defaults apply').choices(['api', 'registry', 'controller', 'worker', 'dev']).default('dev'))
    .addOption(configOption())
    .action(async (options: { role: Role; config?: string }) => (await import('./print-config.ts')).printConfig(options))
  for (const command of completionCommands(program)) program.addCommand(command, { hidden: command.name() === 'complete' })
  nameProgram(program, program.name())
  try {
    await program.parseAsync(argv)
  } catch (error) {
    reportError(program.name(), error)
  }
}
