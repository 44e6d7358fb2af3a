import { openSync } from 'node:fs'
import { pino, type Logger } from 'pino'
import type { Log } from '../base/log.ts'
import { LogDestination } from './log-destination.ts'

/** The logs of a process, on one stream of JSON lines. */
export interface Logs {
  /** From the configured level on. */
  readonly log: Log
  /** Whatever the level: who did what must not depend on how chatty the rest is. */
  readonly auditLog: Log
  /** Writes out what is held back. */
  flush(): void
}

function logOver(logger: Logger): Log {
  return {
    debug: (message, fields) => logger.debug(fields ?? {}, message),
    info: (message, fields) => logger.info(fields ?? {}, message),
    warn: (message, fields) => logger.warn(fields ?? {}, message),
    error: (message, fields) => logger.error(fields ?? {}, message),
  }
}

/** Logs to a file that only its owner reads, or to standard error: standard output is left to what a command prints. */
export function createLogs(level: string, file?: string): Logs {
  const destination = new LogDestination(file === undefined ? 2 : openSync(file, 'a', 0o600))
  const flush = (): void => destination.flush()
  process.once('exit', flush)
  const logger = pino({ level, base: null, timestamp: pino.stdTimeFunctions.isoTime, messageKey: 'message' }, destination)
  return { log: logOver(logger), auditLog: logOver(logger.child({}, { level: 'info' })), flush }
}
