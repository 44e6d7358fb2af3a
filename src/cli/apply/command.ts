import { text } from 'node:stream/consumers'
import { InvalidArgumentError, Option, type Command } from 'commander'
import { clientCommand, runChange } from '../client/client-command.ts'
import type { ConnectionOptions } from '../client/connection.ts'
import { exitCodes } from '../exit-codes.ts'
import type { ApplyRequest } from './apply.ts'

type ApplyOptions = ConnectionOptions & {
  readonly filename: readonly string[]
  readonly recursive?: true
  readonly dryRun?: true
  readonly diff?: true
  readonly output?: ApplyRequest['format']
  readonly clusterIssuer?: string
}

/** Creates the command `apply`. `program` is the name on the command line. */
export function applyCommand(program: string): Command {
  return clientCommand('apply', 'create the records that files describe, and change those that differ')
    .addOption(
      new Option('-f, --filename <file>', 'YAML or JSON file, folder, or - for standard input; may be repeated').argParser(addTo).makeOptionMandatory(),
    )
    .option('-R, --recursive', 'also read the folders within folders')
    .option('--dry-run', 'check everything, and change nothing')
    .option('--diff', 'print the fields that change')
    .option('--cluster-issuer <url>', 'issuer of the tokens of service accounts, for serviceAccountRef')
    .addOption(new Option('-o, --output <format>', 'print all records in this format').choices(['json', 'yaml', 'name']))
    .action((options: ApplyOptions) =>
      runChange(program, options, async (context) => {
        // Loaded when needed: it checks records as the server does.
        const { apply } = await import('./apply.ts')
        const { filename: paths, recursive, dryRun, diff, output: format, clusterIssuer } = options
        const request = { paths, recursive: recursive === true, dryRun: dryRun === true, diff: diff === true, format, clusterIssuer }
        if (!(await apply(context, { ...request, readStdin: () => text(process.stdin) }))) process.exitCode = exitCodes.partial
      }),
    )
}

function addTo(path: string, before: readonly string[] = []): readonly string[] {
  if (path === '') throw new InvalidArgumentError('Name a file.')
  return [...before, path]
}
