/** Maximum number of causes of an error that the text includes. */
const maxCauses = 8

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}

/** Returns the message of an error without the system call and path that Node appends: `ENOENT: no such file or directory`. */
function coreOf(error: unknown): string {
  return messageOf(error).replace(/, \w+ '.*$/s, '')
}

/** Returns the message of an error for people. One of the file system names the file, and has no code: `/data/a.json: no such file or directory`. */
function plainMessageOf(error: unknown, earlier: readonly string[]): string {
  if (!(error instanceof Error && 'code' in error && 'path' in error)) return messageOf(error)
  const { code, path } = error
  if (typeof code !== 'string' || typeof path !== 'string' || !error.message.startsWith(`${code}: `)) return error.message
  const problem = coreOf(error).slice(`${code}: `.length)
  return earlier.some((part) => part.includes(path)) ? problem : `${path}: ${problem}`
}

/** Returns the causes of the error: its `cause`, or the members of an AggregateError. */
function causesOf(error: unknown): readonly unknown[] {
  if (!(error instanceof Error)) return []
  if (error.cause !== undefined) return [error.cause]
  return error instanceof AggregateError ? error.errors : []
}

function textOf(error: unknown, write: (error: unknown, earlier: readonly string[]) => string): string {
  const parts: string[] = []
  const left = [error]
  for (let at = 0; at < left.length && at <= maxCauses; at++) {
    const next = left[at]
    const isRepeated = parts.some((part) => coreOf(next) !== '' && part.includes(coreOf(next)))
    if (!isRepeated) parts.push(write(next, parts))
    left.push(...causesOf(next))
  }
  return parts.join(': ')
}

/** Returns an error and its causes in one line for the log, with their names and messages. Omits a cause whose message is already part of the text. */
export function errorText(error: unknown): string {
  return textOf(error, (one) => String(one))
}

/**
 * Returns an error and its causes in one line for people, as `errorText` does, but without error names and codes of the file system.
 * A path in `before`, the text that the line follows, is not repeated.
 */
export function errorMessage(error: unknown, before = ''): string {
  return textOf(error, (one, earlier) => plainMessageOf(one, [before, ...earlier]))
}
