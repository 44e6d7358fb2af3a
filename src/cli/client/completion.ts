import { Argument, Command, type Option } from 'commander'
import { contextFolder, readContexts } from '../sign-in/contexts.ts'
import { exitAfterParsing, UsageError } from '../exit-codes.ts'
import { clientKinds } from './kinds.ts'

/** A word that completes the command line. */
export interface Completion {
  readonly word: string
  readonly description: string
}

/** Values that the command line parser does not know, by the name of an argument or option: `kind` of `<kind>`, `context` of `--context`. */
export type ArgumentValues = Readonly<Record<string, readonly string[]>>

/** Options of all commands that the parser adds itself. */
const help: Completion = { word: '--help', description: 'display help' }

/**
 * Returns the words that can follow on a command line: subcommands, arguments, options, or the values of an option. `words` are the words
 * after the name of the program; the last one is what the person has typed of the next word.
 */
export function completionsOf(program: Command, words: readonly string[], values: ArgumentValues): readonly Completion[] {
  const typed = words.at(-1) ?? ''
  let command = program
  let open: Option | undefined
  let given = 0
  for (const word of words.slice(0, -1)) {
    if (open !== undefined) {
      open = undefined
    } else if (word.startsWith('-')) {
      const option = optionNamed(command, word)
      open = option?.required === true || option?.optional === true ? option : undefined
    } else {
      const next = given === 0 ? command.commands.find((one) => one.name() === word) : undefined
      command = next ?? command
      given = next === undefined ? given + 1 : 0
    }
  }
  return candidates(command, { open, given, typed, values }).filter(({ word }) => word.startsWith(typed))
}

function optionNamed(command: Command, word: string): Option | undefined {
  return command.options.find(({ long, short }) => word === long || word === short)
}

function candidates(
  command: Command,
  { open, given, typed, values }: { open: Option | undefined; given: number; typed: string; values: ArgumentValues },
): readonly Completion[] {
  if (open !== undefined) return (open.argChoices ?? values[open.attributeName()] ?? []).map((word) => ({ word, description: '' }))
  if (typed.startsWith('-')) return [...command.options.map(({ long, description }) => ({ word: long ?? '', description })), help]
  const argument = command.registeredArguments[given]
  const words = argument === undefined ? [] : (argument.argChoices ?? values[argument.name()] ?? [])
  const commands = given === 0 ? command.commands.map((one) => ({ word: one.name(), description: one.description() })) : []
  return [...commands, ...words.map((word) => ({ word, description: '' }))]
}

/**
 * The scripts that shells load, by shell. They ask `taproot complete` for the words, so that they fit each version. A line of the answer is a
 * word, a tab and its description.
 */
const scripts = {
  bash: `_taproot() {
  local IFS=$'\\n'
  COMPREPLY=($(taproot complete -- "\${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f1))
  [ \${#COMPREPLY[@]} -gt 0 ] || compopt -o default
}
complete -F _taproot taproot
`,
  zsh: `_taproot() {
  local -a found
  local word description
  while IFS=$'\t' read -r word description; do
    found+=("\${word//:/\\:}:$description")
  done < <(taproot complete -- "\${(@)words[2,CURRENT]}" 2>/dev/null)
  if (( $#found )); then _describe taproot found; else _files; fi
}
compdef _taproot taproot
`,
  fish: `function __taproot_complete
  set -l found (taproot complete -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null)
  if set -q found[1]
    printf '%s\n' $found
  else
    __fish_complete_path (commandline -ct)
  end
end
complete -c taproot -f -a '(__taproot_complete)'
`,
} as const satisfies Readonly<Record<string, string>>

/** Creates the commands `completion <shell>`, and `complete`, which the scripts call. */
export function completionCommands(program: Command): Command[] {
  return [
    new Command('completion')
      .description('print a script that completes commands in a shell')
      .addArgument(new Argument('<shell>', 'the shell').choices(Object.keys(scripts)))
      .exitOverride(exitAfterParsing)
      .action((shell: keyof typeof scripts) => void process.stdout.write(scripts[shell])),
    new Command('complete')
      .description('print the words that can follow; the scripts of "completion" call it')
      .argument('[words...]', 'the words after the name of the program')
      .exitOverride(exitAfterParsing)
      .action(async (words: readonly string[]) => {
        const found = completionsOf(program, words, await knownValues())
        process.stdout.write(found.map(({ word, description }) => `${word}\t${description}\n`).join(''))
      }),
  ]
}

async function knownValues(): Promise<ArgumentValues> {
  return { kind: clientKinds.flatMap(({ names }) => names.slice(0, 1)), context: await contextNames() }
}

/** Returns the names of the contexts; none if their file cannot be used, since no message may appear while a person types. */
async function contextNames(): Promise<readonly string[]> {
  try {
    return (await readContexts(contextFolder(process.env))).contexts.map(({ name }) => name)
  } catch (error) {
    if (error instanceof UsageError) return []
    throw error
  }
}
