import type { Clock } from '../../base/runtime.ts'
import { TenantSlots } from './tenant-slots.ts'
import { untilAborted } from '../../base/timing.ts'
import { createIssuerSource } from './issuer-source.ts'
import type { ConfiguredIssuer } from './issuer-source.ts'
import { normalizeIssuer } from './issuer-name.ts'
import type { KeySet } from '../keys/key-set.ts'
import type { SafeFetch } from '../safe-fetch.ts'
import { TokenError, unknownIssuer } from '../access-tokens/token-error.ts'

/** The issuers that may be contacted in addition to the configured ones. */
export interface IssuerScope {
  /** Issuers that the identity in question, or an identity provider, names exactly. */
  readonly named: readonly string[]
  /** The organisations that name these issuers. Their shares of memory and of concurrent fetches are used. Calls without organisations use one common share. */
  readonly tenants?: readonly string[]
}

/** The public keys of external issuers, found through their discovery documents. It contacts only issuers that the configuration or `scope.named` names. */
export interface IssuerKeys {
  /**
   * Returns the issuer's keys, at most an hour old, or at most a day if the issuer does not answer. Throws the signal's reason or a TokenError. The errors are
   * `unknown_issuer` (not allowed), `issuer_keys` (unusable documents) and `issuer_unavailable`. After a failed fetch, calls within 30 s throw the same
   * `issuer_keys` or `issuer_unavailable` at once.
   */
  keysFor(issuer: string, scope: IssuerScope, signal: AbortSignal): Promise<KeySet>
  /**
   * Returns the newest keys of the issuer for a token whose key is not in `seen`. Fetches them again, at most every 30 s per issuer. Throws like `keysFor`,
   * but not for a failed fetch.
   */
  refreshed(issuer: string, seen: KeySet, options: { readonly scope: IssuerScope; readonly signal: AbortSignal }): Promise<KeySet>
  /** True if the configuration names the issuer, so that a pattern may match it. */
  isConfigured(issuer: string): boolean
  /** Aborts running fetches. Resolves when they have ended. */
  close(): Promise<void>
}

/** The dependencies and limits of IssuerKeys. */
export interface IssuerKeysOptions {
  readonly fetch: SafeFetch
  readonly clock: Clock
  readonly configured: readonly ConfiguredIssuer[]
  /** Issuers that the configuration names only for its operators. They use no organisation's share, and patterns do not match them. */
  readonly kept?: readonly string[]
  /** Issuers inside this process, with functions that return their keys. Nothing is fetched for them. */
  readonly local?: ReadonlyMap<string, () => KeySet>
  /** Maximum time in milliseconds for fetching the discovery document and the keys together; 5000 by default. */
  readonly timeoutMs?: number
  /**
   * Maximum number of issuers in memory that the configuration does not name, counted once for each organisation that uses them; 1000 by default. Above it,
   * the organisation with the most loses the one that it has not used for the longest time.
   */
  readonly limit?: number
  /**
   * Maximum number of concurrent fetches from issuers that the configuration does not name: 10 per organisation and 100 in total by default (see TenantSlots).
   * Above it, an issuer counts as unavailable.
   */
  readonly flightLimit?: number
}

const freshMs = 3_600_000
const staleMs = 24 * 3_600_000
const retryMs = 30_000

/**
 * The state of one issuer. `keys` is absent until the first fetch succeeds. `failure` is set while the last fetch failed. `flight` is the fetch under way, at
 * most one. The next fetch starts at least 30 s later, unless the keys are more than an hour old.
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

/** Maximum number of organisations for which one use of an issuer is recorded. */
const maxNoted = 100

/**
 * The issuers that organisations name, each kept in memory for the organisations that use it. A shared issuer stays until the last organisation has released
 * it. An organisation cannot evict another's issuers while it holds more issuers than the other.
 */
class NamedIssuers {
  readonly #limit: number
  readonly #states = new Map<string, { readonly state: IssuerState; holders: number }>()
  /** The issuers of each organisation. Both the organisations and their issuers are in the order of their last use. */
  readonly #shares = new Map<string, Set<string>>()
  #held = 0

  constructor(limit: number) {
    this.#limit = limit
  }

  get(issuer: string): IssuerState | undefined {
    return this.#states.get(issuer)?.state
  }

  /** Records that `tenants` use the issuer, and keeps its state for them. */
  use(issuer: string, state: IssuerState, tenants: readonly string[]): void {
    for (const tenant of tenants.slice(0, maxNoted)) {
      const share = this.#shares.get(tenant) ?? new Set<string>()
      this.#shares.delete(tenant)
      this.#shares.set(tenant, share)
      if (!share.delete(issuer)) this.#hold(issuer, state)
      share.add(issuer)
    }
    while (this.#held > this.#limit) this.#forgetOne()
  }

  #hold(issuer: string, state: IssuerState): void {
    const entry = this.#states.get(issuer) ?? { state, holders: 0 }
    entry.holders += 1
    this.#states.set(issuer, entry)
    this.#held += 1
  }

  #forgetOne(): void {
    let [largest] = this.#shares
    for (const share of this.#shares) if (share[1].size > (largest?.[1].size ?? 0)) largest = share
    if (largest === undefined) return
    const [tenant, issuers] = largest
    const [oldest = ''] = issuers
    issuers.delete(oldest)
    if (issuers.size === 0) this.#shares.delete(tenant)
    this.#held -= 1
    const entry = this.#states.get(oldest)
    if (entry === undefined) return
    entry.holders -= 1
    if (entry.holders === 0) this.#states.delete(oldest)
  }
}

/** The organisations of a call that names none. All such calls share one entry. */
const noTenant = ['']

/** Creates IssuerKeys. */
export function createIssuerKeys(options: IssuerKeysOptions): IssuerKeys {
  return new FetchedIssuerKeys(options)
}

class FetchedIssuerKeys implements IssuerKeys {
  readonly #clock: Clock
  readonly #timeoutMs: number
  readonly #configured: ReadonlyMap<string, ConfiguredIssuer>
  readonly #local: ReadonlyMap<string, () => KeySet>
  readonly #fetchKeys: ReturnType<typeof createIssuerSource>
  /** Issuers of the configuration, which are neither evicted nor counted. */
  readonly #configuredStates: ReadonlyMap<string, IssuerState>
  /** Issuers that organisations name. */
  readonly #named: NamedIssuers
  readonly #namedSlots: TenantSlots
  readonly #flights = new Set<Promise<void>>()
  readonly #closing = new AbortController()

  constructor(options: IssuerKeysOptions) {
    this.#clock = options.clock
    const all = options.flightLimit ?? 100
    this.#namedSlots = new TenantSlots({ each: Math.min(10, all), all })
    this.#named = new NamedIssuers(options.limit ?? 1000)
    this.#timeoutMs = options.timeoutMs ?? 5000
    this.#configured = new Map(options.configured.map((row) => [normalizeIssuer(row.issuer), row]))
    this.#local = options.local ?? new Map<string, () => KeySet>()
    this.#fetchKeys = createIssuerSource(options.fetch)
    const apart = [...this.#configured.keys(), ...(options.kept ?? []).map(normalizeIssuer)]
    this.#configuredStates = new Map(apart.map((issuer) => [issuer, emptyState()]))
  }

  isConfigured(name: string): boolean {
    const issuer = normalizeIssuer(name)
    return this.#configured.has(issuer) || this.#local.has(issuer)
  }

  async keysFor(name: string, scope: IssuerScope, signal: AbortSignal): Promise<KeySet> {
    const issuer = this.#allowed(name, scope)
    const local = this.#local.get(issuer)
    if (local !== undefined) return local()
    const state = this.#stateOf(issuer, scope)
    const now = this.#clock.now()
    if (state.keys !== undefined && now - state.fetchedAtMs < freshMs) return state.keys
    const failedLately = state.failure !== undefined && now - state.triedAtMs < retryMs
    if (!failedLately) await untilAborted(this.#fly(issuer, state, scope), signal)
    return this.#usable(state)
  }

  async refreshed(name: string, seen: KeySet, { scope, signal }: { readonly scope: IssuerScope; readonly signal: AbortSignal }): Promise<KeySet> {
    const issuer = this.#allowed(name, scope)
    const local = this.#local.get(issuer)
    if (local !== undefined) return local()
    const state = this.#stateOf(issuer, scope)
    const triedLately = this.#clock.now() - state.triedAtMs < retryMs
    const nothingNewer = state.keys === undefined || state.keys.id === seen.id
    if (nothingNewer && !triedLately) await untilAborted(this.#fly(issuer, state, scope), signal)
    return this.#usable(state)
  }

  async close(): Promise<void> {
    this.#closing.abort()
    await Promise.all(this.#flights)
  }

  #allowed(name: string, scope: IssuerScope): string {
    const issuer = normalizeIssuer(name)
    if (this.isConfigured(issuer) || scope.named.some((named) => normalizeIssuer(named) === issuer)) return issuer
    throw unknownIssuer(issuer)
  }

  /** Returns the state of an issuer. An issuer from which nothing was fetched yet is not kept, so merely naming it evicts no other one. */
  #stateOf(issuer: string, { tenants = noTenant }: IssuerScope): IssuerState {
    const configured = this.#configuredStates.get(issuer)
    if (configured !== undefined) return configured
    const named = this.#named.get(issuer)
    if (named === undefined) return emptyState()
    this.#named.use(issuer, named, tenants)
    return named
  }

  /** Starts a fetch, or joins the one under way. Does nothing if too many fetches run for these organisations. Never rejects. */
  #fly(issuer: string, state: IssuerState, { tenants = noTenant }: IssuerScope): Promise<void> {
    if (state.flight !== undefined) return state.flight
    const named = !this.#configuredStates.has(issuer)
    const release = named ? this.#namedSlots.take(tenants) : undefined
    if (named) {
      if (release === undefined) return Promise.resolve()
      this.#named.use(issuer, state, tenants)
    }
    const flight = this.#fetchInto(issuer, state).finally(() => {
      this.#flights.delete(flight)
      release?.()
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
