import { once } from 'node:events'
import { expect, test } from 'vitest'
import { runBackground } from '../../../src/server/background.ts'
import type { Engine } from '../../../src/server/engine.ts'
import { testClock } from '../parts.ts'

test('a reload of the record cache restarts the loop that checks the keys', async () => {
  const silent = (): void => undefined
  const resets: (() => void)[] = []
  const stop = new AbortController()
  let rounds = 0
  let reached = Promise.withResolvers<void>()
  const maintain = (): Promise<void> => {
    rounds += 1
    reached.resolve()
    return Promise.resolve()
  }
  const engine = {
    store: { elect: (_name: string, signal: AbortSignal) => once(signal, 'abort').then(() => Promise.reject(signal.reason as Error)) },
    cache: { onKey: () => silent, onReset: (listener: () => void) => (resets.push(listener), silent) },
    signingKeys: { maintain },
    pageKeys: { maintain: () => Promise.resolve() },
    registryKeys: { maintain: () => Promise.resolve() },
    services: { log: { debug: silent, info: silent, warn: silent, error: silent }, clock: testClock() },
  } as unknown as Engine // a cast: what the loop uses of an engine, and an election without a winner
  const running = runBackground(engine, stop.signal)
  await reached.promise
  reached = Promise.withResolvers<void>()
  for (const reset of resets) reset()
  await reached.promise
  expect(rounds).toBe(2)
  stop.abort()
  await running
})
