import { createInterface } from 'node:readline/promises'
import { setTimeout as delay } from 'node:timers/promises'
import { Command, Option } from 'commander'
import { systemClock, systemRandom } from '../../server/runtime.ts'
import { clientCommand, runClient, runReported } from '../client/client-command.ts'
import { caFileOption, type ConnectionOptions } from '../client/connection.ts'
import { exitAfterParsing } from '../exit-codes.ts'
// Types only: each command loads what it needs when it is called.
import type { StatusFormat } from './auth-command.ts'
import type { ContextFormat } from './context-command.ts'
import type { LoginArguments, LogoutOptions, SignInTools } from './login.ts'

const statusFormats: readonly StatusFormat[] = ['table', 'json', 'yaml']
const contextFormats: readonly ContextFormat[] = ['table', 'json', 'name']

/** Creates the commands `login`, `logout`, `auth` and `context`. `program` is their name on the command line. */
export function signInCommands(program: string): Command[] {
  return [...loginCommands(program), authCommand(program), contextCommand(program)]
}

/** Runs a command of sign-in, and reports its failure. */
function runSignIn(program: string, body: (tools: SignInTools) => Promise<void>): Promise<void> {
  return runReported(program, async (reported) => {
    const { stdin, stderr, env, platform } = process
    const ask = async (question: string): Promise<string> => {
      const lines = createInterface({ input: stdin, output: stderr })
      try {
        return await lines.question(question)
      } finally {
        lines.close()
      }
    }
    await body({ ...reported, env, platform, clock: systemClock, random: systemRandom, wait: delay, ask: stdin.isTTY && stderr.isTTY ? ask : undefined })
  })
}

function loginCommands(program: string): Command[] {
  const external = (flags: string, words: string, others: string[]): Option => new Option(flags, words).conflicts(['device', 'organisation', ...others])
  return [
    new Command('login')
      .description('sign in at a server, in the browser or with a token of another issuer, and use it from then on')
      .argument('<server>', 'URL of the API, such as https://taproot.example.com')
      .option('--organisation <name>', 'whose people sign in: the name of an organisation, or the uid of its identity provider; default: as last time')
      .option('--device', 'sign in with a browser on any machine; the default if this one has no browser')
      .option('--identity <uid>', 'identity to assume with a token of another issuer')
      .addOption(external('--token-file <file>', 'file with a token of another issuer, read again at each renewal', ['tokenEnv', 'github']))
      .addOption(external('--token-env <variable>', 'environment variable with such a token, as GitLab sets it', ['github']))
      .addOption(external('--github', 'get such a token from GitHub Actions', []))
      .option('--context <name>', 'name of the sign-in on this machine; default: the host of the server')
      .addOption(caFileOption())
      .exitOverride(exitAfterParsing)
      .action((server: string, options: LoginArguments) => runSignIn(program, async (tools) => (await import('./login.ts')).login(tools, server, options))),
    new Command('logout')
      .description('revoke a sign-in and remove it from this machine')
      .option('--context <name>', 'sign-in to end; default: the current one')
      .option('--local', 'only remove it here, without a request to the server')
      .exitOverride(exitAfterParsing)
      .action((options: LogoutOptions) => runSignIn(program, async (tools) => (await import('./login.ts')).logout(tools, options))),
  ]
}

function authCommand(program: string): Command {
  const command = new Command('auth').description('show the sign-in in use, and use it for registry clients').exitOverride(exitAfterParsing)
  command.addCommand(
    clientCommand('status', 'print server, identity, expiry and roles of the sign-in in use')
      .addOption(new Option('-o, --output <format>', 'output format').choices(statusFormats).default('table'))
      .action((options: ConnectionOptions & { output: StatusFormat }) =>
        runClient(program, options, async (context) => (await import('./auth-command.ts')).authStatus(context, options.output)),
      ),
  )
  command
    .command('configure-docker')
    .description('let docker, crane and others sign in at the registry host with docker-credential-taproot')
    .option('--registry <host>', 'the registry host; default: that of the context')
    .option('--context <name>', 'context of the registry host; default: the current one')
    .action((options: { readonly registry?: string; readonly context?: string }) =>
      runSignIn(program, async (tools) => (await import('./auth-command.ts')).configureDocker(tools, options)),
    )
  return command
}

function contextCommand(program: string): Command {
  const command = new Command('context').description('list, choose and remove the sign-ins of this machine').exitOverride(exitAfterParsing)
  command
    .command('list')
    .description('list contexts; a star marks the current one')
    .addOption(new Option('-o, --output <format>', 'output format').choices(contextFormats).default('table'))
    .action(({ output }: { output: ContextFormat }) => runSignIn(program, async (tools) => (await import('./context-command.ts')).listContexts(tools, output)))
  command
    .command('use')
    .description('make a context the current one')
    .argument('<context>', 'name of the context')
    .action((name: string) => runSignIn(program, async (tools) => (await import('./context-command.ts')).useContext(tools, name)))
  command
    .command('remove')
    .description('revoke the sign-in of a context and remove the context')
    .argument('<context>', 'name of the context')
    .option('--local', 'only remove it here, without a request to the server')
    .action((name: string, options: { readonly local?: true }) =>
      runSignIn(program, async (tools) => (await import('./context-command.ts')).removeContext(tools, name, options)),
    )
  return command
}
