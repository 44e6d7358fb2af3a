import { spawnSync } from 'node:child_process'
import { existsSync, mkdtempSync, rmSync, statfsSync, writeFileSync } from 'node:fs'
import { availableParallelism, tmpdir } from 'node:os'
import { join } from 'node:path'
import { defineConfig } from 'vitest/config'
import { campaigns, chosenCampaigns, SpreadCampaigns } from './test/file-order.ts'
import { CountReporter } from './test/reporter.ts'

/** Follows from the program and its tests as they are committed; 0 outside a git repository. TAPROOT_SEED chooses another. */
function treeSeed(): number {
  const { TAPROOT_SEED } = process.env
  if (TAPROOT_SEED !== undefined) return Number(TAPROOT_SEED) | 0
  const { status, stdout } = spawnSync('git', ['rev-parse', 'HEAD:src', 'HEAD:test'], { encoding: 'utf8' })
  const trees = status === 0 ? stdout.trim().split('\n') : []
  return trees.reduce((seed, tree) => seed ^ Number.parseInt(tree.slice(0, 8), 16), 0)
}

const seed = treeSeed()

/** In CI it follows from the source tree: each change tries other values, and what failed on one fails on it again. Elsewhere each run tries other values, unless TAPROOT_SEED says which. */
function propertySeed(): number | undefined {
  const { TAPROOT_SEED, CI } = process.env
  return TAPROOT_SEED === undefined && CI === undefined ? undefined : seed
}

function leftOutCampaigns(): string[] {
  const { TAPROOT_TESTS: tier } = process.env
  if (tier === 'full') return []
  const chosen = tier === 'all' ? chosenCampaigns(seed) : []
  return Object.keys(campaigns).filter((file) => !chosen.includes(file))
}

const { TAPROOT_TESTS, TAPROOT_SOAK, TAPROOT_SPEC_ALL, TAPROOT_MUTANTS } = process.env
const isFullTier = TAPROOT_TESTS === 'full'

/**
 * A folder for the files of the tests, in memory if there is room. Many tests mostly wait for the disk: servers do so at each commit. It goes with this
 * process. Undefined where memory has too little room, or programs in it do not run.
 */
function folderInMemory(): string | undefined {
  const memory = '/dev/shm'
  // The full tier has large files.
  if (isFullTier || !existsSync(memory)) return undefined
  const { bavail, bsize } = statfsSync(memory)
  if (Math.min(bavail * bsize, process.availableMemory()) < 12 * 2 ** 30) return undefined
  const folder = mkdtempSync(join(memory, 'taproot-tests-'))
  process.once('exit', () => {
    try {
      rmSync(folder, { recursive: true, force: true })
    } catch {
      // A program that a stopped run left behind still writes in it.
    }
  })
  const program = join(folder, 'program')
  writeFileSync(program, '#!/bin/sh\n', { mode: 0o700 })
  return spawnSync(program).status === 0 ? folder : undefined
}

const temporaryFolder = folderInMemory()
const clusterTests = 'test/e2e/cluster/**/*.test.ts'

/**
 * Those of them in `.ci/run`: the image, a container, and the way of a user from the installation to an image that a pod pulls. What follows on it (upgrades, recovery, keys) and
 * what the cluster itself does for tests run in the full tier.
 */
const shortClusterTests = ['test/e2e/cluster/image.test.ts', 'test/e2e/cluster/containers/docker-run.test.ts', 'test/e2e/cluster/install.test.ts']
/** Files that run by their path only, in this tier. The other campaigns run among all tests: they mostly wait, and the others use the processor meanwhile. */
const leftOut = leftOutCampaigns()

/** Files of the full tier alone: the programs that they need take minutes to build. */
const fullTierFiles = ['test/contents/hostile-pushes.test.ts', 'test/contents/syft.test.ts']

/** Files that need a worker of their own, and why. All others share workers: what they change outside themselves, they restore. */
const isolatedTests = {
  'test/transport/transport-grpc-limits.test.ts': 'replaces console.error',
  'test/authz/many-bindings.test.ts': 'measures turns, which collections of a large heap make longer',
  'test/auth/keys/secret-file.test.ts': 'replaces a method of every file handle',
  'test/conformance/cost/cost.test.ts': 'measures turns and the heap',
  'test/conformance/fuzz/fuzz.test.ts': 'measures the heap',
  'test/kubernetes/scale.test.ts': 'measures the heap',
  'test/iam/scim/fuzz.test.ts': 'looks at the prototype of every object',
  'test/cache/cached-record.test.ts': 'measures the heap',
  'test/cache/shared-question.test.ts': 'replaces timers',
  'test/cache/table.test.ts': 'measures the heap',
}

/** Campaigns that need a worker of their own. */
const isolatedCampaigns = { 'test/conformance/fuzz/broken.test.ts': 'measures the heap' }
const isolated = [...Object.keys(isolatedTests), ...Object.keys(isolatedCampaigns).filter((file) => !leftOut.includes(file))]

export default defineConfig({
  test: {
    environment: 'node',
    pool: 'forks',
    // Files wait for servers, leases and outages during a third of their time. Two more workers than cores fill that.
    maxWorkers: Math.min(4, availableParallelism() + 2),
    env: {
      ...(temporaryFolder === undefined ? {} : { TMPDIR: temporaryFolder }),
      // Workers, and the programs that tests start: see test/support/parts/own-program.ts.
      NODE_COMPILE_CACHE: join(import.meta.dirname, 'node_modules', '.cache', 'node-compile-cache'),
      // Programs in Go (etcd, kube-apiserver, kubectl, helm) collect garbage less often: an API server starts in two thirds of the processor time.
      GOGC: '800',
      GOMEMLIMIT: '1GiB',
    },
    // These end a test that hangs; a busy machine needs minutes for some.
    testTimeout: 300_000,
    // A busy machine may be slow; what never comes costs a red test this long.
    expect: { poll: { timeout: 120_000 } },
    hookTimeout: 300_000,
    teardownTimeout: 30_000,
    setupFiles: [
      'test/support/file-cost.ts',
      'test/support/unchanged-globals.ts',
      'test/support/seed-properties.ts',
      ...(TAPROOT_MUTANTS === undefined ? [] : ['test/mutants/hooks.ts']),
    ],
    provide: { propertySeed: propertySeed(), combinationSeed: seed },
    sequence: { sequencer: SpreadCampaigns },
    reporters: ['default', new CountReporter({ hasBudgets: !isFullTier && TAPROOT_SOAK === undefined && TAPROOT_SPEC_ALL === undefined })],
    projects: [
      { extends: true, test: { name: 'isolated', include: isolated } },
      // Many files, one after the other in each worker: modules load once for each worker, and its servers go on from file to file (test/support/parts).
      {
        extends: true,
        test: {
          name: 'main',
          include: ['test/**/*.test.ts'],
          exclude: [clusterTests, ...isolated, ...leftOut, ...(isFullTier ? [] : fullTierFiles)],
          isolate: false,
        },
      },
      // For the run of one of them by its path: the scripts choose the projects.
      ...(leftOut.length === 0 ? [] : [{ extends: true as const, test: { name: 'campaigns', include: leftOut, isolate: false } }]),
      // A whole Kubernetes in each file: one after the other, after all others.
      {
        extends: true,
        test: {
          name: 'cluster',
          // The disks of its nodes are too large for memory.
          env: { TMPDIR: tmpdir() },
          include: isFullTier ? [clusterTests] : shortClusterTests,
          fileParallelism: false,
          sequence: { groupOrder: 1 },
          testTimeout: 300_000,
          hookTimeout: 900_000,
        },
      },
    ],
  },
})
