import { createHook } from 'node:async_hooks'
import { setImmediate } from 'node:timers/promises'
import { describe, expect, test } from 'vitest'
import type { StreamedMessage } from '../../src/engine/services.ts'
import { sendStream } from '../../src/transport/answer-stream.ts'

const message = {} as StreamedMessage // no test reads it
const never = new AbortController().signal

/** Returns the number of timers that `work` leaves running, including unreferenced ones: a signal with a time limit has one. */
async function timersLeft(work: () => Promise<void>): Promise<number> {
  const running = new Set<number>()
  const hook = createHook({
    init: (id, type) => void (type === 'Timeout' && running.add(id)),
    destroy: (id) => void running.delete(id),
  })
  hook.enable()
  try {
    await work()
    // An ended timer is reported a turn later.
    await setImmediate()
    await setImmediate()
  } finally {
    hook.disable()
  }
  return running.size
}

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
    ['can take a message at once', () => undefined],
    ['can take a message later', () => Promise.resolve()],
  ])('a stream of messages to a client leaves no timer behind for a message if the client %s', async (_title, send) => {
    expect(await timersLeft(() => sendStream(streamOf(1_000), { send, signal: never }))).toBeLessThan(100)
  })

  test('a timer that is left behind is counted by this test', async () => {
    const signals: AbortSignal[] = []
    const leave = (): Promise<void> => {
      for (let number = 0; number < 200; number++) signals.push(AbortSignal.timeout(60_000))
      return Promise.resolve()
    }
    expect(await timersLeft(leave)).toBeGreaterThanOrEqual(200)
  })

  test('a stream of messages to a client ends with code 4 and closes its source if the client does not read', async () => {
    let isClosed = false
    const sending = sendStream(
      streamOf(2, () => (isClosed = true)),
      { send: () => Promise.withResolvers<void>().promise, signal: never, stalledMs: 20 },
    )
    await expect(sending).rejects.toMatchObject({ code: 4 })
    expect(isClosed).toBe(true)
  })

  test('a stream of messages to a client ends with the reason of its signal and closes its source', async () => {
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
