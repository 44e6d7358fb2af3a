// Puts faults into the program and runs the tests that can find each one: `npm run mutants -- --help`.
import { spawn, type ChildProcess } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { handPickedMutants, type HandPickedMutant } from './hand-picked.ts'
import type { FileCoverage } from './hooks.ts'
import { copyTracked, instrument, type Mutant } from './instrument.ts'

const help = `Makes mutants of src, runs the tests that reach each one, and lists those that no test finds.

npm run mutants -- [options]
  --count N    mutants, chosen over all folders of src (400)
  --seed N     which mutants are chosen, and the values of property tests (1)
  --out DIR    results; a run with the same folder goes on where the last one ended (a new folder)
  --tier T     short: the tests of npm test; full: those of the full tier, for mutants that survived the short one (short)
  --minutes N  time limit of one mutant (10)
  --jobs N     mutants at the same time (2)
  --hand-picked  the faults of test/mutants/hand-picked.ts instead, each against its tests of the full tier
`

const { values } = parseArgs({
  options: {
    count: { type: 'string', default: '400' },
    seed: { type: 'string', default: '1' },
    out: { type: 'string' },
    tier: { type: 'string', default: 'short' },
    minutes: { type: 'string', default: '10' },
    jobs: { type: 'string', default: '2' },
    'hand-picked': { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
})
if (values.help) {
  process.stdout.write(help)
  process.exit(0)
}

const root = join(import.meta.dirname, '..', '..')
const out = values.out ?? mkdtempSync(join(tmpdir(), 'taproot-mutants-'))
const sandbox = join(out, 'sandbox')
const coverageDir = join(out, `coverage-${values.tier}`)
const resultsFile = join(out, 'results.json')
/** Exists once all tests were run without a mutant. */
const coveredFile = join(out, `covered-${values.tier}`)
const jobs = Math.max(1, Math.floor(Number(values.jobs) || 1))
const vitest = join(root, 'node_modules', '.bin', 'vitest')

/** The outcome of a mutant. `killed`: a test failed. `timeout`: the tests did not end. `survived`: no test failed. `unreached`: no test reaches it. */
type Outcome = 'killed' | 'survived' | 'timeout' | 'unreached'
interface Result {
  readonly mutant: Mutant
  /** The number of tests that reach it. */
  readonly tests: number
  readonly outcomes: Partial<Record<string, Outcome>>
}

/** The processes that run tests now. */
const running = new Set<ChildProcess>()

/** Kills the process group of a child, with the programs that tests started. */
function killGroup({ pid }: ChildProcess): void {
  if (pid === undefined) return
  try {
    process.kill(-pid, 'SIGKILL')
  } catch {
    // All processes of the group have ended.
  }
}

for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.once(signal, () => {
    for (const child of running) killGroup(child)
    process.exit(1)
  })
}

/** A run of tests. */
interface TestRun {
  readonly folder: string
  readonly env: Readonly<Record<string, string>>
  readonly minutes: number
  readonly workers: number
}

/** Runs vitest in a sandbox. Resolves with its exit code, or undefined after a time-out. */
async function runTests(args: readonly string[], { folder, env, minutes, workers }: TestRun): Promise<number | undefined> {
  const isFull = values.tier === 'full' || values['hand-picked']
  const projects = ['--project', 'isolated', '--project', 'main']
  const child = spawn(vitest, ['run', ...projects, '--maxWorkers', String(workers), '--silent', '--reporter', 'dot', ...args], {
    cwd: folder,
    stdio: 'ignore',
    detached: true,
    env: { ...process.env, TAPROOT_SEED: values.seed, ...(isFull ? { TAPROOT_TESTS: 'full' } : {}), ...env },
  })
  const { promise, resolve } = Promise.withResolvers<number | undefined>()
  const timer = setTimeout(() => resolve(undefined), minutes * 60_000)
  child.once('exit', (code) => resolve(code ?? 1))
  running.add(child)
  const code = await promise
  running.delete(child)
  clearTimeout(timer)
  killGroup(child)
  return code
}

/** Returns the tests that reach each mutant. Runs those test files once for which this is not known. Tests that fail without a mutant are left out. */
async function coverage(): Promise<ReadonlyMap<string, readonly string[]>> {
  mkdirSync(coverageDir, { recursive: true })
  const known = (): readonly FileCoverage[] => readdirSync(coverageDir).map((name) => JSON.parse(readFileSync(join(coverageDir, name), 'utf8')) as FileCoverage) // of hooks.ts
  if (!existsSync(coveredFile)) {
    const others = known().flatMap(({ file }) => ['--exclude', file])
    const env = { TAPROOT_MUTANTS: '1', TAPROOT_MUTANT_COVERAGE: coverageDir }
    const code = await runTests(others, { folder: sandbox, env, minutes: 120, workers: jobs })
    if (code === undefined) throw new Error('the tests did not end without a mutant: the next run goes on')
    if (code !== 0) process.stdout.write('tests that failed without a mutant are left out\n')
    writeFileSync(coveredFile, '')
  }
  const tests = new Map<string, string[]>()
  for (const [test, mutants] of known().flatMap(({ covered }) => covered)) for (const id of mutants) tests.set(id, [...(tests.get(id) ?? []), test])
  return tests
}

/** Works on all items, on as many at the same time as there are jobs. `job` is from 0. */
async function inJobs<Item>(items: readonly Item[], work: (item: Item, at: number, job: number) => Promise<void>): Promise<void> {
  const left = items.entries()
  const run = async (job: number): Promise<void> => {
    for (const [at, item] of left) await work(item, at, job)
  }
  await Promise.all(Array.from({ length: jobs }, (_, job) => run(job)))
}

/** A sequence of pseudorandom numbers from 0 to 1 that follows from the seed (mulberry32). */
function* randomNumbers(seed: number): Generator<number, never> {
  for (let state = seed | 0; ;) {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    yield ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}

/** Chooses mutants of all folders of src in turn, at random within each. */
function sample(mutants: readonly Mutant[], count: number): readonly Mutant[] {
  const random = randomNumbers(Number(values.seed))
  const keyed = mutants.map((mutant) => ({ mutant, key: random.next().value })).toSorted((one, other) => one.key - other.key)
  const folders = [...Map.groupBy(keyed, ({ mutant }) => mutant.file.split('/').slice(0, 3).join('/')).values()]
  const chosen: Mutant[] = []
  for (let at = 0; chosen.length < Math.min(count, mutants.length); at++)
    for (const folder of folders) if (at < folder.length && chosen.length < count) chosen.push(folder[at]!.mutant)
  return chosen
}

async function outcomeOf(mutant: Mutant, tests: readonly string[], job: number): Promise<Outcome> {
  const selection = join(out, `selection-${job}.json`)
  writeFileSync(selection, JSON.stringify(tests))
  const files = [...new Set(tests.map((test) => test.split(' > ', 1)[0]!))]
  const env = { TAPROOT_MUTANTS: '1', TAPROOT_MUTANT_TESTS: selection, __STRYKER_ACTIVE_MUTANT__: mutant.id }
  const code = await runTests(['--bail', '1', ...files], { folder: sandbox, env, minutes: Number(values.minutes), workers: 1 })
  return code === undefined ? 'timeout' : code === 0 ? 'survived' : 'killed'
}

/** Runs the mutants of Stryker. */
async function runSample(): Promise<void> {
  const mutantsFile = join(out, 'mutants.json')
  if (!existsSync(mutantsFile)) {
    rmSync(sandbox, { recursive: true, force: true })
    const made = await instrument(root, { sandbox, choose: (all) => sample(all, Number(values.count)) })
    writeFileSync(mutantsFile, JSON.stringify(made))
  }
  const mutants = JSON.parse(readFileSync(mutantsFile, 'utf8')) as readonly Mutant[]
  process.stdout.write(`${mutants.length} mutants in ${out}\n`)
  const tests = await coverage()
  const results = new Map(
    (existsSync(resultsFile) ? (JSON.parse(readFileSync(resultsFile, 'utf8')) as Result[]) : []).map((result) => [result.mutant.id, result]),
  )
  await inJobs(mutants, async (mutant, at, job) => {
    const before = results.get(mutant.id)
    const isFound = before?.outcomes['short'] === 'killed' || before?.outcomes['short'] === 'timeout'
    if (before?.outcomes[values.tier] !== undefined || isFound) return
    const reaching = tests.get(mutant.id) ?? []
    const outcome = reaching.length === 0 ? 'unreached' : await outcomeOf(mutant, reaching, job)
    results.set(mutant.id, { mutant, tests: reaching.length, outcomes: { ...before?.outcomes, [values.tier]: outcome } })
    writeFileSync(resultsFile, JSON.stringify([...results.values()], undefined, 1))
    process.stdout.write(
      `${at + 1}/${mutants.length} ${outcome} ${mutant.file}:${mutant.location.start.line + 1} ${mutant.mutator} (${reaching.length} tests)\n`,
    )
  })
  const ends = [...results.values()].map(({ outcomes }) => outcomes[values.tier] ?? outcomes['short'])
  const count = (...wanted: readonly Outcome[]): number => ends.filter((end) => end !== undefined && wanted.includes(end)).length
  process.stdout.write(`${count('killed', 'timeout')} found, ${count('survived')} survived, ${count('unreached')} without a test that reaches them\n`)
}

/** Puts faults into sandboxes, one at a time in each, and runs their tests. */
async function runHandPicked(mutants: readonly HandPickedMutant[]): Promise<void> {
  const sandboxes = Array.from({ length: jobs }, (_, job) => `${sandbox}-${job}`)
  for (const folder of sandboxes) {
    // A run that was interrupted may have left a fault in it.
    rmSync(folder, { recursive: true, force: true })
    copyTracked(root, folder)
  }
  const file = join(out, 'hand-picked.json')
  const results = existsSync(file) ? (JSON.parse(readFileSync(file, 'utf8')) as Record<string, Outcome>) : {} // written below
  if (!existsSync(file)) {
    const code = await runTests([...new Set(mutants.flatMap(({ tests }) => tests))], { folder: sandboxes[0]!, env: {}, minutes: 60, workers: jobs })
    if (code !== 0) process.stdout.write(`the run without a fault ended with ${code ?? 'its time limit'}; its failing tests find every fault\n`)
  }
  await inJobs(mutants, async (mutant, at, job) => {
    if (results[mutant.breaks] !== undefined) return
    const folder = sandboxes[job]!
    const path = join(folder, mutant.file)
    const source = readFileSync(path, 'utf8')
    if (source.split(mutant.from).length !== 2) throw new Error(`${mutant.file} must have this text once: ${mutant.from}`)
    writeFileSync(
      path,
      source.replace(mutant.from, () => mutant.to),
    )
    const code = await runTests(['--bail', '1', ...mutant.tests], { folder, env: {}, minutes: Number(values.minutes), workers: 1 })
    writeFileSync(path, source)
    const outcome = code === undefined ? 'timeout' : code === 0 ? 'survived' : 'killed'
    results[mutant.breaks] = outcome
    writeFileSync(file, JSON.stringify(results, undefined, 1))
    process.stdout.write(`${at + 1}/${mutants.length} ${outcome} ${mutant.file}: ${mutant.breaks}\n`)
  })
}

await (values['hand-picked'] ? runHandPicked(handPickedMutants) : runSample())
