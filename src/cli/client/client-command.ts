import { Command } from 'commander'
import type { Clock } from '../../base/runtime.ts'
import { exitAfterParsing, exitCodes, UsageError } from '../exit-codes.ts'
import { systemClock } from '../../server/runtime.ts'
import { ClientError } from './client-error.ts'
import { printable } from './columns.ts'
import { connectionOptions, openConnection, type ServerConnection, type ConnectionOptions } from './connection.ts'
import { createOutput, type Output } from './output.ts'

/** What a client command works with. */
export interface ClientContext extends ServerConnection {
  /** What the command is called by. */
  readonly program: string
  readonly output: Output
  /** Words for the person that are no result: on standard error. */
  readonly note: (text: string) => void
  readonly clock: Clock
}

/** A client command: with the options of all, and exit code 2 after one line on standard error where it is called wrongly. `program` is what it is called by. */
export function clientCommand(name: string, description: string): Command {
  const command = new Command(name).description(description).exitOverride(exitAfterParsing)
  for (const option of connectionOptions()) command.addOption(option)
  return command
}

/** Connects and runs the body of a command. What the API refuses ends as exit code 1, a wrong call as 2, each after one line on standard error that starts with `program`; a reader that went away ends it silently. */
export async function runClient(program: string, options: ConnectionOptions, body: (context: ClientContext) => Promise<void>): Promise<void> {
  // `| head` has seen enough.
  process.stdout.on('error', (error: NodeJS.ErrnoException) => process.exit(error.code === 'EPIPE' ? 0 : exitCodes.refused))
  const note = (text: string): void => void process.stderr.write(`${text}\n`)
  try {
    const connection = await openConnection(options, process.env)
    await body({ ...connection, program, output: createOutput(process.stdout, process.env), note, clock: systemClock })
  } catch (error) {
    if (!(error instanceof UsageError || error instanceof ClientError)) throw error
    note(`${program}: ${printable(error instanceof ClientError ? error.line : error.message)}`)
    process.exitCode = error instanceof UsageError ? exitCodes.usage : exitCodes.refused
  }
}
