import { onTestFinished } from 'vitest'

/** Uncaught errors of listeners, timers and promises until the end of the test, each of which would end a process. */
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
