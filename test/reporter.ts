import { writeFileSync } from 'node:fs'
import { relative } from 'node:path'
import { overBudget, slownessDuring, slownessNow, type Excess, type FileCost } from './budgets.ts'
import type {} from './support/file-cost.ts'
import type {} from './support/parts/require-part.ts'
import type { Reporter, TestCase, TestModule, TestRunEndReason } from 'vitest/node'

/** Files after which the speed of the machine is measured again, which takes about 0.1 s. */
const filesPerSample = 8

/** The results of a run. */
export interface Counts {
  readonly passed: number
  /**
   * The number of failed tests, and of files or suites that could not load or whose hooks failed.
   * Each error outside of tests, and each file and folder far over its budget, counts too.
   */
  readonly failed: number
  readonly skipped: number
}

/** `N passed, N failed` or `N passed, N failed, N skipped`: the last line of every run, alone on its line. */
export function formatCounts(counts: Counts): string {
  const skipped = counts.skipped === 0 ? '' : `, ${counts.skipped} skipped`
  return `${counts.passed} passed, ${counts.failed} failed${skipped}`
}

/**
 * Prints the counts as the process ends, after all other output, and makes the exit code agree with them.
 * Before them it prints one line for each missing part. It also prints one for each file or folder over its budget in test/budgets.ts. One that is far over it fails the run.
 * A run without an executed test counts as failed, so that a wrong filter or an empty tree is never green.
 * The exception is a run that needs a missing part.
 */
export class CountReporter implements Reporter {
  #counts: Counts = { passed: 0, failed: 0, skipped: 0 }
  #missing: ReadonlySet<string> = new Set()
  #overBudget: readonly Excess[] = []
  #complete = false
  #watching = false
  #root = ''
  /** How slow the machine was, each time that some files had ended: the processor time of a file grows with what else runs. */
  readonly #slowness: number[] = []
  #ended = 0
  /** False if tests run more often or longer than in `npm test`. */
  readonly #hasBudgets: boolean

  constructor(options: { readonly hasBudgets: boolean }) {
    this.#hasBudgets = options.hasBudgets
  }

  onInit(vitest: { readonly config: { readonly watch: boolean; readonly root: string } }): void {
    this.#watching = vitest.config.watch
    this.#root = vitest.config.root
    process.once('exit', () => this.#end())
  }

  onTestModuleEnd(): void {
    if (this.#hasBudgets && this.#ended % filesPerSample === 0) this.#slowness.push(slownessNow())
    this.#ended += 1
  }

  onTestRunEnd(modules: readonly TestModule[], unhandledErrors: readonly unknown[], reason: TestRunEndReason): void {
    const { TAPROOT_TEST_COSTS } = process.env
    if (TAPROOT_TEST_COSTS !== undefined) writeCosts(TAPROOT_TEST_COSTS, { modules, root: this.#root })
    this.#counts = countTests(modules, unhandledErrors.length)
    this.#missing = missingParts(modules)
    this.#overBudget = this.#hasBudgets
      ? overBudget(
          modules.flatMap((module) => costOf(module, this.#root)),
          slownessDuring(this.#slowness),
        )
      : []
    this.#complete = reason !== 'interrupted'
  }

  #end(): void {
    if (this.#watching) return
    const { passed, failed, skipped } = this.#counts
    const skippedForPart = skipped > 0 && this.#missing.size > 0
    const sound = this.#complete && (passed + failed > 0 || skippedForPart)
    const counted = { passed, failed: failed + this.#overBudget.filter(({ fails }) => fails).length, skipped }
    const counts = sound ? counted : { ...counted, failed: Math.max(counted.failed, 1) }
    if (counts.failed > 0 && (process.exitCode ?? 0) === 0) process.exitCode = 1
    for (const reason of this.#missing) process.stdout.write(`missing: ${reason}; its tests are skipped\n`)
    for (const { line, fails } of this.#overBudget) process.stdout.write(`${fails ? 'far over budget' : 'over budget'}: ${line}\n`)
    process.stdout.write(`${formatCounts(counts)}\n`)
  }
}

/** Writes a line for each file, the most expensive first: seconds of processor time, seconds, file. */
function writeCosts(path: string, { modules, root }: { readonly modules: readonly TestModule[]; readonly root: string }): void {
  const costs = modules.map((module) => ({
    cpu: module.meta().cpuSeconds ?? 0,
    seconds: module.diagnostic().duration / 1000,
    file: relative(root, module.moduleId),
  }))
  costs.sort((one, other) => other.cpu - one.cpu)
  writeFileSync(path, costs.map(({ cpu, seconds, file }) => `${cpu.toFixed(1)}\t${seconds.toFixed(1)}\t${file}\n`).join(''))
}

/** The cost of a file; empty if unknown, and for files that run a whole cluster. */
function costOf(module: TestModule, root: string): FileCost[] {
  const { cpuSeconds } = module.meta()
  return cpuSeconds === undefined || module.project.name === 'cluster' ? [] : [{ file: relative(root, module.moduleId), cpuSeconds }]
}

function countTests(modules: readonly TestModule[], unhandledErrors: number): Counts {
  const counts = { passed: 0, failed: unhandledErrors > 0 ? 1 : 0, skipped: 0 }
  for (const module of modules) {
    for (const test of module.children.allTests()) {
      const { state } = test.result()
      counts[state === 'pending' ? (isInSkippedSuite(test) ? 'skipped' : 'failed') : state] += 1
    }
    for (const suite of [module, ...module.children.allSuites()]) if (suite.errors().length > 0) counts.failed += 1
    if (module.state() === 'queued' || module.state() === 'pending') counts.failed += 1
  }
  return counts
}

/** True if a suite around the test is skipped: vitest reports its tests as pending. */
function isInSkippedSuite(test: TestCase): boolean {
  let around = test.parent
  while (around.type === 'suite') {
    if (around.state() === 'skipped') return true
    around = around.parent
  }
  return false
}

/** The reasons of skipped tests, which test/support/parts/require-part.ts set on them or their suites. */
function missingParts(modules: readonly TestModule[]): ReadonlySet<string> {
  const reasons = modules.flatMap((module) => [...module.children.allSuites(), ...module.children.allTests()].map((task) => task.meta().missingPart))
  return new Set(reasons.filter((reason) => reason !== undefined))
}
