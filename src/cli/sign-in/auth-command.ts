import { mkdir, readFile, stat } from 'node:fs/promises'
import { homedir } from 'node:os'
import { join } from 'node:path'
import type { ClientContext } from '../client/client-command.ts'
import { isJson, type Json } from '../client/client-error.ts'
import { jsonText, yamlText } from '../client/output.ts'
import { UsageError } from '../exit-codes.ts'
import { factsText, readCaller } from '../whoami.ts'
import { contextFolder, contextNamed, readContexts, replaceFile } from './contexts.ts'
import { helperName } from './docker-credential.ts'
import { signInEnd, type SignInTools } from './login.ts'

/** Formats of the status. */
export type StatusFormat = 'table' | 'json' | 'yaml'

/** Prints which server the commands use, as whom, and until when. Rejects with ClientError. */
export async function authStatus(connection: ClientContext, format: StatusFormat): Promise<void> {
  const { client, server, source, context, token, output, clock } = connection
  const caller = await readCaller(client, await token())
  const signIn = { context: context?.name ?? '', server, credential: source, signedInUntil: context === undefined ? '' : (signInEnd(context) ?? '') }
  const facts: [string, string][] = [
    ['context', signIn.context],
    ['server', server],
    ['credential', source],
    ['signed in', signIn.signedInUntil === '' ? '' : `until ${signIn.signedInUntil}`],
  ]
  const shown = { ...signIn, ...caller }
  const text = { table: () => factsText(caller, clock.now(), facts), json: () => `${jsonText(shown)}\n`, yaml: () => yamlText(shown) }[format]()
  await output.write(await text)
}

/** Registers this program as credential helper in the configuration of Docker, for the registry host of a context. Rejects with UsageError. */
export async function configureDocker({ env, output }: SignInTools, options: { readonly registry?: string; readonly context?: string }): Promise<void> {
  const registry = options.registry ?? (await registryOf(env, options.context))
  const folder = env['DOCKER_CONFIG']?.trim() ?? ''
  const path = join(folder === '' ? join(env['HOME'] ?? homedir(), '.docker') : folder, 'config.json')
  const { content, mode } = await dockerConfig(path)
  const helpers = content['credHelpers'] ?? {}
  if (!isJson(helpers)) throw new UsageError(`${path}: credHelpers is not an object`)
  await mkdir(join(path, '..'), { recursive: true, mode: 0o700 })
  const changed = { ...content, credHelpers: { ...helpers, [registry]: helperName } }
  await replaceFile(path, { text: `${JSON.stringify(changed, undefined, '\t')}\n`, mode })
  await output.write(`${path} uses docker-credential-taproot for ${registry}.\n`)
}

async function registryOf(env: SignInTools['env'], name: string | undefined): Promise<string> {
  const contexts = await readContexts(contextFolder(env))
  const context = contextNamed(contexts, name ?? contexts.current)
  if (context === undefined)
    throw new UsageError(name === undefined ? 'not signed in: run "taproot login <server>" first, or set --registry' : `there is no context ${name}`)
  if (context.registry === '') throw new UsageError(`${context.server} names no registry host: set --registry`)
  return context.registry
}

/** Reads the configuration of Docker, which is empty without a file, and the permissions of its file. */
async function dockerConfig(path: string): Promise<{ content: Json; mode: number }> {
  let text: string
  let mode: number
  try {
    text = await readFile(path, 'utf8')
    mode = (await stat(path)).mode & 0o777
  } catch (cause) {
    const { code = 'no file' } = cause as NodeJS.ErrnoException // a cast: the file system throws no other errors
    if (code === 'ENOENT') return { content: {}, mode: 0o600 }
    throw new UsageError(`${path} cannot be read (${code})`, { cause })
  }
  try {
    const content: unknown = JSON.parse(text)
    if (isJson(content)) return { content, mode }
  } catch {
    // Reported below, without the text, which may contain passwords.
  }
  throw new UsageError(`${path} is not a JSON object: it was left as it is`)
}
