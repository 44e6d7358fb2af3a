import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { describeWithPart } from '../../support/parts/require-part.ts'
import { headingsWithCommands, readmeSteps, type Step } from './readme-steps.ts'
import { missingLines, outputDifferences } from './shown-output.ts'
import { openTerminal, type Terminal } from './terminal.ts'

/** Programs that the reader of the pages has. A missing one is named in the title of the skipped tests. */
const missing = ['bash', 'curl', 'git', 'npm', 'openssl', 'tar'].filter((tool) => spawnSync(tool, ['--version']).error !== undefined)
const skipped = missing.length > 0 && process.env['REQUIRE_ALL_PARTS'] !== '1'
const describeForReaders = describe.skipIf(skipped)
const options = skipped ? { meta: { missingPart: `not installed: ${missing.join(', ')}` } } : {}

/** The title of the tests of a row. */
const title = missing.length === 0 ? 'the commands of $pages, as printed' : `the commands of $pages (missing: ${missing.join(', ')})`
/** The sections whose commands run as printed: the named ones, or all. Pages of one row share a terminal, in this order. */
const walks = [
  { pages: ['README.md'], headings: 'all' },
  { pages: ['docs/getting-started.md'], headings: 'all' },
  { pages: ['docs/cli.md'], headings: ['Try it'] },
  {
    pages: ['docs/organisations.md', 'docs/invites.md', 'docs/workloads.md', 'docs/sign-in.md', 'docs/scim.md'],
    headings: 'all',
  },
  { pages: ['docs/events.md'], headings: 'all' },
] as const

function describeWithParts([name, ...others]: readonly Parameters<typeof describeWithPart>[0][], title: string, body: () => void): void {
  if (name === undefined) body()
  else describeWithPart(name, others.length === 0 ? title : `with ${name}`, () => describeWithParts(others, title, body))
}

/** The sections of a walk, each with the steps to follow. */
function sectionsOf({ pages, headings }: (typeof walks)[number]): { heading: string; steps: Step[] }[] {
  return pages.flatMap((page) => {
    const text = readFileSync(join(import.meta.dirname, '..', '..', '..', page), 'utf8')
    return (headings === 'all' ? headingsWithCommands(text) : headings).map((heading) => ({
      heading: `${page}: ${heading}`,
      steps: readmeSteps(text, heading),
    }))
  })
}

/** One terminal for all sections of a walk: each continues where the previous one ended, as for a reader. */
describeWithParts(['etcd', 'grpcurl', 'crane'], 'the commands of the documentation', () => {
  describe.each(walks)(title, (walk) => {
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

    for (const { heading, steps } of sectionsOf(walk)) {
      describeForReaders(heading, options, () => {
        steps.forEach((step, at) => {
          it(`${at + 1}: ${step.title}`, async ({ skip }) => {
            if (broken) skip('an earlier step failed')
            broken = true
            await follow(step)
            broken = false
          })
        })
      })
    }

    it.skipIf(skipped)('the steps leave no files that git would add', ({ skip }) => {
      if (broken) skip('a step failed')
      expect(terminal.untracked()).toEqual([])
    })
  })
})
