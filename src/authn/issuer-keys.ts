import type { Clock } from '../core/runtime.ts'
import { untilAborted } from '../core/until-aborted.ts'
import { createBoundedMap } from './bounded-map.ts'
import type { BoundedMap } from './bounded-map.ts'
import { createIssuerSource } from './issuer-source.ts'
import type { ConfiguredIssuer } from './issuer-source.ts'
import { normalizeIssuer } from './issuer-name.ts'
import type { KeySet } from './key-set.ts'
import type { SafeFetch } from './safe-fetch.ts'
import { TokenError } from './token-error.ts'

/** Who may be contacted besides the configured issuers. */
export interface IssuerScope {
  /** Issuers that the identity in question, or a provider, names exactly. */
  readonly named: readonly string[]
}

/** The keys of external issuers, by discovery. Only issuers that configuration or `scope.named` names are ever contacted. */
export interface IssuerKeys {
  /**
   * The issuer's keys, an hour old at most, or a day where it does not answer. Throws TokenError `unknown_issuer` (not allowed), `issuer_keys` (its documents are not
   * usable) or `issuer_unavailable`, the latter two at once for 30 s after a failed try; or the signal's reason.
   */
  keysFor(issuer: string, scope: IssuerScope, signal: AbortSignal): Promise<KeySet>
  /** For a token whose key `seen` lacks: fetches again, at most every 30 s per issuer, and returns what is newest. Throws as `keysFor`, but for a failed fetch. */
  refreshed(issuer: string, seen: KeySet, options: { readonly scope: IssuerScope; readonly signal: AbortSignal }): Promise<KeySet>
  /** True where configuration names the issuer, so that a pattern may match it. */
  isConfigured(issuer: string): boolean
  /** Ends running fetches and waits for them. */
  close(): Promise<void>
}

/** What issuer keys are made of. */
export interface IssuerKeysOptions {
  readonly fetch: SafeFetch
  readonly clock: Clock
  readonly configured: readonly ConfiguredIssuer[]
  /** Issuers inside this process: their keys are asked for, never fetched. */
  readonly local?: ReadonlyMap<string, () => KeySet>
  /** For discovery and keys together; 5000 by default. */
  readonly timeoutMs?: number
  /** Issuers remembered at most besides the configured ones; 1000 by default. */
  readonly limit?: number
  /** Issuers fetched from at once at most besides the configured ones, further ones count as unavailable; 100 by default, `limit` at most. */
  readonly flightLimit?: number
}

const freshMs = 3_600_000
const staleMs = 24 * 3_600_000
const retryMs = 30_000

/**
 * One issuer. `keys` is absent until the first fetch succeeded; `failure` is set while the last fetch failed; `flight` while one runs.
 * At most one flight per issuer; after any flight the next one starts 30 s later at the earliest, unless the keys ran out of their hour.
 */
interface IssuerState {
  keys: KeySet | undefined
  fetchedAtMs: number
  triedAtMs: number
  failure: TokenError | undefined
  flight: Promise<void> | undefined
}

function emptyState(): IssuerState {
  return { keys: undefined, fetchedAtMs: -Infinity, triedAtMs: -Infinity, failure: undefined, flight: undefined }
}

/** See IssuerKeys. */
export function createIssuerKeys(options: IssuerKeysOptions): IssuerKeys {
  return new FetchedIssuerKeys(options)
}

class FetchedIssuerKeys implements IssuerKeys {
  readonly #clock: Clock
  readonly #flightLimit: number
  readonly #timeoutMs: number
  readonly #configured: ReadonlyMap<string, ConfiguredIssuer>
  readonly #local: ReadonlyMap<string, () => KeySet>
  readonly #fetchKeys: ReturnType<typeof createIssuerSource>
  /** Nobody but configuration adds to these, so they are neither forgotten nor counted. */
  readonly #configuredStates: ReadonlyMap<string, IssuerState>
  /** Issuers that tenants name. */
  readonly #namedStates: BoundedMap<IssuerState>
  readonly #flights = new Set<Promise<void>>()
  #namedFlights = 0
  readonly #closing = new AbortController()

  constructor(options: IssuerKeysOptions) {
    this.#clock = options.clock
    const limit = options.limit ?? 1000
    this.#flightLimit = Math.min(limit, options.flightLimit ?? 100)
    this.#timeoutMs = options.timeoutMs ?? 5000
    this.#configured = new Map(options.configured.map((row) => [normalizeIssuer(row.issuer), row]))
    this.#local = options.local ?? new Map<string, () => KeySet>()
    this.#fetchKeys = createIssuerSource(options.fetch)
    this.#configuredStates = new Map([...this.#configured.keys()].map((issuer) => [issuer, emptyState()]))
    this.#namedStates = createBoundedMap(limit)
  }

  isConfigured(name: string): boolean {
    const issuer = normalizeIssuer(name)
    return this.#configured.has(issuer) || this.#local.has(issuer)
  }

  async keysFor(name: string, scope: IssuerScope, signal: AbortSignal): Promise<KeySet> {
    const issuer = this.#allowed(name, scope)
    const local = this.#local.get(issuer)
    if (local !== undefined) return local()
    const state = this.#stateOf(issuer)
    const now = this.#clock.now()
    if (state.keys !== undefined && now - state.fetchedAtMs < freshMs) return state.keys
    const failedLately = state.failure !== undefined && now - state.triedAtMs < retryMs
    if (!failedLately) await untilAborted(this.#fly(issuer, state), signal)
    return this.#usable(state)
  }

  async refreshed(name: string, seen: KeySet, { scope, signal }: { readonly scope: IssuerScope; readonly signal: AbortSignal }): Promise<KeySet> {
    const issuer = this.#allowed(name, scope)
    const local = this.#local.get(issuer)
    if (local !== undefined) return local()
    const state = this.#stateOf(issuer)
    const triedLately = this.#clock.now() - state.triedAtMs < retryMs
    const nothingNewer = state.keys === undefined || state.keys.id === seen.id
    if (nothingNewer && !triedLately) await untilAborted(this.#fly(issuer, state), signal)
    return this.#usable(state)
  }

  async close(): Promise<void> {
    this.#closing.abort()
    await Promise.all(this.#flights)
  }

  #allowed(name: string, scope: IssuerScope): string {
    const issuer = normalizeIssuer(name)
    if (this.isConfigured(issuer) || scope.named.some((named) => normalizeIssuer(named) === issuer)) return issuer
    throw new TokenError('unknown_issuer')
  }

  /** An issuer that was never fetched from is not remembered yet: being asked for pushes no other one out. */
  #stateOf(issuer: string): IssuerState {
    return this.#configuredStates.get(issuer) ?? this.#namedStates.get(issuer) ?? emptyState()
  }

  /** Starts a fetch or joins the one that runs; does nothing where too many of the named issuers' run. Never rejects. */
  #fly(issuer: string, state: IssuerState): Promise<void> {
    if (state.flight !== undefined) return state.flight
    const named = !this.#configuredStates.has(issuer)
    if (named) {
      if (this.#namedFlights >= this.#flightLimit) return Promise.resolve()
      this.#namedFlights += 1
      this.#namedStates.set(issuer, state)
    }
    const flight = this.#fetchInto(issuer, state).finally(() => {
      this.#flights.delete(flight)
      if (named) this.#namedFlights -= 1
    })
    this.#flights.add(flight)
    state.flight = flight
    return flight
  }

  async #fetchInto(issuer: string, state: IssuerState): Promise<void> {
    const signal = AbortSignal.any([this.#closing.signal, AbortSignal.timeout(this.#timeoutMs)])
    try {
      state.keys = await this.#fetchKeys(this.#configured.get(issuer) ?? { issuer }, signal)
      state.fetchedAtMs = this.#clock.now()
      state.failure = undefined
    } catch (error) {
      state.failure = error instanceof TokenError ? error : new TokenError('issuer_unavailable', error)
    } finally {
      state.triedAtMs = this.#clock.now()
      state.flight = undefined
    }
  }

  #usable(state: IssuerState): KeySet {
    if (state.keys !== undefined && this.#clock.now() - state.fetchedAtMs < staleMs) return state.keys
    throw state.failure ?? new TokenError('issuer_unavailable')
  }
}
