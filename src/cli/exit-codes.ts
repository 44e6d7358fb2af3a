import type { CommanderError } from 'commander'

/** How a command ends that does not end well: `refused` where what it was to do failed, `usage` where it was called wrongly. */
export const exitCodes = { refused: 1, usage: 2 } as const

/** Ends the process after the argument parser has told what is wrong, or has printed the help that was asked for. */
export function exitAfterParsing({ exitCode }: CommanderError): never {
  process.exit(exitCode === 0 ? 0 : exitCodes.usage)
}
