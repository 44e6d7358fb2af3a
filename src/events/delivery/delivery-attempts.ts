import { fromBinary } from '@bufbuild/protobuf'
import { errorText } from '../../base/error-text.ts'
import { parentOf, rootOf, trustedUid, type Uid } from '../../base/uid.ts'
import type { EventLog, LoggedEvent } from '../../engine/log/event-log.ts'
import type { LogEntry } from '../../engine/log/log-index.ts'
import type { Services } from '../../engine/services.ts'
import { Subscription_Signing, type Subscription } from '../../gen/taproot/events/v2/subscriptions_pb.ts'
import { OutboxEventSchema, type OutboxEvent } from '../../gen/taproot/store/v1/envelope_pb.ts'
import { pauseReason } from '../records/progress.ts'
import { readSecrets } from '../records/webhook-secrets.ts'
import type { EventRequest, SendOutcome } from './sink-client.ts'

/** Dependencies that the attempts of all subscriptions share. */
export interface AttemptContext {
  readonly services: Services
  readonly log: EventLog
  requestOf(event: OutboxEvent, group: Uid): Promise<EventRequest>
  /** Like `requestOf`, but signed by shared secrets. */
  standardRequestOf(event: OutboxEvent, secrets: readonly string[]): Promise<EventRequest>
  send(sink: string, request: EventRequest, signal: AbortSignal): Promise<SendOutcome>
  /** Waits for a free slot of the organisation. Resolves with a function that frees the slot. Rejects with the signal's reason. */
  takeSlot(root: Uid, signal: AbortSignal): Promise<() => void>
}

/** The result of sending an event, and how long it took. */
export type SentOutcome = SendOutcome & { readonly latencyMs: number }

/**
 * The result of an attempt. `expired`: the event is no longer stored. `undone`: the attempt failed for internal reasons and must be
 * repeated.
 */
export type AttemptOutcome = SentOutcome | { readonly kind: 'expired' } | { readonly kind: 'undone' }

/** What is known of earlier attempts. */
interface Earlier {
  readonly attempts: number
  /** Sent if the event has expired. */
  readonly copy?: Uint8Array
}

function failedBy(error: string): SentOutcome {
  return { kind: 'failed', status: 0, error, retryAfterMs: undefined, latencyMs: 0 }
}

/** Attempts to deliver events of one subscription to its sink, with the subscription's current settings. */
export class DeliveryAttempts {
  readonly #uid: Uid
  readonly #context: AttemptContext

  constructor(uid: Uid, context: AttemptContext) {
    this.#uid = uid
    this.#context = context
  }

  /** Sends one event. If the event has expired, sends `copy`. A success is noted in memory. Never rejects. */
  async send(entry: LogEntry, { attempts, copy }: Earlier, signal: AbortSignal): Promise<AttemptOutcome> {
    const { services, takeSlot } = this.#context
    try {
      const free = await takeSlot(rootOf(this.#uid), signal)
      try {
        const logged = await this.read(entry, signal, copy)
        if (logged === undefined) return { kind: 'expired' }
        const outcome = await this.#traced(logged, signal)
        if (outcome.kind === 'delivered') this.#noteSuccess(logged, outcome, attempts + 1)
        return outcome
      } finally {
        free()
      }
    } catch (error) {
      if (!signal.aborted) services.log.warn('an event was not sent', { subscription: this.#uid, event: entry.key, error: errorText(error) })
      return { kind: 'undone' }
    }
  }

  /** Reads an event from the log. If it has expired there, uses its copy. Rejects with StoreError or the signal's reason. */
  async read(entry: LogEntry, signal: AbortSignal, copy: Uint8Array = new Uint8Array()): Promise<LoggedEvent | undefined> {
    const logged = await this.#context.log.read(entry, signal)
    if (logged !== undefined || copy.length === 0) return logged
    return { ...entry, event: fromBinary(OutboxEventSchema, copy) }
  }

  /** Sends an event in a span, which is linked to the request that caused the event. */
  #traced(logged: LoggedEvent, signal: AbortSignal): Promise<AttemptOutcome> {
    const { tracing } = this.#context.services
    if (tracing === undefined) return this.#sendLogged(logged, signal)
    const { type, traceparent } = logged.event
    const attributes = { 'taproot.event_type': type, 'taproot.subscription_uid': this.#uid }
    return tracing.span({ kind: 'job', name: 'event delivery', traceparent, attributes }, async (span) => {
      const outcome = await this.#sendLogged(logged, signal)
      const status = 'status' in outcome && outcome.status !== 0 ? outcome.status : undefined
      span.set({ 'taproot.delivery_outcome': outcome.kind, 'http.response.status_code': status })
      if (outcome.kind === 'failed') span.fail(status === undefined ? 'unreachable' : String(status))
      return outcome
    })
  }

  async #sendLogged({ key, event }: LoggedEvent, signal: AbortSignal): Promise<AttemptOutcome> {
    const { services, requestOf, standardRequestOf, send } = this.#context
    const { cache, clock, keyring, log, store } = services
    const usesSecret = this.#record()?.signing === Subscription_Signing.STANDARD_WEBHOOKS
    const secrets = usesSecret ? await readSecrets({ store, keyring, nowMs: clock.now() }, this.#uid, signal) : []
    if (usesSecret && secrets.length === 0) return failedBy('the secret is missing: make a new one by :rotateSecret')
    let request: EventRequest
    try {
      request = await (usesSecret ? standardRequestOf(event, secrets) : requestOf(event, trustedUid(parentOf(this.#uid))))
    } catch (error) {
      log.error('an event can not be sent as it is stored', { event: key, error: errorText(error) })
      return failedBy('the event can not be read')
    }
    const record = this.#record()
    // The subscription may have been paused while the event waited for its slot.
    if (record === undefined || signal.aborted || pauseReason(cache.tables, this.#uid) !== undefined) return { kind: 'undone' }
    const startMs = performance.now()
    const outcome = await send(record.sink, request, signal)
    return { ...outcome, latencyMs: Math.ceil(performance.now() - startMs) }
  }

  #noteSuccess({ key, revision, event }: LoggedEvent, { status, latencyMs }: Extract<SentOutcome, { kind: 'delivered' }>, attempts: number): void {
    const { recentDeliveries, clock } = this.#context.services
    const { type, group, subject } = event
    recentDeliveries.note(this.#uid, { entry: { key, revision, type, group, subject }, attempts, status, timeMs: clock.now(), latencyMs })
  }

  #record(): Subscription | undefined {
    return this.#context.services.cache.tables.get('Subscription', this.#uid)?.message
  }
}
