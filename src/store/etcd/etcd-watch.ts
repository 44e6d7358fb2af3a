import type { ClientDuplexStream } from '@grpc/grpc-js'
import type { IEvent, IWatchRequest, IWatchResponse } from 'etcd3'
import { StoreError } from '../store.ts'
import { untilAborted } from '../until-aborted.ts'
import type { EtcdConnection } from './etcd-connection.ts'
import { etcdError } from './etcd-errors.ts'

/** What is watched: the keys from `key` up to `rangeEnd`, or `key` alone, after revision `after`. */
export interface EtcdWatchQuery {
  readonly key: Buffer
  readonly rangeEnd?: Buffer
  readonly after: number
}

/** Whole commits up to `revision`; no events where only time has passed. */
export interface EtcdEvents {
  readonly revision: number
  readonly events: readonly IEvent[]
}

/** After so long without a message the member is asked how far the watch is. */
const quietMs = 3000
/** How long it may take to answer (also: to create the watch). */
const answerMs = 4000

/**
 * One etcd watch stream. States: creating -> following -> ended, each wait bounded. It ends by throwing: the signal's reason; `closed`;
 * `replaced` (another cluster id, here or in any other call); `compacted`; `unavailable` on everything else, also when the member goes
 * silent. `after` must come from this cluster.
 */
export async function* watchEvents(connection: EtcdConnection, query: EtcdWatchQuery, callerSignal: AbortSignal): AsyncGenerator<EtcdEvents, never> {
  const signal = AbortSignal.any([callerSignal, connection.closing, connection.identity.replaced])
  const stream = await connection.open('watch', signal)
  const reader = new StreamReader(stream, signal)
  try {
    const { key, rangeEnd, after } = query
    // From `after` itself, which is then left out: etcd does not answer for a watch that starts in its future. Not fragmented, so that one
    // response holds whole commits.
    stream.write({ create_request: { key, ...(rangeEnd === undefined ? {} : { range_end: rangeEnd }), start_revision: Math.max(1, after) } })
    await created(connection, reader)
    for (let at = after; ;) {
      const response = (await reader.next(quietMs)) ?? (await askProgress(stream, reader))
      connection.identity.observe(response.header, undefined)
      signal.throwIfAborted()
      assertAlive(response)
      const batch = batchAfter(at, response)
      if (batch === undefined) continue
      at = batch.revision
      yield batch
    }
  } catch (error) {
    signal.throwIfAborted()
    const failure = etcdError(error)
    if (failure instanceof StoreError && ['compacted', 'replaced'].includes(failure.kind)) throw failure
    connection.streamFailed()
    throw new StoreError('unavailable', 'the etcd watch broke', error)
  } finally {
    stream.cancel()
  }
}

async function created(connection: EtcdConnection, reader: StreamReader): Promise<void> {
  const response = await reader.next(answerMs)
  if (response === undefined) throw silent()
  connection.identity.observe(response.header, undefined)
  assertAlive(response)
}

async function askProgress(stream: ClientDuplexStream<IWatchRequest, IWatchResponse>, reader: StreamReader): Promise<IWatchResponse> {
  stream.write({ progress_request: {} })
  const response = await reader.next(answerMs)
  if (response === undefined) throw silent()
  return response
}

function silent(): StoreError {
  return new StoreError('unavailable', 'the etcd member went silent')
}

function assertAlive(response: IWatchResponse): void {
  if (!response.canceled) return
  if (Number(response.compact_revision) > 0) throw new StoreError('compacted', 'the watch starts before the kept history')
  throw new StoreError('unavailable', `etcd ended the watch: ${response.cancel_reason}`)
}

/**
 * Nothing up to `at`: that is where the watch starts, what a member repeats that lagged behind it (etcd issue 20221), or its earlier progress. A response with events may have a header that is ahead of them, so that only one without events
 * tells progress.
 */
function batchAfter(at: number, { header, events: all }: IWatchResponse): EtcdEvents | undefined {
  const events = all.filter((event) => Number(event.kv.mod_revision) > at)
  const revision = all.length > 0 ? Number(events.at(-1)?.kv.mod_revision ?? at) : Number(header.revision)
  return revision > at ? { revision, events } : undefined
}

/** A stream's messages one by one, each with a bound. */
class StreamReader {
  readonly #messages: AsyncIterator<IWatchResponse>
  readonly #signal: AbortSignal
  #pending: Promise<IteratorResult<IWatchResponse>> | undefined

  constructor(stream: ClientDuplexStream<IWatchRequest, IWatchResponse>, signal: AbortSignal) {
    // Cancelling makes an error event that nobody waits for any more.
    stream.on('error', () => {})
    this.#messages = stream[Symbol.asyncIterator]() as AsyncIterator<IWatchResponse>
    this.#signal = signal
  }

  /** The next message, or undefined where none came within `boundMs`; the wait can then go on. Throws when the stream ends or the signal aborts. */
  async next(boundMs: number): Promise<IWatchResponse | undefined> {
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
