/** `npm run bench:trees`: processor time of a REST Get in two states of the source, in alternating rounds of one run. */
import { execFileSync, spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { startGenerator } from './load/start-generator.ts'
import { compare, type Candidate, type Rounds } from './measure.ts'
import { answers, Child, onFreePorts } from './subjects/child.ts'

const help = `npm run bench:trees -- --before REF [options]
Compares the processor time of a REST Get in two states of the source. Both run with the packages of this checkout.
  --before REF    a commit or tag
  --after REF     another one (default: HEAD)
  --rounds N      rounds of each comparison (40)
  --seconds S     length of a round (0.5)
`
const root = join(import.meta.dirname, '..')

/** A development server of a tree, under load. */
interface Subject extends Candidate {
  stop(): Promise<void>
}

/** Extracts a commit into a new folder. */
function extract(ref: string, folder: string): string {
  mkdirSync(folder)
  execFileSync('tar', ['-x', '-C', folder], { input: execFileSync('git', ['archive', ref], { cwd: root, maxBuffer: 1024 ** 3 }) })
  symlinkSync(join(root, 'node_modules'), join(folder, 'node_modules'))
  return folder
}

async function start(name: string, tree: string, folder: string): Promise<Subject> {
  mkdirSync(folder)
  return onFreePorts(3, async ([port = 0, ops = 0, registry = 0]) => {
    const ports = { TAPROOT_API_PORT: String(port), TAPROOT_OPS_PORT: String(ops), TAPROOT_REGISTRY_PORT: String(registry) }
    const env = { PATH: process.env['PATH'], HOME: folder, ...ports }
    const child = new Child([process.execPath, join(tree, 'bin', 'taproot.js'), 'dev'], { cwd: folder, env })
    await child.until(() => answers(`http://127.0.0.1:${ops}/readyz`), 120_000)
    const token = async (): Promise<string> => (await readFile(join(folder, '.taproot', 'token'), 'utf8')).trim()
    await child.until(() => token().then(Boolean, () => false), 60_000)
    const headers = { authorization: `Bearer ${await token()}` }
    const listed = (await (await fetch(`http://127.0.0.1:${port}/iam/v2/groups`, { headers })).json()) as {
      items?: { uid: string }[]
      groups?: { uid: string }[]
    } // the answer of ListGroups
    const uid = (listed.groups ?? listed.items)?.[0]?.uid
    if (uid === undefined) throw new Error(`${name} has no group`)
    const generator = await startGenerator({
      kind: 'http',
      port,
      tls: false,
      connections: 16,
      headers,
      requests: [{ method: 'GET', path: `/iam/v2/groups/${uid}` }],
    })
    return { name, generator, pids: [child.pid], stop: () => generator.close().finally(() => child.stop()) }
  })
}

/** What the command line asks for. */
interface TreesOptions {
  readonly before: string
  readonly after: string
  readonly rounds: Rounds
}

/** Ends the program with one line that says what is wrong. */
function refuse(complaint: string): never {
  process.stderr.write(`${complaint}\n`)
  process.exit(2)
}

function positive(text: string, option: string): number {
  return Number(text) > 0 ? Number(text) : refuse(`${option} needs a positive number`)
}

/** Returns the commit that a ref names. */
function commitOf(ref: string): string {
  const { status, stdout } = spawnSync('git', ['rev-parse', '--verify', '--quiet', '--end-of-options', `${ref}^{commit}`], { cwd: root, encoding: 'utf8' })
  return status === 0 ? stdout.trim() : refuse(`${ref} is not a commit of this checkout`)
}

function readOptions(): TreesOptions {
  const options = {
    before: { type: 'string' },
    after: { type: 'string', default: 'HEAD' },
    rounds: { type: 'string', default: '40' },
    seconds: { type: 'string', default: '0.5' },
    help: { type: 'boolean', default: false },
  } as const
  try {
    const { help: isHelp, before, after, rounds, seconds } = parseArgs({ options }).values
    if (isHelp) {
      process.stdout.write(help)
      process.exit(0)
    }
    if (before === undefined) refuse('--before needs a commit or tag (--help)')
    return { before, after, rounds: { rounds: positive(rounds, '--rounds'), milliseconds: positive(seconds, '--seconds') * 1000 } }
  } catch (error) {
    if (error instanceof TypeError) refuse(error.message)
    throw error
  }
}

const { before, after, rounds } = readOptions()
const commits = { before: commitOf(before), after: commitOf(after) }
const folder = mkdtempSync(join(tmpdir(), 'taproot-trees-'))
const subjects: Subject[] = []
try {
  const trees = { before: extract(commits.before, join(folder, 'before')), after: extract(commits.after, join(folder, 'after')) }
  const started = async (name: string, tree: string): Promise<Subject> => {
    const subject = await start(name, tree, join(folder, `data-${subjects.length}`))
    subjects.push(subject)
    return subject
  }
  const first = await started(before, trees.before)
  // The same source twice shows how precise the ratio is.
  for (const second of [await started(`${before}, a second time`, trees.before), await started(after, trees.after)]) {
    const { measured, cpu } = await compare(first, second, rounds)
    const [one, other] = measured.map(({ cpuMicros }) => cpuMicros.toFixed(1))
    process.stdout.write(`${second.name}: ${other} µs of processor time, ${(1 / cpu).toFixed(3)} times that of ${first.name} (${one} µs)\n`)
  }
} finally {
  await Promise.allSettled(subjects.map((subject) => subject.stop()))
  rmSync(folder, { recursive: true, force: true })
}
