import { onTestFinished } from 'vitest'

/** What listeners, timers and promises throw until the test ends, where nothing catches it: each of these would end a process. */
export function uncaughtErrors(): readonly unknown[] {
  const errors: unknown[] = []
  const note = (error: unknown): void => void errors.push(error)
  process.on('uncaughtExceptionMonitor', note)
  process.on('unhandledRejection', note)
  onTestFinished(() => {
    process.off('uncaughtExceptionMonitor', note)
    process.off('unhandledRejection', note)
  })
  return errors
}
