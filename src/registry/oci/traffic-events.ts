import type { Log } from '../../base/log.ts'
import { rootOf, type Uid } from '../../base/uid.ts'
import type { TrafficKind } from '../../engine/outbox.ts'
import type { Caller } from '../../engine/services.ts'
import { StoreError } from '../../store/store.ts'
import type { Traffic } from '../records/traffic.ts'

/** A request whose event is written after its response: a pull, a failed push, or a pull that violates a pull policy. */
export interface ReportedRequest extends Omit<Traffic, 'host' | 'displayName'> {
  readonly kind: TrafficKind
  readonly repo: Uid
  /** Undefined if the caller is anonymous. */
  readonly caller: Caller | undefined
  readonly timeMs: number
}

/** The members of a request by which it equals another one, and its time. */
export type RequestKey = Pick<
  ReportedRequest,
  'kind' | 'caller' | 'remoteAddress' | 'repo' | 'digest' | 'tag' | 'method' | 'error' | 'policyResults' | 'timeMs'
>

/** The other members of a request. */
export type RequestDetails = Omit<ReportedRequest, keyof RequestKey>

/** Outcome of an event: written; left out because an equal event was kept; or lost. */
export type TrafficOutcome = 'written' | 'repeated' | 'lost'

/** Dependencies and limits of TrafficEvents. */
export interface TrafficEventsOptions {
  /** Writes all events to the outbox, or none. Throws StoreError. After `too_large`, the events are written again in two halves. */
  readonly write: (requests: readonly ReportedRequest[], signal: AbortSignal) => Promise<void>
  readonly log: Log
  /** Called with the number of events that have this outcome. */
  readonly observe: (outcome: TrafficOutcome, count: number) => void
  /** Length of a time window, in milliseconds. Equal requests in the same window get only one event. If 0, each request gets one. */
  readonly windowMs: number
  /** Maximum number of events to keep between two flushes; default 1,000. Further ones are lost. */
  readonly capacity?: number
  /** Time between two flushes, in milliseconds; default 1,000. */
  readonly intervalMs?: number
}

/** Events that could not be written, and the error. */
interface Loss {
  readonly count: number
  readonly error: unknown
}

/** Maximum number of events in one transaction. */
const batchSize = 100
/** Timeout of one flush, in milliseconds. Events that are not written by then are lost. */
const flushTimeoutMs = 10_000
/** Maximum share of the kept events that may belong to one organisation. */
const organisationShare = 1 / 4
/** Maximum number of requests to remember in one window. If there are more, the next window begins early. */
const maxRemembered = 50_000

/** Texts of the results of pull policies. Most pulls of a manifest share them. */
const resultTexts = new WeakMap<NonNullable<ReportedRequest['policyResults']>, string>()

function textOf(results: NonNullable<ReportedRequest['policyResults']>): string {
  const known = resultTexts.get(results)
  if (known !== undefined) return known
  const made = results.map(({ policyId, mode, result }) => `${policyId} ${mode} ${result}`).join()
  resultTexts.set(results, made)
  return made
}

/**
 * Returns a text that is the same for equal requests: the caller, the action and its result. Anonymous callers are distinguished by
 * address.
 */
function equalityOf({ kind, caller, remoteAddress = '', repo, digest = '', tag = '', method = '', error, policyResults }: RequestKey): string {
  return `${kind} ${caller?.identity ?? remoteAddress} ${repo} ${digest} ${tag} ${method} ${error?.code ?? ''} ${policyResults === undefined ? '' : textOf(policyResults)}`
}

/**
 * Keeps the events of requests to the registry host in memory for a moment and writes them in batches, so that no request waits. Of equal
 * requests in a window, only the first gets an event (docs/spec/events.md#registry-traffic). Events are lost if there are too many, or if
 * the process ends before it wrote them. All outcomes are counted.
 */
export class TrafficEvents {
  readonly #options: Required<TrafficEventsOptions>
  #waiting: ReportedRequest[] = []
  readonly #waitingOf = new Map<Uid, number>()
  #seen = new Set<string>()
  #window = 0
  #timer: NodeJS.Timeout | undefined
  #flushing: Promise<void> = Promise.resolve()
  #closed = false

  constructor(options: TrafficEventsOptions) {
    this.#options = { capacity: 1_000, intervalMs: 1_000, ...options }
  }

  /** Records a request for its event. Asks for its details at once if it needs them: most pulls equal an earlier one. Never waits and never throws. */
  add(request: RequestKey, details: () => RequestDetails): void {
    const { capacity, intervalMs, observe } = this.#options
    const equality = this.#unseen(request)
    if (equality === undefined) {
      observe('repeated', 1)
      return
    }
    const root = rootOf(request.repo)
    const ofRoot = this.#waitingOf.get(root) ?? 0
    if (this.#closed || this.#waiting.length >= capacity || ofRoot >= capacity * organisationShare) {
      observe('lost', 1)
      return
    }
    // A request whose event was lost is not remembered, so that the next equal request gets an event.
    if (equality !== '') this.#seen.add(equality)
    this.#waitingOf.set(root, ofRoot + 1)
    this.#waiting.push({ ...request, ...details() })
    this.#timer ??= setTimeout(() => void this.flush(), intervalMs).unref()
  }

  /** Writes all pending events. Resolves when they are written or lost. */
  flush(): Promise<void> {
    clearTimeout(this.#timer)
    this.#timer = undefined
    this.#flushing = this.#flushing.then(() => this.#write())
    return this.#flushing
  }

  /** Writes all pending events. Later requests are ignored. */
  async close(): Promise<void> {
    this.#closed = true
    await this.flush()
  }

  /**
   * Returns the text by which to remember a request. Empty if there are no windows; undefined if an equal request in this window has an
   * event.
   */
  #unseen(request: RequestKey): string | undefined {
    const { windowMs } = this.#options
    if (windowMs === 0) return ''
    const window = Math.floor(request.timeMs / windowMs)
    if (window !== this.#window || this.#seen.size >= maxRemembered) {
      this.#window = window
      this.#seen = new Set()
    }
    const equality = equalityOf(request)
    return this.#seen.has(equality) ? undefined : equality
  }

  async #write(): Promise<void> {
    const requests = this.#waiting
    this.#waiting = []
    this.#waitingOf.clear()
    const signal = AbortSignal.timeout(flushTimeoutMs)
    const losses: Loss[] = []
    for (let at = 0; at < requests.length; at += batchSize) losses.push(...(await this.#writeBatch(requests.slice(at, at + batchSize), signal)))
    const lost = losses.reduce((sum, { count }) => sum + count, 0)
    if (lost > 0) this.#options.log.warn('events of registry traffic were lost', { count: lost, error: String(losses[0]?.error) })
  }

  /**
   * Writes a batch and returns the events that were lost. A failed batch does not affect other batches. An event that is too large does
   * not affect the rest of its batch.
   */
  async #writeBatch(batch: readonly ReportedRequest[], signal: AbortSignal): Promise<Loss[]> {
    const { write, observe } = this.#options
    try {
      await write(batch, signal)
      observe('written', batch.length)
      return []
    } catch (error) {
      if (error instanceof StoreError && error.kind === 'too_large' && batch.length > 1) {
        const half = Math.ceil(batch.length / 2)
        return [...(await this.#writeBatch(batch.slice(0, half), signal)), ...(await this.#writeBatch(batch.slice(half), signal))]
      }
      observe('lost', batch.length)
      return [{ count: batch.length, error }]
    }
  }
}
