import { RecentMap } from '../../../base/recent-map.ts'
import type { Clock } from '../../../base/runtime.ts'
import { UpstreamError } from '../upstream.ts'

/** Tokens that are kept. */
const maxTokens = 2000
/** The life of a token whose issuer does not say it (distribution token specification). */
const defaultLifeSeconds = 60
/** A token is used for this part of its life. */
const usedPart = 0.8

/** The challenge of a registry in `WWW-Authenticate`. */
export type Challenge =
  { readonly scheme: 'none' } | { readonly scheme: 'basic' } | { readonly scheme: 'bearer'; readonly realm: string; readonly service?: string }

/** An account of the registry. */
export interface RegistryAccount {
  readonly username: string
  readonly password: string
}

interface RegistryToken {
  readonly value: string
  readonly goodUntil: number
}

/** How tokens are fetched: GET of a URL, with or without Basic credentials; resolves with the JSON of a 200, else rejects with UpstreamError. */
export type FetchToken = (url: string, authorization: string | undefined) => Promise<unknown>

/**
 * What a registry wants to see before it answers: nothing, Basic credentials, or a Bearer token for each scope (distribution token specification). What it asks
 * for is learned from its first 401.
 */
export class RegistryCredentials {
  readonly #account: (() => RegistryAccount) | undefined
  readonly #fetchToken: FetchToken
  readonly #clock: Clock
  readonly #tokens = new RecentMap<string, { readonly token: Promise<RegistryToken> }>(maxTokens)
  #challenge: Challenge | undefined

  /** `account` is asked for at each use. */
  constructor(account: (() => RegistryAccount) | undefined, { fetchToken, clock }: { fetchToken: FetchToken; clock: Clock }) {
    this.#account = account
    this.#fetchToken = fetchToken
    this.#clock = clock
  }

  /** False until the registry has stated what it requires. */
  get known(): boolean {
    return this.#challenge !== undefined
  }

  /** Takes what a registry answered: a 401 with its challenge, or anything else. */
  learn(status: number, header: string | undefined): void {
    if (status === 401) this.#challenge = parseChallenge(header)
    else this.#challenge ??= { scheme: 'none' }
  }

  /** The header `Authorization` for these scopes; undefined where none is needed. A token comes from the issuer where none is kept. */
  async authorization(scopes: readonly string[]): Promise<string | undefined> {
    const challenge = this.#challenge
    if (challenge === undefined || challenge.scheme === 'none') return undefined
    if (challenge.scheme === 'basic') return this.#basic()
    const key = scopes.join(' ')
    const kept = this.#tokens.get(key)
    const good = kept && (await kept.token.catch(() => undefined))
    if (good !== undefined && good.goodUntil > this.#clock.now()) return `Bearer ${good.value}`
    let next = this.#tokens.get(key)
    // The first request fetches the token for all.
    if (next === undefined || next === kept) {
      next = { token: this.#fetch(challenge, scopes) }
      this.#tokens.set(key, next)
    }
    return `Bearer ${(await next.token).value}`
  }

  /** Forgets the token for these scopes, where it is still the one of this header: the registry does not take it. */
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
    const answer = (await this.#fetchToken(url.href, this.#basic())) as { token?: unknown; access_token?: unknown; expires_in?: unknown } | null // a cast of the issuer's JSON
    const value = answer?.token ?? answer?.access_token
    if (typeof value !== 'string' || !/^[\x21-\x7e]+$/.test(value))
      throw new UpstreamError('unavailable', 'the token endpoint of the upstream returned no token')
    const seconds = typeof answer?.expires_in === 'number' && answer.expires_in > 0 ? answer.expires_in : defaultLifeSeconds
    return { value, goodUntil: startedAt + seconds * usedPart * 1000 }
  }
}

/** The challenge of a 401: Bearer where it is offered, else Basic. */
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
