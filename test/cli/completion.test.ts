import { spawn } from 'node:child_process'
import { chmod, writeFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { text } from 'node:stream/consumers'
import { Command } from 'commander'
import { expect, test } from 'vitest'
import { completionsOf } from '../../src/cli/client/completion.ts'
import { clientCommands } from '../../src/cli/client-program.ts'
import { freshDirectory } from '../e2e/process/harness/taproot-process.ts'
import { programEnvironment } from '../support/parts/own-program.ts'
import { requirePart } from '../support/parts/require-part.ts'

const program = new Command('taproot')
for (const command of clientCommands('taproot')) program.addCommand(command)
const values = { kind: ['groups', 'repos', 'roles'], context: ['example.com'] }

test.for([
  ['the first letters of commands', ['au'], ['auth', 'audit']],
  ['commands of a command', ['auth', ''], ['status', 'configure-docker']],
  ['kinds', ['get', 'r'], ['repos', 'roles']],
  ['nothing after the kind', ['get', 'repos', ''], []],
  ['options', ['login', '--token'], ['--token-file', '--token-env']],
  ['values of an option', ['get', '-o', 'j'], ['json', 'jsonpath=']],
  ['contexts of an option', ['get', 'repos', '--context', ''], ['example.com']],
  ['contexts of an argument', ['context', 'use', ''], ['example.com']],
  ['no command as the value of an option', ['get', '--in', 'r'], []],
] as const)('completion finds %s', ([, words, found]) => {
  expect(completionsOf(program, words, values).map(({ word }) => word)).toEqual(found)
})

/** How a person would type in each shell: prints the command line when it is completed, or its last word. */
const sessions = {
  bash: ['bash', '-c', 'source <(taproot completion bash); COMP_WORDS=(taproot get groups -o ya); COMP_CWORD=4; _taproot; echo "${COMPREPLY[@]}"'],
  zsh: [
    'zsh',
    '-f',
    '-c',
    // A terminal, in which the tab completes, and ^A then puts "print" before the line.
    `zmodload zsh/zpty; zpty shell zsh -f -i; expect() { zpty -r shell answer "*$1*" }
    zpty -w shell $'PS1= PS2= RPS1=; autoload -Uz compinit; compinit -D -u; bindkey -e; source <(taproot completion zsh); print rea""dy'; expect ready
    zpty -w shell $'taproot get groups -o ya\t\x01print line: '; expect 'line: taproot get groups -o yaml'; print yaml`,
  ],
  fish: ['fish', '--no-config', '-c', "taproot completion fish | source; complete -C 'taproot get groups -o ya'"],
} as const
const shells = [
  ['bash', sessions.bash],
  ['zsh', sessions.zsh],
  ['fish', sessions.fish],
] as const

test.for(shells)('%s completes a command line with the script', async ([shell, [program, ...words]]) => {
  if (shell !== 'bash') requirePart(shell)
  const folder = await freshDirectory()
  const own = join(folder, 'taproot')
  await writeFile(own, `#!/bin/sh\nexec ${resolve(import.meta.dirname, '../../bin/taproot.js')} "$@"\n`)
  await chmod(own, 0o755)
  const env = programEnvironment()
  const child = spawn(program, words, { env: { ...env, PATH: `${folder}:${env['PATH'] ?? ''}` }, stdio: ['ignore', 'pipe', 'inherit'], timeout: 120_000 })
  expect(await text(child.stdout)).toBe('yaml\n')
})
