import type { Reporter, TestModule, TestRunEndReason } from 'vitest/node'

/** What a run came to. */
export interface Counts {
  readonly passed: number
  /** Failed tests, plus one for each file or suite that could not load or whose hooks failed, plus one for errors outside of tests. */
  readonly failed: number
  readonly skipped: number
}

/** `N passed, N failed` or `N passed, N failed, N skipped`: the last line of every run, alone on its line. */
export function formatCounts(counts: Counts): string {
  const skipped = counts.skipped === 0 ? '' : `, ${counts.skipped} skipped`
  return `${counts.passed} passed, ${counts.failed} failed${skipped}`
}

/**
 * Prints the counts as the process ends, after all that others print, and makes the exit code agree with them. A run that executed no
 * test counts as failed, so that a wrong filter or an empty tree is never green.
 */
export class CountReporter implements Reporter {
  #counts: Counts = { passed: 0, failed: 0, skipped: 0 }
  #complete = false
  #watching = false

  onInit(vitest: { readonly config: { readonly watch: boolean } }): void {
    this.#watching = vitest.config.watch
    process.once('exit', () => this.#end())
  }

  onTestRunEnd(modules: readonly TestModule[], unhandledErrors: readonly unknown[], reason: TestRunEndReason): void {
    this.#counts = countTests(modules, unhandledErrors.length)
    this.#complete = reason !== 'interrupted'
  }

  #end(): void {
    if (this.#watching) return
    const { passed, failed, skipped } = this.#counts
    const sound = this.#complete && passed + failed > 0
    const counts = sound ? this.#counts : { passed, failed: Math.max(failed, 1), skipped }
    if (counts.failed > 0 && (process.exitCode ?? 0) === 0) process.exitCode = 1
    process.stdout.write(`${formatCounts(counts)}\n`)
  }
}

function countTests(modules: readonly TestModule[], unhandledErrors: number): Counts {
  const counts = { passed: 0, failed: unhandledErrors > 0 ? 1 : 0, skipped: 0 }
  for (const module of modules) {
    for (const test of module.children.allTests()) {
      const { state } = test.result()
      counts[state === 'pending' ? 'failed' : state] += 1
    }
    for (const suite of [module, ...module.children.allSuites()]) if (suite.errors().length > 0) counts.failed += 1
    if (module.state() === 'queued' || module.state() === 'pending') counts.failed += 1
  }
  return counts
}
