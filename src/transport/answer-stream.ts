import { DomainError } from '../base/errors.ts'
import { untilAborted } from '../base/timing.ts'
import type { StreamedMessage } from '../engine/services.ts'

/** How long a client may take nothing of a stream, in milliseconds. */
const stalledMs = 60_000

/** How a transport sends the messages of a stream. */
export interface StreamSink {
  /** Sends a message. Resolves once the client has room for the next one. */
  readonly send: (message: StreamedMessage) => Promise<void>
  /** Aborts when the call ends. */
  readonly signal: AbortSignal
}

/**
 * Sends a stream message by message. At any time one message is in memory, and a slow client slows the stream. Rejects with the stream's error, the signal's
 * reason, or code 4 if the client takes nothing for a minute. The stream is closed then.
 */
export async function sendStream(stream: AsyncIterable<StreamedMessage>, { send, signal }: StreamSink): Promise<void> {
  for await (const message of stream) {
    const stalled = AbortSignal.timeout(stalledMs)
    try {
      await untilAborted(send(message), AbortSignal.any([signal, stalled]))
    } catch (error) {
      throw stalled.aborted && !signal.aborted ? new DomainError(4, `the client took no event for ${stalledMs / 1000} seconds`) : error
    }
  }
}
