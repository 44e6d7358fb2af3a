/** A log line's fields. Never a secret. */
export type LogFields = Readonly<Record<string, unknown>>

/** The log port: a fixed message and fields. */
export interface Log {
  debug(message: string, fields?: LogFields): void
  info(message: string, fields?: LogFields): void
  warn(message: string, fields?: LogFields): void
  error(message: string, fields?: LogFields): void
}
