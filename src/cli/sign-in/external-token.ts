import { readFile } from 'node:fs/promises'
import type { Environment } from '../../config/environment.ts'
import { ClientError, isJson, textOf } from '../client/client-error.ts'
import { UsageError } from '../exit-codes.ts'
import type { ExternalSource } from './contexts.ts'

const timeoutMs = 30_000

/** Variables of a job of GitHub Actions with the permission `id-token: write`. */
const github = { url: 'ACTIONS_ID_TOKEN_REQUEST_URL', token: 'ACTIONS_ID_TOKEN_REQUEST_TOKEN' } as const

/**
 * Returns a token of another issuer. GitHub Actions issues one for `audience`. Throws UsageError if there is none, and ClientError if GitHub
 * does not answer.
 */
export async function externalToken(source: ExternalSource, { env, audience }: { env: Environment; audience: string }): Promise<string> {
  if ('github' in source) return githubToken(env, audience)
  const [text, place] = 'tokenFile' in source ? [await textIn(source.tokenFile), source.tokenFile] : [env[source.tokenEnv] ?? '', source.tokenEnv]
  if (!/^[\x21-\x7e]+$/.test(text.trim())) throw new UsageError(`${place} contains no token`)
  return text.trim()
}

async function textIn(file: string): Promise<string> {
  try {
    return await readFile(file, 'utf8')
  } catch (cause) {
    const { code = 'no file' } = cause as NodeJS.ErrnoException // a cast: the file system throws no other errors
    throw new UsageError(`--token-file: ${file} cannot be read (${code})`, { cause })
  }
}

async function githubToken(env: Environment, audience: string): Promise<string> {
  const [address, token] = [env[github.url] ?? '', env[github.token] ?? '']
  const url = URL.parse(address)
  if (url === null || token === '') throw new UsageError(`--github needs a job of GitHub Actions with "permissions: id-token: write": ${github.url} is not set`)
  url.searchParams.set('audience', audience)
  let answer: Response
  let content: unknown
  try {
    answer = await fetch(url, { headers: { authorization: `Bearer ${token}` }, redirect: 'error', signal: AbortSignal.timeout(timeoutMs) })
    content = await answer.json()
  } catch (cause) {
    throw new ClientError(`GitHub Actions issued no token: ${url.origin} gave no valid answer`, {}, cause)
  }
  const value = isJson(content) ? textOf(content['value']) : ''
  if (!answer.ok || value === '') throw new ClientError(`GitHub Actions issued no token: ${url.origin} answered ${answer.status}`)
  return value
}
