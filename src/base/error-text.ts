/** So many causes are followed. */
const maxCauses = 8

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}

/** What others repeat of an error: a system error's call and path aside. */
function coreOf(error: unknown): string {
  return messageOf(error).replace(/, \w+ '.*$/s, '')
}

/** What led to the error: its cause, or the errors that it stands for. */
function causesOf(error: unknown): readonly unknown[] {
  if (!(error instanceof Error)) return []
  if (error.cause !== undefined) return [error.cause]
  return error instanceof AggregateError ? error.errors : []
}

function textOf(error: unknown, write: (error: unknown) => string): string {
  const parts: string[] = []
  const left = [error]
  for (let at = 0; at < left.length && at <= maxCauses; at++) {
    const next = left[at]
    const isRepeated = parts.some((part) => coreOf(next) !== '' && part.includes(coreOf(next)))
    if (!isRepeated) parts.push(write(next))
    left.push(...causesOf(next))
  }
  return parts.join(': ')
}

/** An error and its causes in one line, for the log: names and messages, without a cause whose message another one repeats. */
export function errorText(error: unknown): string {
  return textOf(error, String)
}

/** The same without the names, for people at a terminal. */
export function errorMessage(error: unknown): string {
  return textOf(error, messageOf)
}
