import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { timingSafeEqual } from 'node:crypto'
import { randomHex, type Random } from '../../base/runtime.ts'
import type { Environment } from '../../config/environment.ts'
import { ClientError } from '../client/client-error.ts'

/** The tokens of a sign-in. The refresh token is empty if there is none. */
export interface SignedIn {
  readonly accessToken: string
  readonly refreshToken: string
}

/** A sign-in in a browser of this machine. */
export interface BrowserSignIn {
  readonly server: string
  /** Name of a verified organisation, or uid of an identity provider. */
  readonly organisation: string
  readonly audiences: readonly string[]
  readonly random: Random
  /** Opens the URL in a browser. */
  readonly openUrl: (url: string) => void
}

/** Maximum time until the browser returns, in milliseconds. Each step of the server takes at most ten minutes. */
const timeoutMs = 10 * 60_000
/** Maximum time until the browser has loaded the last page, in milliseconds. */
const lastPageMs = 3_000

const callbackPath = '/callback'
const pages = {
  '/signed-in': 'You are signed in. You can close this page.',
  '/refused': 'You are not signed in. The terminal says why.',
} as const satisfies Readonly<Record<string, string>>

/**
 * Signs a person in with a browser. The tokens come back to a port on loopback, with a `state` that only this command knows
 * (docs/spec/tokens.md#browser-sign-in). Rejects with ClientError.
 */
export async function browserLogin({ server, organisation, audiences, random, openUrl }: BrowserSignIn): Promise<SignedIn> {
  const state = randomHex(random, 32)
  const answered = Promise.withResolvers<URLSearchParams>()
  const shown = Promise.withResolvers<void>()
  const web = createServer((request, response) => {
    const url = new URL(request.url ?? '/', 'http://127.0.0.1')
    if (request.method === 'GET' && url.pathname === callbackPath && isSame(url.searchParams.get('state') ?? '', state)) {
      answered.resolve(url.searchParams)
      // The last page has no tokens in its address.
      response.writeHead(303, { ...headers, location: url.searchParams.has('error') ? '/refused' : '/signed-in' }).end()
      return
    }
    const page = Object.entries(pages).find(([path]) => path === url.pathname)?.[1]
    sendPage(response, page === undefined ? 404 : 200, page ?? 'There is no such page.')
    if (page !== undefined) response.once('close', () => shown.resolve())
  })
  web.listen(0, '127.0.0.1')
  await once(web, 'listening')
  const { port } = web.address() as AddressInfo // a cast: a TCP server
  const timer = setTimeout(() => answered.reject(new ClientError('the browser did not return within ten minutes: sign in again')), timeoutMs)
  try {
    const redirect = new URL(`http://127.0.0.1:${port}${callbackPath}`)
    redirect.searchParams.set('state', state)
    const query = { exit: 'redirect', redirect: redirect.href, idp_id: organisation, audience: audiences.join(','), create_refresh_token: 'true' }
    openUrl(`${server}/oauth?${new URLSearchParams(query).toString()}`)
    const values = await answered.promise
    await Promise.race([shown.promise, new Promise((resolve) => setTimeout(resolve, lastPageMs).unref())])
    return tokensIn(values)
  } finally {
    clearTimeout(timer)
    web.close()
    web.closeAllConnections()
  }
}

function isSame(text: string, other: string): boolean {
  return text.length === other.length && timingSafeEqual(Buffer.from(text), Buffer.from(other))
}

/** Headers of all answers: nothing keeps or passes on an address with tokens. */
const headers = {
  'content-type': 'text/html; charset=utf-8',
  'cache-control': 'no-store',
  'content-security-policy': "default-src 'none'",
  'referrer-policy': 'no-referrer',
  connection: 'close',
} as const

function sendPage(response: ServerResponse, status: number, text: string): void {
  response.writeHead(status, headers).end(`<!doctype html><meta charset="utf-8"><title>Taproot</title><p>${text}</p>\n`)
}

function tokensIn(values: URLSearchParams): SignedIn {
  const refusal = values.get('error')
  if (refusal !== null) throw new ClientError(`the sign-in was refused: ${refusal}`)
  const accessToken = values.get('token') ?? ''
  if (accessToken === '') throw new ClientError('the browser returned without a token: sign in again')
  return { accessToken, refreshToken: values.get('refresh_token') ?? '' }
}

/** The machine, as far as it decides whether a browser can be opened. */
export interface Desktop {
  readonly platform: NodeJS.Platform
  readonly env: Environment
}

/** Programs that open a URL, by platform. */
const openers: Readonly<Partial<Record<NodeJS.Platform, readonly [string, ...string[]]>>> = {
  darwin: ['open'],
  win32: ['rundll32', 'url.dll,FileProtocolHandler'],
}

/** Returns true if a browser can be opened for the person: not over SSH, and on Linux only with a display or BROWSER. */
export function hasBrowser({ platform, env }: Desktop): boolean {
  const isSet = (name: string): boolean => (env[name] ?? '') !== ''
  if (isSet('BROWSER')) return true
  if (isSet('SSH_CONNECTION')) return false
  return openers[platform] !== undefined || isSet('DISPLAY') || isSet('WAYLAND_DISPLAY')
}

/** Opens a URL with the program in BROWSER, or the one of the platform. Calls `failed` if there is none. */
export function openBrowser(url: string, { platform, env }: Desktop, failed: () => void): void {
  const own = (env['BROWSER'] ?? '').trim()
  const [command, ...args] = own === '' ? (openers[platform] ?? ['xdg-open']) : ([own] as const)
  const child = spawn(command, [...args, url], { stdio: 'ignore', detached: true })
  child.once('error', failed)
  child.unref()
}
