import { spawn, spawnSync, type ChildProcess } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { copyFile, mkdtemp, readFile, rm, symlink, mkdir } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { freePorts } from '../../support/parts/free-port.ts'
import { requirePart } from '../../support/parts/require-part.ts'

const repository = join(import.meta.dirname, '..', '..', '..')
/** The files of a clone that the commands need. */
const links = ['package.json', 'package-lock.json', 'node_modules', 'src', 'tools', 'bin', 'proto', 'docs']
/** The folder of this harness: programs, output of blocks that keep running, failed commands. */
const own = 'harness'
/** The ports on the pages. */
const pagePorts = [8080, 9090, 5000, 8081, 9091, 8082, 9092, 2379, 2380, 8443]

/** The output of one block. */
export interface Printed {
  readonly stdout: string
  readonly stderr: string
  /** The commands that failed, each as bash names it with its exit code. */
  readonly failures: readonly string[]
}

/** One bash for all blocks, in a new folder that looks like a clone. Variables and functions stay, as in a person's terminal. */
export interface Terminal {
  run(script: string): Promise<Printed>
  /** Starts a block that keeps running, as in another terminal. Resolves once `isUp` holds for its output. */
  start(script: string, isUp: (printed: string) => boolean): Promise<void>
  /** Returns new files of the folder that git would add: those not ignored. */
  untracked(): string[]
  /** Returns a page's text with replaced ports, if ports were replaced. */
  asShown(text: string): string
  /** Interrupts everything like Ctrl-C and removes the folder. Resolves when all has ended. */
  close(): Promise<void>
}

/** Runs a command in its own network, in which every port is free. On most systems this needs root. */
const isolation = { program: 'unshare', args: ['--net'] } as const
const loopbackUp = ['ip', 'link', 'set', 'lo', 'up'] as const

function hasOwnNetwork(): boolean {
  return spawnSync(isolation.program, [...isolation.args, ...loopbackUp]).status === 0
}

/** Without its own network, other ports replace those of the pages, in the blocks and in settings of listeners on default ports. */
async function standIns(): Promise<{ substitute: (text: string) => string; env: Record<string, string> }> {
  const free = await freePorts(pagePorts.length)
  const standIn = new Map(pagePorts.map((port, at) => [port, String(free[at])]))
  const of = (port: number): string => standIn.get(port) ?? ''
  const development = `TAPROOT_API_PORT=${of(8080)} TAPROOT_OPS_PORT=${of(9090)} TAPROOT_REGISTRY_PORT=${of(5000)}`
  const etcd = `http://127.0.0.1:${of(2379)}`
  const peer = `http://127.0.0.1:${of(2380)}`
  return {
    substitute: (text) =>
      text
        .replace(/\b\d{4}\b/g, (digits) => standIn.get(Number(digits)) ?? digits)
        .replace(/^npm start|npm run --silent taproot -- (?:pull-)?token|\.\/bin\/taproot\.js/gm, `${development} $&`),
    env: {
      ETCD_LISTEN_CLIENT_URLS: etcd,
      ETCD_ADVERTISE_CLIENT_URLS: etcd,
      ETCD_LISTEN_PEER_URLS: peer,
      ETCD_INITIAL_ADVERTISE_PEER_URLS: peer,
      ETCD_INITIAL_CLUSTER: `default=${peer}`,
    },
  }
}

async function makeFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'taproot-docs-'))
  await mkdir(join(folder, own))
  for (const name of links) await symlink(join(repository, name), join(folder, name))
  for (const name of ['etcd', 'grpcurl', 'crane'] as const) await symlink(requirePart(name), join(folder, own, name))
  await copyFile(join(repository, '.gitignore'), join(folder, '.gitignore'))
  git(folder, 'init', '--quiet')
  // Git treats links to folders as files, but its ignore rules name folders.
  git(folder, 'add', '--force', '.')
  return folder
}

function git(folder: string, ...args: string[]): string {
  // Removes variables that git sets for its hooks, because they name another repository.
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('GIT_')))
  const { status, stdout, stderr } = spawnSync('git', args, { cwd: folder, env, encoding: 'utf8' })
  if (status !== 0) throw new Error(`git ${args.join(' ')}: ${stderr}`)
  return stdout
}

/** Resolves once `check` holds; throws with `describe()` after `timeoutMs`. */
async function until(check: () => boolean | Promise<boolean>, describe: () => string, timeoutMs = 60_000): Promise<void> {
  const deadline = performance.now() + timeoutMs
  while (!(await check())) {
    if (performance.now() > deadline) throw new Error(describe())
    await delay(25)
  }
}

/** Opens a terminal. Throws if a real part is missing. */
export async function openTerminal(): Promise<Terminal> {
  const folder = await makeFolder()
  const isolated = hasOwnNetwork()
  const { substitute, env } = isolated ? { substitute: (script: string) => script, env: {} } : await standIns()
  const inherited = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^(?:TAPROOT|ETCD)_|^npm_/i.test(name)))
  const bash = ['bash', '--noprofile', '--norc']
  const [program = '', ...args] = isolated ? [isolation.program, ...isolation.args, ...bash] : bash
  const shell = spawn(program, args, {
    cwd: folder,
    env: { ...inherited, ...env, PATH: `${join(folder, own)}:${process.env['PATH'] ?? ''}` },
    stdio: ['pipe', 'pipe', 'pipe'],
  })
  return new Bash(shell, { folder, isolated, substitute })
}

class Bash implements Terminal {
  readonly #shell: ChildProcess
  readonly #folder: string
  readonly #substitute: (script: string) => string
  readonly #exited: Promise<unknown>
  #stdout = ''
  #stderr = ''
  #started = 0

  constructor(shell: ChildProcess, options: { folder: string; isolated: boolean; substitute: (script: string) => string }) {
    this.#shell = shell
    this.#folder = options.folder
    this.#substitute = options.substitute
    this.#exited = once(shell, 'exit')
    shell.stdout?.on('data', (chunk) => (this.#stdout += String(chunk)))
    shell.stderr?.on('data', (chunk) => (this.#stderr += String(chunk)))
    // With job control each block that keeps running has its own process group, as for Ctrl-C. They end with this shell, the last one first.
    this.#send(`trap 'for job in $(jobs -p | sort -rn); do kill -INT -- -$job; wait $job; done' EXIT`)
    this.#send(`set -m -o pipefail -E; trap 'echo "exit $? of: $BASH_COMMAND" >> ${own}/failures' ERR`)
    if (options.isolated) this.#send(loopbackUp.join(' '))
  }

  async run(script: string): Promise<Printed> {
    const end = `end-${randomBytes(8).toString('hex')}`
    this.#stdout = ''
    this.#stderr = ''
    this.#send(`: > ${own}/failures\n${this.#substitute(script)}\necho; echo ${end}`)
    await until(
      () => this.#stdout.trimEnd().endsWith(end),
      () => `does not end:\n${script}\n${this.#stdout}\n${this.#stderr}`,
    )
    const failures = await readFile(join(this.#folder, own, 'failures'), 'utf8')
    return { stdout: this.#stdout.slice(0, this.#stdout.lastIndexOf(end)), stderr: this.#stderr, failures: failures.split('\n').filter((line) => line !== '') }
  }

  async start(script: string, isUp: (printed: string) => boolean): Promise<void> {
    this.#started += 1
    const file = join(own, `started-${this.#started}.log`)
    let printed = ''
    this.#send(`{ ${this.#substitute(script).trim()}\n} > ${file} 2>&1 < /dev/null &`)
    await until(
      async () => {
        printed = await readFile(join(this.#folder, file), 'utf8').catch(() => '')
        return isUp(printed)
      },
      () => `did not start:\n${script}\n${printed}`,
    )
  }

  untracked(): string[] {
    const names = git(this.#folder, 'ls-files', '--others', '--exclude-standard').split('\n')
    return names.filter((name) => name !== '' && !name.startsWith(`${own}/`))
  }

  asShown(text: string): string {
    return this.#substitute(text)
  }

  async close(): Promise<void> {
    this.#shell.stdin?.end('exit\n')
    const late = setTimeout(() => this.#shell.kill('SIGKILL'), 20_000)
    await this.#exited
    clearTimeout(late)
    await rm(this.#folder, { recursive: true, force: true })
  }

  #send(text: string): void {
    this.#shell.stdin?.write(`${text}\n`)
  }
}
