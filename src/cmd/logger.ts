import { pino } from 'pino'
import type { Log } from '../core/log.ts'

/** A log that writes JSON lines to a file, or to standard error: standard output is left to what a command prints. */
export function createLogger(level: string, file?: string): Log & { flush(): void } {
  const destination = pino.destination(file === undefined ? { fd: 2, sync: false } : { dest: file, sync: false })
  const logger = pino({ level, base: null, timestamp: pino.stdTimeFunctions.isoTime, messageKey: 'message' }, destination)
  return {
    debug: (message, fields) => logger.debug(fields ?? {}, message),
    info: (message, fields) => logger.info(fields ?? {}, message),
    warn: (message, fields) => logger.warn(fields ?? {}, message),
    error: (message, fields) => logger.error(fields ?? {}, message),
    flush: () => destination.flushSync(),
  }
}
