import { DomainError } from '../base/errors.ts'
import { untilAborted } from '../base/timing.ts'

/** Time in milliseconds after which a stream ends if the client reads no data from it. */
const defaultStalledMs = 60_000

/** How a transport sends the messages of a stream. */
export interface StreamSink<Message> {
  /** Sends a message. Returns undefined if the client has room for the next one, else a promise that resolves once it has. */
  readonly send: (message: Message) => Promise<void> | undefined
  /** A signal that aborts when the call ends. */
  readonly signal: AbortSignal
  /** Maximum time in milliseconds for which the client may read no data. A minute by default. */
  readonly stalledMs?: number
}

/**
 * Sends a stream message by message. Only one message is in memory at a time, so a slow client slows the stream. Closes the stream at the end. Rejects with
 * the stream's error, the signal's reason, or code 4 if the client reads no data for too long.
 */
export async function sendStream<Message>(stream: AsyncIterable<Message>, { send, signal, stalledMs = defaultStalledMs }: StreamSink<Message>): Promise<void> {
  for await (const message of stream) {
    const room = send(message)
    if (room !== undefined) await untilAborted(within(room, stalledMs), signal)
  }
}

/**
 * Settles like `room`, or rejects with code 4 after `ms` milliseconds. Stops its timer in any case, because a fast stream would otherwise leave one behind for
 * each message.
 */
async function within(room: Promise<void>, ms: number): Promise<void> {
  const { promise: stalled, reject } = Promise.withResolvers<never>()
  const timer = setTimeout(() => reject(new DomainError(4, `the client read no data of the stream for ${ms / 1000} seconds`)), ms)
  try {
    await Promise.race([room, stalled])
  } finally {
    clearTimeout(timer)
  }
}
