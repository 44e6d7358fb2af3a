import { cpuTimeMs } from './cpu-time.ts'

/** Runs `work`; returns its result and the processor time, in milliseconds, of the longest turn of the event loop. */
export async function longestTurn<T>(work: () => Promise<T>): Promise<{ result: T; longestMs: number }> {
  let isOver = false
  let longestMs = 0
  const look = async (): Promise<void> => {
    while (!isOver) {
      const started = cpuTimeMs()
      await new Promise((resolve) => setImmediate(resolve))
      longestMs = Math.max(longestMs, cpuTimeMs() - started)
    }
  }
  const looking = look()
  const result = await work().finally(() => (isOver = true))
  await looking
  return { result, longestMs }
}
