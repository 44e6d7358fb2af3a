import type { ClientDuplexStream } from '@grpc/grpc-js'
import { StoreError } from '../store.ts'
import { untilAborted } from '../../base/timing.ts'
import type { EtcdConnection } from './etcd-connection.ts'
import { etcdError } from './etcd-errors.ts'
import type { WatchCreateRequest, EtcdEvent, WatchResponse } from './etcd-lease-messages.ts'

/** The progress that a watch must have made: it has shown `due`, and no other watched commit exists up to `revision`. */
export interface WatchTarget {
  readonly due: number
  readonly revision: number
}

/** The watched keys: from `key` up to `rangeEnd`, after revision `after`. */
export interface EtcdWatchQuery {
  readonly key: Buffer
  readonly rangeEnd: Buffer
  readonly after: number
  /** Reads the target from the cluster, linearizable; undefined if it is unknown. Called when the watch has been quiet for a while. */
  readonly target: () => Promise<WatchTarget | undefined>
}

/** Whole commits up to `revision`; no events if only the revision advanced. */
export interface EtcdEvents {
  readonly revision: number
  readonly events: readonly EtcdEvent[]
}

/** Time without a message after which the watch reads its target from the cluster. */
const quietMs = 3000
/** Maximum wait for a due event (or for the creation of the watch). */
const dueMs = 4000

/**
 * One etcd watch stream. States: creating -> following -> ended, each wait bounded. Ends by throwing:
 * - the signal's reason
 * - `closed`
 * - `replaced`: another cluster id, here or in any other call
 * - `compacted`
 * - `unavailable` in all other cases. These include a silent connection (keepalive), a missing due message, and not knowing whether a message is due.
 *
 * `after` must come from this cluster.
 */
export async function* watchEvents(connection: EtcdConnection, query: EtcdWatchQuery, callerSignal: AbortSignal): AsyncGenerator<EtcdEvents, never> {
  const signal = AbortSignal.any([callerSignal, connection.closing, connection.identity.replaced])
  const stream = await connection.open('watch', signal)
  const reader = new StreamReader(stream, signal)
  try {
    const { key, rangeEnd, after, target } = query
    // Not fragmented, so that one response holds whole commits.
    stream.write({ key, range_end: rangeEnd, start_revision: after + 1 })
    accept(connection, await dueMessage(reader), signal)
    for (let at = after; ;) {
      const response = await reader.next(quietMs)
      const goal = response === undefined ? await target() : undefined
      const message = response ?? (goal !== undefined && goal.due > at ? await dueMessage(reader) : undefined)
      const batch = message === undefined ? { revision: goal?.revision ?? at, events: [] } : eventsAfter(at, accept(connection, message, signal))
      if (batch.revision <= at) continue
      at = batch.revision
      yield batch
    }
  } catch (error) {
    signal.throwIfAborted()
    const failure = etcdError(error)
    if (failure instanceof StoreError && ['compacted', 'replaced'].includes(failure.kind)) throw failure
    connection.streamFailed()
    throw new StoreError('unavailable', 'the etcd watch failed', error)
  } finally {
    stream.cancel()
  }
}

async function dueMessage(reader: StreamReader): Promise<WatchResponse> {
  const response = await reader.next(dueMs)
  if (response === undefined) throw new StoreError('unavailable', 'the etcd watch lags')
  return response
}

/** Returns the response if the watch continues and the cluster is still the same; throws otherwise. */
function accept(connection: EtcdConnection, response: WatchResponse, signal: AbortSignal): WatchResponse {
  connection.identity.observe(response.header, undefined)
  signal.throwIfAborted()
  if (!response.canceled) return response
  if (Number(response.compact_revision) > 0) throw new StoreError('compacted', 'the watch starts before the kept history')
  throw new StoreError('unavailable', `etcd ended the watch: ${response.cancel_reason}`)
}

/**
 * Removes events repeated by a member that lagged behind the watch's start (etcd issue 20221). The header may be ahead of the events, so only the events show
 * the progress.
 */
function eventsAfter(at: number, { events: all }: WatchResponse): EtcdEvents {
  const events = all.filter((event) => Number(event.kv.mod_revision) > at)
  return { revision: Number(events.at(-1)?.kv.mod_revision ?? at), events }
}

/** Reads a stream's messages one by one, each with a time limit. */
class StreamReader {
  readonly #messages: AsyncIterator<WatchResponse>
  readonly #signal: AbortSignal
  #pending: Promise<IteratorResult<WatchResponse>> | undefined

  constructor(stream: ClientDuplexStream<WatchCreateRequest, WatchResponse>, signal: AbortSignal) {
    // Cancelling emits an error event that no code handles any more.
    stream.on('error', () => {})
    this.#messages = stream[Symbol.asyncIterator]() as AsyncIterator<WatchResponse>
    this.#signal = signal
  }

  /** Returns the next message, or undefined if none arrived within `boundMs`; the wait can then continue. Throws when the stream ends or the signal aborts. */
  async next(boundMs: number): Promise<WatchResponse | undefined> {
    this.#pending ??= this.#messages.next()
    const { promise: timeout, resolve } = Promise.withResolvers<undefined>()
    const timer = setTimeout(() => resolve(undefined), boundMs)
    try {
      const result = await untilAborted(Promise.race([this.#pending, timeout]), this.#signal)
      if (result === undefined) return undefined
      this.#pending = undefined
      if (result.done === true) throw new StoreError('unavailable', 'etcd ended the stream')
      return result.value
    } finally {
      clearTimeout(timer)
    }
  }
}
