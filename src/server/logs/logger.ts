import { openSync } from 'node:fs'
import { pino, type Logger } from 'pino'
import type { Log } from '../../base/log.ts'
import type { Config } from '../../config/config.ts'
import { LogDestination } from './log-destination.ts'
import { textLine } from './text-line.ts'

/** The logs of a process, as lines on one stream. */
export interface Logs {
  /** Log for everything but audit events. Writes entries of the configured level and above. */
  readonly log: Log
  /** Log for audit events. Independent of the configured level, so that audit events are always complete. */
  readonly auditLog: Log
  /** Writes all kept lines. Call it before the process ends. Never rejects. */
  close(): Promise<void>
}

function logOver(logger: Logger): Log {
  return {
    debug: (message, fields) => logger.debug(fields ?? {}, message),
    info: (message, fields) => logger.info(fields ?? {}, message),
    warn: (message, fields) => logger.warn(fields ?? {}, message),
    error: (message, fields) => logger.error(fields ?? {}, message),
  }
}

/** Creates logs that write to a file which only its owner can read, or to standard error. Standard output is for the output of commands. */
export function createLogs({ level, format }: Config['log'], file?: string): Logs {
  const fd = file === undefined ? 2 : openSync(file, 'a', 0o600)
  const destination = format === 'text' ? new LogDestination(fd, textLine) : new LogDestination(fd)
  process.once('exit', () => destination.flush())
  const logger = pino({ level, base: null, timestamp: pino.stdTimeFunctions.isoTime, messageKey: 'message' }, destination)
  return { log: logOver(logger), auditLog: logOver(logger.child({}, { level: 'info' })), close: () => destination.close() }
}
