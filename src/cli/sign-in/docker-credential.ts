import { text } from 'node:stream/consumers'
import type { Clock } from '../../base/runtime.ts'
import type { Environment } from '../../config/environment.ts'
import { ClientError } from '../client/client-error.ts'
import { printable } from '../client/columns.ts'
import { trustAlso } from '../client/connection.ts'
import { exitCodes, UsageError } from '../exit-codes.ts'
import { systemClock } from '../../server/runtime.ts'
import { version } from '../../server/version.ts'
import { contextToken } from './context-token.ts'
import { contextFolder, contextNamed, readContexts, type Contexts, type LoginContext } from './contexts.ts'

/** The name of this helper in the configuration of Docker. */
export const helperName = 'taproot'

/** The user name for an access token at the registry host (docs/spec/registry.md#registry-token-endpoint). */
const userName = '_token'

/** Texts of errors that clients of the protocol compare. */
const errors = { unknown: 'credentials not found in native keychain', noServer: 'no credentials server URL' } as const

/** What the actions need of the machine. */
export interface HelperTools {
  readonly env: Environment
  readonly clock: Clock
}

/** Answers one action. Rejects with UsageError or ClientError, whose message is for the client. */
type Action = (tools: HelperTools, input: string) => Promise<string>

/** The actions of the protocol (https://github.com/docker/docker-credential-helpers). */
const actions: Readonly<Record<string, Action>> = {
  async get({ env, clock }, input) {
    const server = input.trim()
    if (server === '') throw new UsageError(errors.noServer)
    const folder = contextFolder(env)
    const context = contextOfRegistry(await readContexts(folder), hostOf(server))
    if (context === undefined) throw new UsageError(errors.unknown)
    if (context.caFile !== '') trustAlso(context.caFile)
    const secret = await contextToken({ folder, name: context.name, env, clock }, ({ registry }) => registry)
    return JSON.stringify({ ServerURL: server, Username: userName, Secret: secret })
  },
  store: () => Promise.reject(new UsageError('docker-credential-taproot stores no passwords: sign in with "taproot login", without "docker login"')),
  erase: () => Promise.reject(new UsageError('docker-credential-taproot removes nothing: sign out with "taproot logout"')),
  async list({ env }) {
    const { contexts } = await readContexts(contextFolder(env))
    return JSON.stringify(Object.fromEntries(contexts.filter(isSignedIn).map(({ registry }) => [registry, userName])))
  },
  version: () => Promise.resolve(`docker-credential-taproot ${version()}`),
}

/** Returns the context for a registry host: the current one if it fits, else the first with a sign-in. */
function contextOfRegistry(contexts: Contexts, host: string): LoginContext | undefined {
  const candidates = [contextNamed(contexts, contexts.current), ...contexts.contexts].filter((context) => context?.registry === host && host !== '')
  return candidates.find((context) => context !== undefined && isSignedIn(context)) ?? candidates[0]
}

function isSignedIn({ registry, source, refreshToken, accessTokens }: LoginContext): boolean {
  return registry !== '' && (source !== undefined || refreshToken !== '' || accessTokens.length > 0)
}

/** Returns host and port of a server that a client names: `registry.example.com`, also with a scheme and a path. */
function hostOf(server: string): string {
  const url = URL.parse(/^https?:\/\//.test(server) ? server : `https://${server}`)
  return url?.host ?? ''
}

/** Answers an action: the text for standard output, and true if it succeeded. Clients read errors there too. */
export async function answerHelper(tools: HelperTools, action: string | undefined, input: string): Promise<{ text: string; done: boolean }> {
  const known = Object.hasOwn(actions, action ?? '') ? actions[action ?? ''] : undefined
  if (known === undefined) return { text: `usage: docker-credential-taproot <${Object.keys(actions).join('|')}>`, done: false }
  try {
    return { text: await known(tools, input), done: true }
  } catch (error) {
    if (!(error instanceof UsageError || error instanceof ClientError)) throw error
    return { text: printable(error instanceof ClientError ? error.line : error.message), done: false }
  }
}

/** Runs the program `docker-credential-taproot`. */
export async function dockerCredential(argv: readonly string[]): Promise<void> {
  const [action] = argv.slice(2)
  const needsInput = action === 'get' || action === 'store' || action === 'erase'
  const input = needsInput ? await text(process.stdin) : ''
  const answer = await answerHelper({ env: process.env, clock: systemClock }, action, input)
  process.stdout.write(`${answer.text}\n`)
  process.exitCode = answer.done ? 0 : exitCodes.refused
}
