import { queryObjects } from 'node:v8'
import { describe, expect, test } from 'vitest'
import type { StreamedMessage } from '../../src/engine/services.ts'
import { sendStream } from '../../src/transport/answer-stream.ts'

const message = {} as StreamedMessage // no test reads it
/** Signals on the heap. One that waits for its time is among them. */
const signals = (): number => queryObjects(AbortSignal, { format: 'count' })
const timers = (): number => process.getActiveResourcesInfo().filter((name) => name === 'Timeout').length
const never = new AbortController().signal

/** Yields `count` messages, and calls `closed` when its reader stops. */
async function* streamOf(count: number, closed: () => void = () => undefined): AsyncGenerator<StreamedMessage, void> {
  try {
    for (let number = 0; number < count; number++) yield message
  } finally {
    closed()
  }
}

describe('a stream of messages to a client', () => {
  test.each([
    ['has room at once', () => undefined],
    ['has room later', () => Promise.resolve()],
  ])('leaves nothing behind for a message if the client %s', async (_title, send) => {
    const before = [timers(), signals()] as const
    await sendStream(streamOf(1_000), { send, signal: never })
    expect(timers()).toBeLessThanOrEqual(before[0])
    expect(signals()).toBeLessThan(before[1] + 100)
  })

  test('ends with code 4 and closes its source if the client takes nothing', async () => {
    let isClosed = false
    const sending = sendStream(
      streamOf(2, () => (isClosed = true)),
      { send: () => Promise.withResolvers<void>().promise, signal: never, stalledMs: 20 },
    )
    await expect(sending).rejects.toMatchObject({ code: 4 })
    expect(isClosed).toBe(true)
  })

  test('ends with the reason of its signal and closes its source', async () => {
    const stop = new AbortController()
    let isClosed = false
    const sending = sendStream(
      streamOf(2, () => (isClosed = true)),
      { send: () => Promise.withResolvers<void>().promise, signal: stop.signal },
    )
    stop.abort(new Error('gone'))
    await expect(sending).rejects.toThrow('gone')
    expect(isClosed).toBe(true)
  })
})
