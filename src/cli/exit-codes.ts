import type { CommanderError } from 'commander'

/** The command line is invalid, as found before any request. The message is one line for the user. */
export class UsageError extends Error {
  override readonly name = 'UsageError'
}

/** Exit codes of failures: `refused` for a failed action, `usage` for an invalid command line, `partial` for an action that left out a part. */
export const exitCodes = { refused: 1, usage: 2, partial: 3 } as const

/** Ends the process after the argument parser has printed an error or the requested help. */
export function exitAfterParsing({ exitCode }: CommanderError): never {
  process.exit(exitCode === 0 ? 0 : exitCodes.usage)
}
