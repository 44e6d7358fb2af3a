import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join, relative } from 'node:path'
import { afterAll, afterEach, beforeEach, expect, type TestContext } from 'vitest'

/** The state that instrumented code shares with the runner of its tests. */
interface Instrumentation {
  currentTestId?: string | undefined
  mutantCoverage?: { perTest: Record<string, Record<string, number>> }
}

/** What the tests of a file reach. */
export interface FileCoverage {
  readonly file: string
  /** The mutants that each test reaches. Without tests that failed. */
  readonly covered: readonly (readonly [test: string, mutants: readonly string[]])[]
}

/** Folder for the coverage of each file; only in the run that measures it. */
const coverageDir = process.env['TAPROOT_MUTANT_COVERAGE']
/** File with the ids of the tests to run; only in the run of a mutant. */
const selection = process.env['TAPROOT_MUTANT_TESTS']

const instrumentation = ((globalThis as { __stryker__?: Instrumentation }).__stryker__ ??= {})
const selected = selection === undefined ? undefined : new Set(JSON.parse(readFileSync(selection, 'utf8')) as readonly string[])
/** The tests that failed. */
const failed = new Set<string>()
const file = relative(process.cwd(), expect.getState().testPath ?? '')

/** Names a test: the same in each run with the same seed. */
const idOf = ({ task }: TestContext): string => `${file} > ${task.fullTestName}`

beforeEach((context) => {
  if (selected?.has(idOf(context)) === false) context.skip()
  instrumentation.currentTestId = idOf(context)
})

afterEach((context) => {
  if (context.task.result?.state === 'fail') failed.add(idOf(context))
  instrumentation.currentTestId = undefined
})

afterAll(() => {
  if (coverageDir === undefined) return
  mkdirSync(coverageDir, { recursive: true })
  const reached = Object.entries(instrumentation.mutantCoverage?.perTest ?? {}).filter(([id]) => id.startsWith(`${file} > `) && !failed.has(id))
  const content: FileCoverage = { file, covered: reached.map(([id, mutants]) => [id, Object.keys(mutants)]) }
  writeFileSync(join(coverageDir, `${file.replaceAll('/', '_')}.json`), JSON.stringify(content))
})
