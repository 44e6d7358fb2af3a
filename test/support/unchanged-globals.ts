import { getEventListeners } from 'node:events'
import { afterAll } from 'vitest'

const dispatcher = Symbol.for('undici.globalDispatcher.1')
// The first request creates the dispatcher.
await fetch('data:,').then((answer) => answer.text())

/** State that the files of one worker share, by name: a change by one file affects the next. */
function sharedState(): Readonly<Record<string, unknown>> {
  const listeners = (names: readonly string[]): string => names.map((name) => getEventListeners(process, name).length).join()
  return {
    environment: JSON.stringify(Object.entries(process.env).toSorted()),
    'working directory': process.cwd(),
    clock: Date,
    timers: setTimeout,
    intervals: setInterval,
    fetch: globalThis.fetch,
    'dispatcher of fetch': (globalThis as Record<symbol, unknown>)[dispatcher],
    // Shared servers listen for SIGTERM.
    'listeners for signals': listeners(['SIGINT', 'SIGHUP']),
    'listeners for errors': listeners(['uncaughtException', 'unhandledRejection', 'warning']),
  }
}

const before = sharedState()
afterAll(() => {
  const now = sharedState()
  const changed = Object.keys(before).filter((name) => now[name] !== before[name])
  if (changed.length > 0) throw new Error(`this file left changed: ${changed.join(', ')}. Restore it, or give the file a worker of its own (vitest.config.ts)`)
})
