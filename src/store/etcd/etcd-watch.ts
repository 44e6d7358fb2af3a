import type { ClientDuplexStream } from '@grpc/grpc-js'
import { StoreError } from '../store.ts'
import { untilAborted } from '../../base/timing.ts'
import type { EtcdConnection } from './etcd-connection.ts'
import { etcdError } from './etcd-errors.ts'
import type { WatchCreateRequest, EtcdEvent, WatchResponse } from './etcd-lease-messages.ts'

/** How far a watch must have progressed: it has shown the commit `due`, and no later commit on the watched keys exists up to `revision`. */
export interface WatchTarget {
  readonly due: number
  readonly revision: number
}

/** The keys to watch, from `key` up to `rangeEnd`, and the revision `after` which their changes are wanted. */
export interface EtcdWatchQuery {
  readonly key: Buffer
  readonly rangeEnd: Buffer
  readonly after: number
  /** Reads the target of the watch from the cluster, linearizable; undefined if it cannot be known. Called when no message arrived for a while. */
  readonly target: () => Promise<WatchTarget | undefined>
}

/** The changes of whole commits up to `revision`. Without events, only the revision advanced. */
export interface EtcdEvents {
  readonly revision: number
  readonly events: readonly EtcdEvent[]
}

/** Time in milliseconds without a message after which the watch reads its target from the cluster. */
const quietMs = 3000
/** Maximum wait in milliseconds for a commit that the watch must still show, or for the watch to be created. */
const dueMs = 4000

/**
 * Yields the changes of one etcd watch stream. Every wait is bounded, and the watch ends only by throwing:
 * - the signal's reason
 * - StoreError `closed`
 * - StoreError `replaced`: another cluster id, in this watch or in any other call
 * - StoreError `compacted`
 * - StoreError `unavailable` in all other cases, such as a silent connection, a commit that is not shown in time, or an unknown target.
 * `after` must be a revision of this cluster.
 */
export async function* watchEvents(connection: EtcdConnection, query: EtcdWatchQuery, callerSignal: AbortSignal): AsyncGenerator<EtcdEvents, never> {
  const signal = AbortSignal.any([callerSignal, connection.closing, connection.identity.replaced])
  const stream = await connection.open('watch', signal)
  const reader = new StreamReader(stream, signal)
  try {
    const { key, rangeEnd, after, target } = query
    // Without fragments, each response contains whole commits.
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
  if (response === undefined) throw new StoreError('unavailable', 'the etcd watch did not send an expected message in time')
  return response
}

/** Returns the response if the watch continues on the same cluster. Throws otherwise. */
function accept(connection: EtcdConnection, response: WatchResponse, signal: AbortSignal): WatchResponse {
  connection.identity.observe(response.header, undefined)
  signal.throwIfAborted()
  if (!response.canceled) return response
  if (Number(response.compact_revision) > 0) throw new StoreError('compacted', 'the watch starts at a revision that the store no longer keeps')
  throw new StoreError('unavailable', `etcd ended the watch: ${response.cancel_reason}`)
}

/**
 * Removes events up to revision `at`. A member that lagged behind the start of the watch may repeat them (etcd issue 20221). The revision comes from the
 * events, because the header may be ahead of them.
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
    // cancel() emits an error event after which no other listener is left.
    stream.on('error', () => {})
    this.#messages = stream[Symbol.asyncIterator]() as AsyncIterator<WatchResponse>
    this.#signal = signal
  }

  /**
   * Returns the next message, or undefined if none arrived within `boundMs` milliseconds; a later call continues the wait. Throws when the stream ends or the
   * signal aborts.
   */
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
