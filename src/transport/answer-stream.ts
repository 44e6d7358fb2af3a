import { DomainError } from '../base/errors.ts'
import { untilAborted } from '../base/timing.ts'
import type { StreamedMessage } from '../engine/services.ts'

/** How long a client may take nothing of a stream, in milliseconds. */
const defaultStalledMs = 60_000

/** How a transport sends the messages of a stream. */
export interface StreamSink {
  /** Sends a message. Returns undefined if the client has room for the next one, else a promise that resolves once it has. */
  readonly send: (message: StreamedMessage) => Promise<void> | undefined
  /** Aborts when the call ends. */
  readonly signal: AbortSignal
  /** How long the client may take nothing, in milliseconds. A minute by default. */
  readonly stalledMs?: number
}

/**
 * Sends a stream message by message. At any time one message is in memory, and a slow client slows the stream. Rejects with the stream's error, the signal's
 * reason, or code 4 if the client takes nothing for too long. The stream is closed then.
 */
export async function sendStream(stream: AsyncIterable<StreamedMessage>, { send, signal, stalledMs = defaultStalledMs }: StreamSink): Promise<void> {
  for await (const message of stream) {
    const room = send(message)
    if (room !== undefined) await untilAborted(within(room, stalledMs), signal)
  }
}

/** Settles as `room` does, or rejects with code 4 after `ms`. Its timer ends with it: a fast stream must not leave one behind for each message. */
async function within(room: Promise<void>, ms: number): Promise<void> {
  const { promise: stalled, reject } = Promise.withResolvers<never>()
  const timer = setTimeout(() => reject(new DomainError(4, `the client took no event for ${ms / 1000} seconds`)), ms)
  try {
    await Promise.race([room, stalled])
  } finally {
    clearTimeout(timer)
  }
}
