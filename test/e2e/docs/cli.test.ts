import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { clientCommands } from '../../../src/cli/client-program.ts'
import { exitCodes } from '../../../src/cli/exit-codes.ts'
import { connectionOptions } from '../../../src/cli/client/connection.ts'
import { clientKinds } from '../../../src/cli/client/kinds.ts'
import { retryLimits } from '../../../src/cli/client/retry.ts'
import { clientVariables } from '../../../src/config/variables.ts'

const page = readFileSync(join(import.meta.dirname, '..', '..', '..', 'docs', 'cli.md'), 'utf8')

/** The cells of the rows of a section's tables, without backticks. */
function rowsOf(heading: string): string[][] {
  const section = page.split(`\n## ${heading}\n`)[1]?.split('\n## ')[0] ?? ''
  const rows = [...section.matchAll(/^\| (`.*) \|$/gm)].map((match) => match[1] ?? '')
  return rows.map((row) => row.split(' | ').map((cell) => cell.replaceAll('`', '').trim()))
}

describe('docs/cli.md', () => {
  it('docs/cli.md lists every kind of record with its names and filters, and no other', () => {
    const kinds = rowsOf('get').filter(([name = '']) => !name.startsWith('-'))
    expect(kinds).toEqual(clientKinds.map(({ names: [plural, ...others], filters }) => [plural, others.join(', '), filters.join(', ')]))
  })

  it('docs/cli.md lists the options and variables for server and caller', () => {
    const rows = rowsOf('Which server, and as whom').map(([option, variable]) => [option, variable])
    expect(rows).toEqual(connectionOptions().map(({ flags }, at) => [flags, Object.values(clientVariables)[at]]))
    for (const [at, { description }] of connectionOptions().entries()) expect(description).toContain(`(${Object.values(clientVariables)[at] ?? ''})`)
  })

  it.each(clientCommands('taproot').map((command) => ({ name: command.name(), command })))('$name: lists every option, and no other', ({ name, command }) => {
    const common = new Set(connectionOptions().map(({ flags }) => flags))
    // A command without a section here is described on the page of its subject.
    const options = [command, ...(page.includes(`\n## ${name}\n`) ? command.commands : [])].flatMap((one) => one.options)
    const own = options.map(({ flags }) => flags).filter((flags) => !common.has(flags))
    const text = page.split(`\n## ${name}\n`)[1]?.split('\n## ')[0]?.replaceAll('`', '') ?? ''
    expect(own.filter((flags) => !text.includes(flags))).toEqual([])
    const known = new Set(options.flatMap(({ long, short }) => [long, short]))
    expect((text.match(/(?<![\w-])--?[a-zA-Z][a-z-]*/g) ?? []).filter((option) => !known.has(option))).toEqual([])
  })

  it('docs/cli.md contains the exit codes and the number of retries', () => {
    expect([...page.matchAll(/^\| (\d) +\|/gm)].map((match) => Number(match[1]))).toEqual([0, ...Object.values(exitCodes)])
    expect(page).toContain(`at most ${retryLimits.retries} times, if the wait is at most ${retryLimits.longestWaitMs / 1000} seconds`)
  })
})
