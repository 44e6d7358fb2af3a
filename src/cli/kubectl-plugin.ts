import { Command } from 'commander'
import { clientCommands } from './client-program.ts'
import { exitAfterParsing } from './exit-codes.ts'
import { nameProgram, reportError } from './report-error.ts'
import { version } from '../server/version.ts'

const program = 'kubectl taproot'

/** Runs the command `kubectl taproot`, which has the client commands of `taproot`. Ends the process with their exit codes. */
export async function kubectlPlugin(argv: readonly string[]): Promise<void> {
  const command = new Command(program)
    .description('Show groups of a Taproot and what they contain.')
    .version(version(), '--version', 'print the version')
    .exitOverride(exitAfterParsing)
  for (const one of clientCommands(program)) command.addCommand(one)
  nameProgram(command, program)
  try {
    await command.parseAsync(argv)
  } catch (error) {
    reportError(program, error)
  }
}
