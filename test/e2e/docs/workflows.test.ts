import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { parse } from 'yaml'
import { requirePart } from '../../support/parts/require-part.ts'
import { run } from '../cluster/harness/command.ts'

const root = join(import.meta.dirname, '..', '..', '..')
const folder = join('.github', 'workflows')
const files = readdirSync(join(root, folder)).map((name) => join(folder, name))

interface WorkflowStep {
  readonly uses?: string
  readonly run?: string
  readonly with?: Readonly<Record<string, unknown>>
}

interface Workflow {
  readonly permissions?: Readonly<Record<string, string>>
  readonly jobs: Readonly<
    Record<string, { readonly permissions?: Readonly<Record<string, string>>; readonly 'timeout-minutes'?: number; readonly steps: readonly WorkflowStep[] }>
  >
}

const read = (file: string): string => readFileSync(join(root, file), 'utf8')
const workflow = (file: string): Workflow => parse(read(file)) as Workflow // a cast: actionlint checks the form

describe.each(files)('%s', (file) => {
  test('a workflow is valid', async () => {
    await run(requirePart('actionlint'), ['-no-color', '-shellcheck=', '-pyflakes=', join(root, file)])
  })

  test('a workflow pins each action by a commit, with its version in a comment', () => {
    const lines = read(file)
      .split('\n')
      .filter((line) => /^\s*(- )?uses:/.test(line))
    expect(lines.length).toBeGreaterThan(0)
    expect(lines.filter((line) => !/uses: [\w.-]+\/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$/.test(line))).toEqual([])
  })

  test('a workflow calls scripts of this repository that exist', () => {
    const commands = Object.values(workflow(file).jobs).flatMap(({ steps }) => steps.flatMap(({ run: command }) => command ?? []))
    const scripts = commands.flatMap((command) => [...command.matchAll(/\b(?:node|bash) ((?:tools|\.ci)\/\S+)/g)].map(([, path = '']) => path))
    expect(scripts.length).toBeGreaterThan(0)
    expect(scripts.filter((path) => !existsSync(join(root, path)))).toEqual([])
  })

  test('a workflow has no rights by default but reading, keeps no credential in the checkout, and ends', () => {
    const { permissions, jobs } = workflow(file)
    expect(Object.entries(permissions ?? { all: 'write' }).filter(([right, level]) => right !== 'contents' || level !== 'read')).toEqual([])
    for (const { steps, 'timeout-minutes': minutes } of Object.values(jobs)) {
      expect(minutes).toBeGreaterThan(0)
      const checkouts = steps.filter(({ uses }) => uses?.startsWith('actions/checkout@'))
      expect(checkouts.map(({ with: options }) => options?.['persist-credentials'])).toEqual(checkouts.map(() => false))
    }
  })
})

test('only the job that releases may write, after the tests passed', () => {
  const { jobs } = workflow(join(folder, 'release.yml'))
  const writers = Object.entries(jobs).filter(([, { permissions = {} }]) => Object.values(permissions).includes('write'))
  expect(writers.map(([name]) => name)).toEqual(['release'])
  expect(jobs['release']?.permissions).toEqual({ contents: 'write', packages: 'write', 'id-token': 'write', attestations: 'write' })
  expect(jobs['release']).toMatchObject({ needs: 'test' })
})
