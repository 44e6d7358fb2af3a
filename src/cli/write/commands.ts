import { createInterface } from 'node:readline/promises'
import { Command, Option } from 'commander'
import { clientCommand, runChange, runClient } from '../client/client-command.ts'
import type { ConnectionOptions } from '../client/connection.ts'
import { clientKinds, findKind } from '../client/kinds.ts'
import { formatOption, recordFormats, type RecordFormat } from '../client/records.ts'
import { exitAfterParsing, UsageError } from '../exit-codes.ts'
import { edit } from './edit.ts'
import { optionOf, type FieldFlag, type GivenFlags } from './field-flags.ts'
import { writableKinds, type WritableKind } from './writable-kinds.ts'
import { create, describe, remove, update } from './write.ts'

type WriteOptions = ConnectionOptions & GivenFlags & { readonly dryRun?: true; readonly output?: RecordFormat }

/** Creates the commands that change records: `create`, `update`, `edit` and `delete`, and `describe`. Each has a command for each kind for which the API has that change. */
export function writeCommands(program: string): Command[] {
  const kinds = writableKinds()
  return [createCommand(program, kinds), updateCommand(program, kinds), editCommand(program), deleteCommand(program, kinds), describeCommand(program)]
}

/** Creates a command with a command for each kind. */
function commandOfKinds(name: string, description: string, commands: readonly Command[]): Command {
  const command = new Command(name).description(description).exitOverride(exitAfterParsing)
  for (const one of commands) command.addCommand(one)
  return command
}

/** Returns `an identity` for `Identity`. */
function articleOf(kind: string): string {
  const words = kind.replaceAll(/(?<=[a-z])(?=[A-Z])/g, ' ').toLowerCase()
  return `${/^[aei]/.test(words) ? 'an' : 'a'} ${words}`
}

/** Creates the command of one kind, with its other names and the options for its fields. */
function kindCommand({ kind }: WritableKind, description: string, flags: readonly FieldFlag[]): Command {
  const name = kind.kind.toLowerCase()
  return clientCommand(name, description, flags.map(optionOf)).aliases(kind.names.filter((other) => other !== name))
}

function addWriteOptions(command: Command): Command {
  return command.option('--dry-run', 'check everything, and change nothing').addOption(formatOption('print the record, in this format', recordFormats))
}

/** Returns the options of the connection: without those that are fields of the record. */
function connectionOf(options: WriteOptions, flags: readonly FieldFlag[]): ConnectionOptions {
  return Object.fromEntries(Object.entries(options).filter(([key]) => !flags.some(({ name }) => name === key)))
}

function requestOf(options: WriteOptions): { flags: GivenFlags; dryRun: boolean; format: RecordFormat | undefined } {
  return { flags: options, dryRun: options.dryRun === true, format: options.output }
}

function createCommand(program: string, kinds: readonly WritableKind[]): Command {
  const commands = kinds.flatMap((writable) => {
    if (writable.create === undefined) return []
    const { kind } = writable
    const { flags } = writable.create
    const argument = writable.isNamedByPath ? '<path>' : '<parent>'
    const words = writable.isNamedByPath
      ? `path of the new one, such as ${examplePath(kind.parents)}`
      : `path or uid of its ${kind.parents.join(' or ').toLowerCase()}`
    const command = kindCommand(writable, `create ${articleOf(kind.kind)}`, flags).argument(argument, words)
    return [
      addWriteOptions(command).action((path: string, options: WriteOptions) =>
        runChange(program, connectionOf(options, flags), (context) => create(context, writable, { path, ...requestOf(options) })),
      ),
    ]
  })
  return commandOfKinds('create', 'create a record', commands)
}

function examplePath(parents: readonly string[]): string {
  return parents.includes('Repo') ? 'acme/app:1.0' : 'acme/web'
}

function updateCommand(program: string, kinds: readonly WritableKind[]): Command {
  const commands = kinds.flatMap((writable) => {
    if (writable.update === undefined) return []
    const { flags } = writable.update
    const command = kindCommand(writable, `change fields of ${articleOf(writable.kind.kind)}`, flags).argument('<record>', 'a name, a path or a uid')
    return [
      addWriteOptions(command)
        .addOption(new Option('--clear <field>', 'field to reset, named like its option; may be repeated').argParser(addTo).default([], 'none'))
        .action((record: string, options: WriteOptions & { readonly clear: readonly string[] }) =>
          runChange(program, connectionOf(options, flags), (context) => update(context, writable, { record, clear: options.clear, ...requestOf(options) })),
        ),
    ]
  })
  return commandOfKinds('update', 'change fields of a record', commands)
}

function addTo(text: string, before: readonly string[]): readonly string[] {
  return [...before, text]
}

function editCommand(program: string): Command {
  return clientCommand('edit', 'change a record in your editor (VISUAL, EDITOR)')
    .argument('<kind>', `for example repo: ${clientKinds.length} kinds, see "${program} get --help"`)
    .argument('<record>', 'a name, a path or a uid')
    .action((kind: string, record: string, options: ConnectionOptions) =>
      runChange(program, options, (context) => edit(context, writableNamed(kind, program), { record, env: process.env })),
    )
}

function deleteCommand(program: string, kinds: readonly WritableKind[]): Command {
  const commands = kinds.flatMap((writable) => {
    if (writable.delete === undefined) return []
    return [
      kindCommand(writable, `delete ${writable.kind.words}`, [])
        .argument('<records...>', 'names, paths or uids')
        .option('-y, --yes', 'delete without asking')
        .option('--dry-run', 'check everything, and delete nothing')
        .action((records: readonly string[], options: WriteOptions & { readonly yes?: true }) =>
          runChange(program, options, (context) =>
            remove(context, writable, { records, dryRun: options.dryRun === true, confirm: options.yes === true ? () => Promise.resolve(true) : askPerson }),
          ),
        ),
    ]
  })
  return commandOfKinds('delete', 'delete records', commands)
}

/** Resolves with true if the person at the terminal agrees. Rejects with UsageError without a terminal. */
async function askPerson(question: string): Promise<boolean> {
  if (process.stdin.isTTY !== true) throw new UsageError(`${question} Add --yes: there is no terminal to ask at`)
  const terminal = createInterface({ input: process.stdin, output: process.stderr })
  try {
    return /^y(es)?$/i.test((await terminal.question(`${question} [y/N] `)).trim())
  } finally {
    terminal.close()
  }
}

function describeCommand(program: string): Command {
  return clientCommand('describe', 'print all fields of a record')
    .argument('<kind>', `for example repo; "${program} get --help" lists all`)
    .argument('<record>', 'a name, a path or a uid')
    .action((kind: string, record: string, options: ConnectionOptions) =>
      runClient(program, options, (context) => describe(context, findKind(kind, program), record)),
    )
}

function writableNamed(name: string, program: string): WritableKind {
  const kind = findKind(name, program)
  const found = writableKinds().find((one) => one.kind === kind)
  if (found === undefined) throw new UsageError(`the API cannot change ${kind.words}`)
  return found
}
