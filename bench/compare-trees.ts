/** `npm run bench:trees`: processor time of a GET in two states of the source, in alternating rounds of one run. */
import { execFileSync, spawnSync } from 'node:child_process'
import { hash } from 'node:crypto'
import { mkdirSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { startGenerator } from './load/start-generator.ts'
import { compareAll, type Candidate, type Measured, type Rounds } from './measure.ts'
import { answers, Child, onFreePorts } from './subjects/child.ts'

const help = `npm run bench:trees -- --before REF [options]
Compares the processor time of a GET in two states of the source. Both run with the packages of this checkout.
  --before REF    a commit or tag
  --after REF     another one (default: HEAD)
  --call C        group (default): a record over REST. manifest, tag, blob: a pull by digest, by tag, or of a layer
  --rounds N      rounds (40); in each of them, all servers are measured
  --seconds S     length of a round (0.5)
`
const root = join(import.meta.dirname, '..')
/** How long each server answers before it is measured, in milliseconds. */
const warmUpMs = 10_000

interface NamedGroup {
  readonly uid: string
  readonly name: string
}

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

/** What is asked for. */
const calls = ['group', 'manifest', 'tag', 'blob'] as const
type Call = (typeof calls)[number]

/** A request, and the port and credential that it needs. */
interface Target {
  readonly port: number
  readonly path: string
  readonly headers: Readonly<Record<string, string>>
}

/** Throws if the answer is an error. */
async function answerTo(url: string, init: RequestInit): Promise<Response> {
  const response = await fetch(url, init)
  if (!response.ok) throw new Error(`${init.method ?? 'GET'} ${url} answered ${response.status}: ${await response.text()}`)
  return response
}

/** Pushes an image. Resolves with the request that pulls it, or a part of it. */
async function pushedImage(call: Exclude<Call, 'group'>, { port, path, token }: { port: number; path: string; token: string }): Promise<Target> {
  const host = `http://127.0.0.1:${port}`
  const challenge = (await fetch(`${host}/v2/`)).headers.get('www-authenticate') ?? ''
  const service = /service="([^"]*)"/.exec(challenge)?.[1] ?? ''
  const query = new URLSearchParams({ service, scope: `repository:${path}:pull,push` })
  const basic = { authorization: `Basic ${Buffer.from(`_token:${token}`).toString('base64')}` }
  const answer = (await (await answerTo(`${host}/token?${query.toString()}`, { headers: basic })).json()) as { token: string } // of the distribution token protocol
  const headers = { authorization: `Bearer ${answer.token}` }
  const blob = async (mediaType: string, bytes: Buffer): Promise<{ mediaType: string; size: number; digest: string }> => {
    const digest = `sha256:${hash('sha256', bytes)}`
    const location = (await answerTo(`${host}/v2/${path}/blobs/uploads/`, { method: 'POST', headers })).headers.get('location') ?? ''
    const url = new URL(location, host)
    url.searchParams.set('digest', digest)
    await answerTo(url.href, { method: 'PUT', headers, body: new Uint8Array(bytes) })
    return { mediaType, size: bytes.length, digest }
  }
  const config = await blob('application/vnd.oci.image.config.v1+json', Buffer.from('{"architecture":"amd64","os":"linux"}'))
  const layer = await blob('application/vnd.oci.image.layer.v1.tar', Buffer.alloc(1024, 'layer'))
  const mediaType = 'application/vnd.oci.image.manifest.v1+json'
  const manifest = JSON.stringify({ schemaVersion: 2, mediaType, config, layers: [layer] })
  const put = { method: 'PUT', headers: { ...headers, 'content-type': mediaType }, body: manifest }
  const digest = (await answerTo(`${host}/v2/${path}/manifests/v1`, put)).headers.get('docker-content-digest') ?? ''
  const part = { manifest: `manifests/${digest}`, tag: 'manifests/v1', blob: `blobs/${layer.digest}` }[call]
  return { port, path: `/v2/${path}/${part}`, headers }
}

async function start(name: string, { tree, folder, call }: { tree: string; folder: string; call: Call }): Promise<Subject> {
  mkdirSync(folder)
  return onFreePorts(3, async ([port = 0, ops = 0, registry = 0]) => {
    const ports = { TAPROOT_API_PORT: String(port), TAPROOT_OPS_PORT: String(ops), TAPROOT_REGISTRY_PORT: String(registry) }
    const env = { PATH: process.env['PATH'], HOME: folder, ...ports }
    const child = new Child([process.execPath, join(tree, 'bin', 'taproot.js'), 'dev'], { cwd: folder, env })
    await child.until(() => answers(`http://127.0.0.1:${ops}/readyz`), 120_000)
    const token = async (file: string): Promise<string> => (await readFile(join(folder, '.taproot', file), 'utf8')).trim()
    const isWritten = (): Promise<boolean> =>
      Promise.all(['token', 'registry-token'].map(token)).then(
        () => true,
        () => false,
      )
    await child.until(isWritten, 60_000)
    const headers = { authorization: `Bearer ${await token('token')}` }
    const listed = (await (await fetch(`http://127.0.0.1:${port}/iam/v2/groups`, { headers })).json()) as {
      items?: NamedGroup[]
      groups?: NamedGroup[]
    } // the answer of ListGroups
    const group = (listed.groups ?? listed.items)?.[0]
    if (group === undefined) throw new Error(`${name} has no group`)
    const target: Target =
      call === 'group'
        ? { port, path: `/iam/v2/groups/${group.uid}`, headers }
        : await pushedImage(call, { port: registry, path: `${group.name}/bench`, token: await token('registry-token') })
    const generator = await startGenerator({
      ...{ kind: 'http', tls: false, connections: 16, port: target.port, headers: target.headers },
      requests: [{ method: 'GET', path: target.path }],
    })
    return { name, generator, pids: [child.pid], stop: () => generator.close().finally(() => child.stop()) }
  })
}

/** What the command line asks for. */
interface TreesOptions {
  readonly before: string
  readonly after: string
  readonly call: Call
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
    call: { type: 'string', default: 'group' },
    rounds: { type: 'string', default: '40' },
    seconds: { type: 'string', default: '0.5' },
    help: { type: 'boolean', default: false },
  } as const
  try {
    const { help: isHelp, before, after, call, rounds, seconds } = parseArgs({ options }).values
    if (isHelp) {
      process.stdout.write(help)
      process.exit(0)
    }
    if (before === undefined) refuse('--before needs a commit or tag (--help)')
    const known = calls.find((one) => one === call) ?? refuse(`--call needs one of ${calls.join(', ')}`)
    return { before, after, call: known, rounds: { rounds: positive(rounds, '--rounds'), milliseconds: positive(seconds, '--seconds') * 1000 } }
  } catch (error) {
    if (error instanceof TypeError) refuse(error.message)
    throw error
  }
}

const { before, after, call, rounds } = readOptions()
const commits = { before: commitOf(before), after: commitOf(after) }
const folder = mkdtempSync(join(tmpdir(), 'taproot-trees-'))
const subjects: Subject[] = []
try {
  const trees = { before: extract(commits.before, join(folder, 'before')), after: extract(commits.after, join(folder, 'after')) }
  const started = async (name: string, tree: string): Promise<Subject> => {
    const subject = await start(name, { tree, folder: join(folder, `data-${subjects.length}`), call })
    subjects.push(subject)
    return subject
  }
  const first = await started(before, trees.before)
  // The same source twice shows how precise the ratio is.
  const others = [await started(`${before}, a second time`, trees.before), await started(after, trees.after)]
  // A server gets faster for some seconds after its start, and an image that was just pushed is read meanwhile.
  for (const { generator } of [first, ...others]) await generator.round(warmUpMs)
  for (const { measured, cpu } of await compareAll(first, others, rounds)) {
    const [one, other] = measured
    const micros = ({ cpuMicros }: Measured): string => `${cpuMicros.toFixed(1)} µs`
    process.stdout.write(`${other.name}: ${micros(other)} of processor time, ${cpu.toFixed(3)} times that of ${one.name} (${micros(one)})\n`)
  }
} finally {
  await Promise.allSettled(subjects.map((subject) => subject.stop()))
  rmSync(folder, { recursive: true, force: true })
}
