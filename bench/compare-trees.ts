/** `npm run bench:trees`: processor time of a REST Get in two states of the source, in alternating rounds of one run. */
import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { startGenerator } from './load/start-generator.ts'
import { compare, type Candidate } from './measure.ts'
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

const { values } = parseArgs({
  options: {
    before: { type: 'string' },
    after: { type: 'string', default: 'HEAD' },
    rounds: { type: 'string', default: '40' },
    seconds: { type: 'string', default: '0.5' },
    help: { type: 'boolean', default: false },
  },
})
const { before, after } = values
if (values.help || before === undefined) {
  process.stdout.write(help)
  process.exit(values.help ? 0 : 2)
}
const folder = mkdtempSync(join(tmpdir(), 'taproot-trees-'))
const subjects: Subject[] = []
try {
  const trees = { before: extract(before, join(folder, 'before')), after: extract(after, join(folder, 'after')) }
  const started = async (name: string, tree: string): Promise<Subject> => {
    const subject = await start(name, tree, join(folder, `data-${subjects.length}`))
    subjects.push(subject)
    return subject
  }
  const first = await started(before, trees.before)
  const rounds = { rounds: Number(values.rounds), milliseconds: Number(values.seconds) * 1000 }
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
