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

const program = new Command('taproot')
for (const command of clientCommands('taproot')) program.addCommand(command)
const values = { kind: ['groups', 'repos', 'roles'], context: ['example.com'] }

test.for([
  ['the first letters of commands', ['au'], ['auth', 'audit']],
  ['commands of a command', ['auth', ''], ['status', 'configure-docker']],
  ['kinds', ['get', 'r'], ['repos', 'roles']],
  ['nothing after the kind', ['get', 'repos', ''], []],
  ['options', ['login', '--token'], ['--token-file', '--token-env']],
  ['values of an option', ['get', '-o', 'j'], ['json']],
  ['contexts of an option', ['get', 'repos', '--context', ''], ['example.com']],
  ['contexts of an argument', ['context', 'use', ''], ['example.com']],
  ['no command as the value of an option', ['get', '--in', 'r'], []],
] as const)('completion finds %s', ([, words, found]) => {
  expect(completionsOf(program, words, values).map(({ word }) => word)).toEqual(found)
})

test('bash completes a command line with the script', async () => {
  const folder = await freshDirectory()
  const own = join(folder, 'taproot')
  await writeFile(own, `#!/bin/sh\nexec ${resolve(import.meta.dirname, '../../bin/taproot.js')} "$@"\n`)
  await chmod(own, 0o755)
  const script = 'source <(taproot completion bash); COMP_WORDS=(taproot get groups -o js); COMP_CWORD=4; _taproot; echo "${COMPREPLY[@]}"'
  const env = programEnvironment()
  const bash = spawn('bash', ['-c', script], { env: { ...env, PATH: `${folder}:${env['PATH'] ?? ''}` }, stdio: ['ignore', 'pipe', 'inherit'] })
  expect(await text(bash.stdout)).toBe('json\n')
})
