import { randomBytes } from 'node:crypto'
import { mkdir, open, readFile, realpath, rename, rm, stat } from 'node:fs/promises'
import { homedir } from 'node:os'
import { dirname, isAbsolute, join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import type { Environment } from '../../config/environment.ts'
import { lockFile } from '../../store/sqlite/file-lock.ts'
import { isJson, textOf, type Json } from '../client/client-error.ts'
import { UsageError } from '../exit-codes.ts'

/** Where a sign-in without a person gets the token of another issuer: a file, an environment variable, or the runner of GitHub Actions. */
export type ExternalSource = { readonly tokenFile: string } | { readonly tokenEnv: string } | { readonly github: true }

/** An access token for one audience. */
export interface StoredToken {
  readonly audience: string
  readonly token: string
  /** Time by the clock of this machine. */
  readonly expires: string
}

/** A server, and the sign-in there. */
export interface LoginContext {
  readonly name: string
  readonly server: string
  /** The registry host of the server; empty if it issues no tokens for one. */
  readonly registry: string
  /** Name of the organisation or uid of the identity provider of the last sign-in in a browser; empty if there was none. */
  readonly organisation: string
  /** Absolute path of a file with extra CA certificates; empty if there is none. */
  readonly caFile: string
  /** Uid of the identity of an exchange; empty for a person. */
  readonly identity: string
  /** Set if access tokens come from an exchange. */
  readonly source?: ExternalSource | undefined
  /** Empty without one. */
  readonly refreshToken: string
  readonly accessTokens: readonly StoredToken[]
}

/** The content of the file of contexts. */
export interface Contexts {
  /** Name of the current context; empty if there is none. */
  readonly current: string
  readonly contexts: readonly LoginContext[]
}

/** The content without a file. */
export const noContexts: Contexts = { current: '', contexts: [] }

const header = '# Written by "taproot login". It contains credentials: do not share it.\n'

/** Maximum time to wait for another command that signs in or renews a token, and the time between attempts, in milliseconds. */
const lockWait = { maxMs: 60_000, stepMs: 50 } as const

/** Returns the folder of the file of contexts: `taproot` in XDG_CONFIG_HOME, by default in `~/.config`. */
export function contextFolder(env: Environment): string {
  const base = env['XDG_CONFIG_HOME'] ?? ''
  return join(isAbsolute(base) ? base : join(env['HOME'] ?? homedir(), '.config'), 'taproot')
}

/** Returns the path of the file of contexts. */
export function contextFile(folder: string): string {
  return join(folder, 'config.yaml')
}

/** Returns the context with this name; undefined if there is none. */
export function contextNamed({ contexts }: Contexts, name: string): LoginContext | undefined {
  return contexts.find((context) => context.name === name)
}

/** Reads the contexts. There are none without a file. Throws UsageError if others can read the file, or if its content is invalid. */
export async function readContexts(folder: string): Promise<Contexts> {
  const file = contextFile(folder)
  let text: string
  try {
    await assertPrivate(folder, file)
    text = await readFile(file, 'utf8')
  } catch (cause) {
    if (cause instanceof UsageError) throw cause
    const { code = 'no file' } = cause as NodeJS.ErrnoException // a cast: the file system throws no other errors
    if (code === 'ENOENT' || code === 'ENOTDIR') return noContexts
    throw new UsageError(`${file} cannot be read (${code})`, { cause })
  }
  return contextsIn(text, file)
}

/** Permissions of others that the folder and the file must not have. */
const forbidden = { folder: 0o022, file: 0o077 } as const

async function assertPrivate(folder: string, file: string): Promise<void> {
  // Windows has no such permissions: the folder belongs to the user.
  if (process.platform === 'win32') return
  if (((await stat(folder)).mode & forbidden.folder) !== 0) throw new UsageError(`other users can write to ${folder}: run "chmod go-w ${folder}"`)
  if (((await stat(file)).mode & forbidden.file) === 0) return
  throw new UsageError(`other users can read ${file}, which contains credentials: run "chmod 600 ${file}", and sign in again if others use this machine`)
}

/** Parses the file. Errors do not quote it, since it contains credentials. */
async function contextsIn(text: string, file: string): Promise<Contexts> {
  // Loaded when needed: it takes a sixth of a command's start.
  const { parseDocument } = await import('yaml')
  const document = parseDocument(text)
  const [fault] = document.errors
  if (fault !== undefined) throw new UsageError(`${file}, line ${fault.linePos?.[0].line ?? 1}: this is not YAML (${fault.code})`)
  const content: unknown = document.toJS()
  if (content === null || content === undefined) return noContexts
  const contexts = isJson(content) ? (content['contexts'] ?? []) : undefined
  if (!isJson(content) || !Array.isArray(contexts)) throw new UsageError(`${file} needs a list "contexts"`)
  return {
    current: textOf(content['current']),
    contexts: contexts.map((one: unknown, at) => {
      if (!isJson(one) || textOf(one['name']) === '' || !URL.canParse(textOf(one['server'])))
        throw new UsageError(`${file}: the context at ${at + 1} needs a name and a server`)
      return contextOf(one)
    }),
  }
}

function contextOf(one: Json): LoginContext {
  const text = (name: string): string => textOf(one[name])
  const tokens = Array.isArray(one['accessTokens']) ? one['accessTokens'].filter(isJson) : []
  return {
    name: text('name'),
    server: text('server'),
    registry: text('registry'),
    organisation: text('organisation'),
    caFile: text('caFile'),
    identity: text('identity'),
    source: sourceOf(one),
    refreshToken: text('refreshToken'),
    accessTokens: tokens.map((token) => ({ audience: textOf(token['audience']), token: textOf(token['token']), expires: textOf(token['expires']) })),
  }
}

function sourceOf({ tokenFile, tokenEnv, github }: Json): ExternalSource | undefined {
  if (textOf(tokenFile) !== '') return { tokenFile: textOf(tokenFile) }
  if (textOf(tokenEnv) !== '') return { tokenEnv: textOf(tokenEnv) }
  return github === true ? { github } : undefined
}

async function fileText({ current, contexts }: Contexts): Promise<string> {
  const { stringify } = await import('yaml')
  const written = contexts.map(({ source, ...context }) => {
    const entries = Object.entries({ ...context, ...source }).filter(([, value]) => value !== '' && !(Array.isArray(value) && value.length === 0))
    return Object.fromEntries(entries)
  })
  return header + stringify({ ...(current === '' ? {} : { current }), contexts: written }, { lineWidth: 0 })
}

/**
 * Changes the contexts while no other command can change them. `change` gets the newest content, and returns the new content and a result.
 * The file is replaced as a whole. Throws the errors of readContexts and of `change`, and UsageError if the folder cannot be written.
 */
export async function changeContexts<T>(folder: string, change: (contexts: Contexts) => Promise<{ contexts: Contexts; result: T }>): Promise<T> {
  const unlock = await locked(folder)
  try {
    const before = await readContexts(folder)
    const { contexts, result } = await change(before)
    if (contexts !== before) await replaceFile(contextFile(folder), { text: await fileText(contexts), mode: 0o600 })
    return result
  } finally {
    unlock()
  }
}

async function locked(folder: string): Promise<() => void> {
  const deadline = performance.now() + lockWait.maxMs
  for (;;) {
    const unlock = await lockIn(folder)
    if (unlock !== undefined) return unlock
    if (performance.now() > deadline) throw new UsageError(`another taproot command uses ${contextFile(folder)}: try again`)
    await delay(lockWait.stepMs)
  }
}

async function lockIn(folder: string): Promise<(() => void) | undefined> {
  try {
    await mkdir(folder, { recursive: true, mode: 0o700 })
    return lockFile(join(folder, 'lock'))
  } catch (cause) {
    throw new UsageError(`cannot write to ${folder}, where sign-ins are kept`, { cause })
  }
}

/**
 * Replaces a file as a whole: after a crash it has the old content or the new one. A symbolic link stays one. `mode` are the permissions of
 * the file.
 */
export async function replaceFile(path: string, { text, mode }: { text: string; mode: number }): Promise<void> {
  const target = await realpath(path).catch(() => path)
  const temporary = join(dirname(target), `.${randomBytes(8).toString('hex')}.new`)
  try {
    const file = await open(temporary, 'wx', mode)
    try {
      await file.writeFile(text)
      await file.sync()
    } finally {
      await file.close()
    }
    await rename(temporary, target)
  } catch (error) {
    await rm(temporary, { force: true })
    throw error
  }
}

/** Returns the contexts with this one in the place of the one with its name, or added. */
export function withContext(contexts: Contexts, context: LoginContext): Contexts {
  const known = contextNamed(contexts, context.name) !== undefined
  return {
    ...contexts,
    contexts: known ? contexts.contexts.map((other) => (other.name === context.name ? context : other)) : [...contexts.contexts, context],
  }
}
