import type { Command } from 'commander'
import { errorMessage } from '../base/error-text.ts'
import { exitCodes, UsageError } from './exit-codes.ts'

/** Prints each line of an error's message on standard error. Sets exit code 2 for a usage error, otherwise 1. */
export function reportError(program: string, error: unknown): void {
  const message = errorMessage(error)
  process.stderr.write(`${program}: ${message.replaceAll('\n', `\n${program}: `)}\n`)
  process.exitCode = error instanceof UsageError ? exitCodes.usage : exitCodes.refused
}

/** Makes the messages of the argument parser start with the name of the program, for a command and all commands within it. */
export function nameProgram(command: Command, program: string): void {
  command.configureOutput({ outputError: (text, write) => write(text.replace(/^error: /, `${program}: `)) })
  for (const one of command.commands) nameProgram(one, program)
}
