import { Command, type Option } from 'commander'
import type { Clock } from '../../base/runtime.ts'
import { exitAfterParsing, exitCodes, UsageError } from '../exit-codes.ts'
import { systemClock } from '../../server/runtime.ts'
import { ClientError } from './client-error.ts'
import { printable } from './columns.ts'
import { connectionOptions, openConnection, type ServerConnection, type ConnectionOptions } from './connection.ts'
import { createOutput, type Output } from './output.ts'
import { assertFormat } from './records.ts'

/** Where a command prints. */
export interface Reported {
  readonly output: Output
  /** Prints a note for the user on standard error. */
  readonly note: (text: string) => void
}

/** Connection and output of a client command. */
export interface ClientContext extends ServerConnection, Reported {
  /** The name of the program on the command line. */
  readonly program: string
  readonly clock: Clock
}

/**
 * Creates a client command with the common options. A usage error prints one line on standard error and ends with exit code 2. `program`
 * is the name on the command line. `others` are the command's own options: a common option of the same name is left out, and has its variable only.
 */
export function clientCommand(name: string, description: string, others: readonly Option[] = []): Command {
  const command = new Command(name).description(description).exitOverride(exitAfterParsing)
  command.hook('preAction', async () => {
    try {
      await assertFormat(command.opts()['output'])
    } catch (error) {
      if (!(error instanceof UsageError)) throw error
      command.error(`error: ${printable(error.message)}`)
    }
  })
  for (const option of others) command.addOption(option)
  for (const option of connectionOptions()) if (!others.some(({ long }) => long === option.long)) command.addOption(option)
  return command
}

/** Connects and runs the body of a command, as runReported does. */
export function runClient(program: string, options: ConnectionOptions, body: (context: ClientContext) => Promise<void>): Promise<void> {
  return runReported(program, (reported) => connected(program, options, { reported, body }))
}

/** Like runClient, for a command that makes changes: if the output pipe is closed, it finishes them without output. */
export function runChange(program: string, options: ConnectionOptions, body: (context: ClientContext) => Promise<void>): Promise<void> {
  return runReported(program, (reported) => connected(program, options, { reported: { ...reported, output: untilClosed(reported.output) }, body }), true)
}

async function connected(
  program: string,
  options: ConnectionOptions,
  { reported, body }: { readonly reported: Reported; readonly body: (context: ClientContext) => Promise<void> },
): Promise<void> {
  const connection = await openConnection(options, process.env)
  await body({ ...connection, ...reported, program, clock: systemClock })
}

/** Returns an output that drops text when the reader has closed the pipe. */
function untilClosed(output: Output): Output {
  return {
    ...output,
    async write(text) {
      if (process.stdout.destroyed || process.stdout.errored !== null) return
      try {
        await output.write(text)
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'EPIPE') throw error // a cast: other errors have another code, or none
      }
    },
  }
}

/**
 * Runs the body of a command. If the API refuses, ends with exit code 1; after a usage error, with 2. Each prints one line on standard error
 * that starts with `program`. If the output pipe is closed, ends without a message, unless the command has to finish what it began.
 */
export async function runReported(program: string, body: (reported: Reported) => Promise<void>, finishes = false): Promise<void> {
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    // The reader closed the pipe, as `| head` does.
    const isClosed = error.code === 'EPIPE'
    if (!(isClosed && finishes)) process.exit(isClosed ? 0 : exitCodes.refused)
  })
  const note = (text: string): void => void process.stderr.write(`${text}\n`)
  try {
    await body({ output: createOutput(process.stdout, process.env), note })
  } catch (error) {
    if (!(error instanceof UsageError || error instanceof ClientError)) throw error
    note(`${program}: ${printable(error instanceof ClientError ? error.line : error.message)}`)
    process.exitCode = error instanceof UsageError ? exitCodes.usage : exitCodes.refused
  }
}
