import { errorMessage } from '../base/error-text.ts'
import { exitCodes, UsageError } from './exit-codes.ts'

/** Makes the process end with 1, or with 2 where it was called wrongly, after one line per line of the error's message on standard error. */
export function reportFault(program: string, error: unknown): void {
  const message = errorMessage(error)
  process.stderr.write(`${program}: ${message.replaceAll('\n', `\n${program}: `)}\n`)
  process.exitCode = error instanceof UsageError ? exitCodes.usage : exitCodes.refused
}
