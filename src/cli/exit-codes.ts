import type { CommanderError } from 'commander'

/** The command was called wrongly: nothing was asked of a server. The message is one line for a person. */
export class UsageError extends Error {
  override readonly name = 'UsageError'
}

/** How a command ends that does not end well: `refused` where what it was to do failed, `usage` where it was called wrongly. */
export const exitCodes = { refused: 1, usage: 2 } as const

/** Ends the process after the argument parser has told what is wrong, or has printed the help that was asked for. */
export function exitAfterParsing({ exitCode }: CommanderError): never {
  process.exit(exitCode === 0 ? 0 : exitCodes.usage)
}
