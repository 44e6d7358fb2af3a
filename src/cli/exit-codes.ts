import type { CommanderError } from 'commander'

/** A wrong call, detected before any request. The message is one line for the user. */
export class UsageError extends Error {
  override readonly name = 'UsageError'
}

/** Exit codes of failures: `refused` for a failed action, `usage` for a wrong call. */
export const exitCodes = { refused: 1, usage: 2 } as const

/** Ends the process after the argument parser has printed an error or the requested help. */
export function exitAfterParsing({ exitCode }: CommanderError): never {
  process.exit(exitCode === 0 ? 0 : exitCodes.usage)
}
