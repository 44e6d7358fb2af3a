/** The fields of a log line. They never contain a secret. */
export type LogFields = Readonly<Record<string, unknown>>

/** A logger. Each line has a fixed message and fields. */
export interface Log {
  debug(message: string, fields?: LogFields): void
  info(message: string, fields?: LogFields): void
  warn(message: string, fields?: LogFields): void
  error(message: string, fields?: LogFields): void
}
