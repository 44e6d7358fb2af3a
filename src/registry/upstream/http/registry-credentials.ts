import { RecentMap } from '../../../base/recent-map.ts'
import type { Clock } from '../../../base/runtime.ts'
import { UpstreamError } from '../upstream.ts'

/** Maximum number of cached tokens. */
const maxTokens = 2000
/** Lifetime of a token, in seconds, if its issuer does not state one (distribution token specification). */
const defaultLifeSeconds = 60
/** A token is used for this fraction of its lifetime. */
const usedPart = 0.8

/** A registry's challenge in `WWW-Authenticate`. */
export type Challenge =
  { readonly scheme: 'none' } | { readonly scheme: 'basic' } | { readonly scheme: 'bearer'; readonly realm: string; readonly service?: string }

/** User name and password for the registry. */
export interface RegistryAccount {
  readonly username: string
  readonly password: string
}

interface RegistryToken {
  readonly value: string
  readonly goodUntil: number
}

/**
 * Fetches a token by GET of a URL, with or without Basic credentials. Resolves with the JSON of a 200 response, otherwise rejects with
 * UpstreamError.
 */
export type FetchToken = (url: string, authorization: string | undefined) => Promise<unknown>

/**
 * Credentials for a registry: none, Basic, or a Bearer token for each set of scopes (distribution token specification). Its first 401
 * shows which kind it requires.
 */
export class RegistryCredentials {
  readonly #account: (() => RegistryAccount) | undefined
  readonly #fetchToken: FetchToken
  readonly #clock: Clock
  readonly #tokens = new RecentMap<string, { readonly token: Promise<RegistryToken> }>(maxTokens)
  #challenge: Challenge | undefined

  /** `account` is called for each use. */
  constructor(account: (() => RegistryAccount) | undefined, { fetchToken, clock }: { fetchToken: FetchToken; clock: Clock }) {
    this.#account = account
    this.#fetchToken = fetchToken
    this.#clock = clock
  }

  /** False until the registry has stated what it requires. */
  get known(): boolean {
    return this.#challenge !== undefined
  }

  /** Learns the required kind of credential from a response: a 401 with its challenge, or any other status. */
  learn(status: number, header: string | undefined): void {
    if (status === 401) this.#challenge = parseChallenge(header)
    else this.#challenge ??= { scheme: 'none' }
  }

  /** Returns the `Authorization` header for these scopes; undefined if none is required. Fetches a token if none is cached. */
  async authorization(scopes: readonly string[]): Promise<string | undefined> {
    const challenge = this.#challenge
    if (challenge === undefined || challenge.scheme === 'none') return undefined
    if (challenge.scheme === 'basic') return this.#basic()
    const key = scopes.join(' ')
    const kept = this.#tokens.get(key)
    const good = kept && (await kept.token.catch(() => undefined))
    if (good !== undefined && good.goodUntil > this.#clock.now()) return `Bearer ${good.value}`
    let next = this.#tokens.get(key)
    // The first request fetches the token for all that wait.
    if (next === undefined || next === kept) {
      next = { token: this.#fetch(challenge, scopes) }
      this.#tokens.set(key, next)
    }
    return `Bearer ${(await next.token).value}`
  }

  /** Removes the cached token for these scopes if it is the one in this header, because the registry rejected it. */
  async forget(scopes: readonly string[], authorization: string | undefined): Promise<void> {
    const key = scopes.join(' ')
    const kept = this.#tokens.get(key)
    const token = await kept?.token.catch(() => undefined)
    if (token !== undefined && `Bearer ${token.value}` === authorization && this.#tokens.get(key) === kept) this.#tokens.delete(key)
  }

  #basic(): string | undefined {
    const account = this.#account?.()
    return account && `Basic ${Buffer.from(`${account.username}:${account.password}`).toString('base64')}`
  }

  async #fetch(challenge: Challenge & { scheme: 'bearer' }, scopes: readonly string[]): Promise<RegistryToken> {
    const url = new URL(challenge.realm)
    if (challenge.service !== undefined) url.searchParams.set('service', challenge.service)
    for (const scope of scopes) url.searchParams.append('scope', scope)
    const account = this.#account?.()
    if (account !== undefined) url.searchParams.set('account', account.username)
    const startedAt = this.#clock.now()
    const answer = (await this.#fetchToken(url.href, this.#basic())) as { token?: unknown; access_token?: unknown; expires_in?: unknown } | null // a cast of unverified JSON from the issuer
    const value = answer?.token ?? answer?.access_token
    if (typeof value !== 'string' || !/^[\x21-\x7e]+$/.test(value))
      throw new UpstreamError('unavailable', 'the token endpoint of the upstream returned no token')
    const seconds = typeof answer?.expires_in === 'number' && answer.expires_in > 0 ? answer.expires_in : defaultLifeSeconds
    return { value, goodUntil: startedAt + seconds * usedPart * 1000 }
  }
}

/** Parses the challenge of a 401: Bearer if offered, otherwise Basic. */
export function parseChallenge(header: string | undefined): Challenge {
  const text = header ?? ''
  const bearer = /(?:^|,\s*)bearer\s+/i.exec(text)
  if (bearer === null) return { scheme: /(?:^|,\s*)basic\b/i.test(text) ? 'basic' : 'none' }
  const parameters = new Map<string, string>()
  for (const [, name = '', quoted, bare = ''] of text.slice(bearer.index + bearer[0].length).matchAll(/([a-z_]+)=(?:"((?:[^"\\]|\\.)*)"|([^\s,]+))/gi)) {
    if (!parameters.has(name.toLowerCase())) parameters.set(name.toLowerCase(), quoted?.replaceAll(/\\(.)/g, '$1') ?? bare)
  }
  const [realm, service] = [parameters.get('realm'), parameters.get('service')]
  if (realm === undefined || !URL.canParse(realm)) throw new UpstreamError('refused', 'the upstream requires a token, but sent no token endpoint')
  return { scheme: 'bearer', realm, ...(service !== undefined && { service }) }
}
