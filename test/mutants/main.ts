// Puts faults into the program and runs the tests that can find each one: `npm run mutants -- --help`.
import { spawn } from 'node:child_process'
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { handPickedMutants, type HandPickedMutant } from './hand-picked.ts'
import { copyTracked, instrument, type Mutant } from './instrument.ts'

const help = `Makes mutants of src, runs the tests that reach each one, and lists those that no test finds.

npm run mutants -- [options]
  --count N    mutants, chosen over all folders of src (400)
  --seed N     which mutants are chosen, and the values of property tests (1)
  --out DIR    results; a run with the same folder goes on where the last one ended (a new folder)
  --tier T     short: the tests of npm test; full: those of the full tier, for mutants that survived the short one (short)
  --minutes N  time limit of one mutant (10)
  --hand-picked  the faults of test/mutants/hand-picked.ts instead, each against its tests of the full tier
`

const { values } = parseArgs({
  options: {
    count: { type: 'string', default: '400' },
    seed: { type: 'string', default: '1' },
    out: { type: 'string' },
    tier: { type: 'string', default: 'short' },
    minutes: { type: 'string', default: '10' },
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
const vitest = join(root, 'node_modules', '.bin', 'vitest')

/** The outcome of a mutant. `killed`: a test failed. `timeout`: the tests did not end. `survived`: no test failed. `unreached`: no test reaches it. */
type Outcome = 'killed' | 'survived' | 'timeout' | 'unreached'
interface Result {
  readonly mutant: Mutant
  /** The number of tests that reach it. */
  readonly tests: number
  readonly outcomes: Partial<Record<string, Outcome>>
}

/** Runs vitest in the sandbox. Resolves with its exit code, or undefined after a time-out. */
async function runTests(
  args: readonly string[],
  { env, minutes }: { readonly env: Readonly<Record<string, string>>; readonly minutes: number },
): Promise<number | undefined> {
  const isFull = values.tier === 'full' || values['hand-picked']
  const child = spawn(vitest, ['run', '--project', 'isolated', '--project', 'main', '--maxWorkers', '1', '--silent', '--reporter', 'dot', ...args], {
    cwd: sandbox,
    stdio: 'ignore',
    detached: true,
    env: { ...process.env, TAPROOT_SEED: values.seed, ...(isFull ? { TAPROOT_TESTS: 'full' } : {}), ...env },
  })
  const { promise, resolve } = Promise.withResolvers<number | undefined>()
  const timer = setTimeout(() => resolve(undefined), minutes * 60_000)
  child.once('exit', (code) => resolve(code ?? 1))
  const code = await promise
  clearTimeout(timer)
  try {
    // Kills the process group, including programs that tests started.
    process.kill(-(child.pid ?? 0), 'SIGKILL')
  } catch {
    // All processes of the group have ended.
  }
  return code
}

/** Returns the tests that reach each mutant. Runs all tests once if this is not known. */
async function coverage(): Promise<ReadonlyMap<string, readonly string[]>> {
  if (!existsSync(coverageDir)) {
    const code = await runTests([], { env: { TAPROOT_MUTANTS: '1', TAPROOT_MUTANT_COVERAGE: coverageDir }, minutes: 120 })
    if (code !== 0) process.stdout.write(`the run without a mutant ended with ${code ?? 'its time limit'}; its failing tests find every mutant\n`)
  }
  const tests = new Map<string, string[]>()
  for (const name of readdirSync(coverageDir))
    for (const [test, mutants] of JSON.parse(readFileSync(join(coverageDir, name), 'utf8')) as [string, string[]][])
      for (const id of mutants) tests.set(id, [...(tests.get(id) ?? []), test])
  return tests
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

async function outcomeOf(mutant: Mutant, tests: readonly string[]): Promise<Outcome> {
  const selection = join(out, 'selection.json')
  writeFileSync(selection, JSON.stringify(tests))
  const files = [...new Set(tests.map((test) => test.split(' > ', 1)[0]!))]
  const env = { TAPROOT_MUTANTS: '1', TAPROOT_MUTANT_TESTS: selection, __STRYKER_ACTIVE_MUTANT__: mutant.id }
  const code = await runTests(['--bail', '1', ...files], { env, minutes: Number(values.minutes) })
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
  for (const [at, mutant] of mutants.entries()) {
    const before = results.get(mutant.id)
    const isFound = before?.outcomes['short'] === 'killed' || before?.outcomes['short'] === 'timeout'
    if (before?.outcomes[values.tier] !== undefined || isFound) continue
    const reaching = tests.get(mutant.id) ?? []
    const outcome = reaching.length === 0 ? 'unreached' : await outcomeOf(mutant, reaching)
    results.set(mutant.id, { mutant, tests: reaching.length, outcomes: { ...before?.outcomes, [values.tier]: outcome } })
    writeFileSync(resultsFile, JSON.stringify([...results.values()], undefined, 1))
    process.stdout.write(
      `${at + 1}/${mutants.length} ${outcome} ${mutant.file}:${mutant.location.start.line + 1} ${mutant.mutator} (${reaching.length} tests)\n`,
    )
  }
  const ends = [...results.values()].map(({ outcomes }) => outcomes[values.tier] ?? outcomes['short'])
  const count = (...wanted: readonly Outcome[]): number => ends.filter((end) => end !== undefined && wanted.includes(end)).length
  process.stdout.write(`${count('killed', 'timeout')} found, ${count('survived')} survived, ${count('unreached')} without a test that reaches them\n`)
}

/** Puts one fault after the other into the sandbox, and runs its tests. */
async function runHandPicked(mutants: readonly HandPickedMutant[]): Promise<void> {
  if (!existsSync(sandbox)) copyTracked(root, sandbox)
  const file = join(out, 'hand-picked.json')
  const results = existsSync(file) ? (JSON.parse(readFileSync(file, 'utf8')) as Record<string, Outcome>) : {} // written below
  if (!existsSync(file)) {
    const code = await runTests([...new Set(mutants.flatMap(({ tests }) => tests))], { env: {}, minutes: 60 })
    if (code !== 0) process.stdout.write(`the run without a fault ended with ${code ?? 'its time limit'}; its failing tests find every fault\n`)
  }
  for (const [at, mutant] of mutants.entries()) {
    if (results[mutant.breaks] !== undefined) continue
    const path = join(sandbox, mutant.file)
    const source = readFileSync(path, 'utf8')
    if (source.split(mutant.from).length !== 2) throw new Error(`${mutant.file} must have this text once: ${mutant.from}`)
    writeFileSync(
      path,
      source.replace(mutant.from, () => mutant.to),
    )
    const code = await runTests(['--bail', '1', ...mutant.tests], { env: {}, minutes: Number(values.minutes) })
    writeFileSync(path, source)
    const outcome = code === undefined ? 'timeout' : code === 0 ? 'survived' : 'killed'
    results[mutant.breaks] = outcome
    writeFileSync(file, JSON.stringify(results, undefined, 1))
    process.stdout.write(`${at + 1}/${mutants.length} ${outcome} ${mutant.file}: ${mutant.breaks}\n`)
  }
}

await (values['hand-picked'] ? runHandPicked(handPickedMutants) : runSample())
