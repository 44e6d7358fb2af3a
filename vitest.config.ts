import { execFileSync } from 'node:child_process'
import { availableParallelism } from 'node:os'
import { defineConfig } from 'vitest/config'
import { CountReporter } from './test/reporter.ts'

/** In CI it follows from the program and its tests: each change tries other values, and what failed on one fails on it again. Elsewhere each run tries other values, unless TAPROOT_SEED says which. */
function propertySeed(): number | undefined {
  const { TAPROOT_SEED, CI } = process.env
  if (TAPROOT_SEED !== undefined) return Number(TAPROOT_SEED) | 0
  if (CI === undefined) return undefined
  const trees = execFileSync('git', ['rev-parse', 'HEAD:src', 'HEAD:test'], { encoding: 'utf8' }).trim().split('\n')
  return trees.reduce((seed, tree) => seed ^ Number.parseInt(tree.slice(0, 8), 16), 0)
}

const clusterTests = 'test/cluster/**/*.test.ts'

export default defineConfig({
  test: {
    environment: 'node',
    pool: 'forks',
    // Files run servers of their own (etcd, a whole taproot) and wait for them: one more at once than cores fills those, more make all of them slow.
    maxWorkers: Math.min(4, availableParallelism() + 1),
    testTimeout: 30_000,
    // A busy machine may be slow; what never comes costs a red test this long.
    expect: { poll: { timeout: 20_000 } },
    hookTimeout: 120_000,
    teardownTimeout: 30_000,
    setupFiles: ['test/harness/seed-properties.ts'],
    provide: { propertySeed: propertySeed() },
    reporters: ['default', new CountReporter()],
    projects: [
      { extends: true, test: { name: 'main', include: ['test/**/*.test.ts'], exclude: [clusterTests] } },
      // A whole Kubernetes in each file: one after the other, after all others.
      {
        extends: true,
        test: { name: 'cluster', include: [clusterTests], fileParallelism: false, sequence: { groupOrder: 1 }, testTimeout: 300_000, hookTimeout: 900_000 },
      },
    ],
  },
})
