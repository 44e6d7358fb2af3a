import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { describeWithPart } from '../parts/require-part.ts'
import { headingsWithCommands, readmeSteps, type Step } from './readme-steps.ts'
import { missingLines, outputDifferences } from './shown-output.ts'
import { openTerminal, type Terminal } from './terminal.ts'

/** What the pages' reader has; a machine without is told so, in the title of the skipped tests. */
const missing = ['bash', 'curl', 'git', 'npm', 'openssl', 'tar'].filter((tool) => spawnSync(tool, ['--version']).error !== undefined)
const skipped = missing.length > 0 && process.env['REQUIRE_ALL_PARTS'] !== '1'
const describeForReaders = describe.skipIf(skipped)
const options = skipped ? { meta: { missingPart: `not installed: ${missing.join(', ')}` } } : {}

/** The title of a page's tests. */
const title = missing.length === 0 ? 'the commands of $page, as printed' : `the commands of $page (missing: ${missing.join(', ')})`
/** The sections whose commands are run as they are printed, in this order; all that have commands, in the order of the page. */
const pages = [
  { page: 'README.md', headings: 'all' },
  { page: 'docs/getting-started.md', headings: 'all' },
  { page: 'docs/cli.md', headings: ['Try it'] },
  { page: 'docs/iam.md', headings: 'all' },
] as const

function describeWithParts([name, ...others]: readonly Parameters<typeof describeWithPart>[0][], title: string, body: () => void): void {
  if (name === undefined) body()
  else describeWithPart(name, others.length === 0 ? title : `with ${name}`, () => describeWithParts(others, title, body))
}

/** One terminal for all sections of a page: the later one goes on where the earlier one ended, as for a reader. */
describeWithParts(['etcd', 'grpcurl', 'crane'], 'the pages', () => {
  describe.each(pages)(title, ({ page, headings }) => {
    const text = readFileSync(join(import.meta.dirname, '..', '..', page), 'utf8')
    let terminal: Terminal
    let broken = false
    beforeAll(async () => {
      terminal = await openTerminal()
    })
    afterAll(() => terminal.close())

    async function follow(step: Step): Promise<void> {
      const { script, shown } = step
      if (step.keepsRunning) {
        await terminal.start(script, (printed) => shown === undefined || missingLines(terminal.asShown(shown), printed).length === 0)
        return
      }
      const { stdout, stderr, failures } = await terminal.run(script)
      expect(failures, `${stdout}${stderr}`).toEqual([])
      expect(outputDifferences(terminal.asShown(shown ?? ''), stdout)).toEqual([])
    }

    for (const heading of headings === 'all' ? headingsWithCommands(text) : headings) {
      describeForReaders(heading, options, () => {
        readmeSteps(text, heading).forEach((step, at) => {
          it(`${at + 1}: ${step.title}`, { timeout: 90_000 }, async ({ skip }) => {
            if (broken) skip('an earlier step failed')
            broken = true
            await follow(step)
            broken = false
          })
        })
      })
    }

    it.skipIf(skipped)('they leave nothing in the clone that git would offer to commit', ({ skip }) => {
      if (broken) skip('a step failed')
      expect(terminal.untracked()).toEqual([])
    })
  })
})
