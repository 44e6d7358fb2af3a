import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { onTestFinished } from 'vitest'
import { programEnvironment } from '../../../support/parts/own-program.ts'

/** The program that `npm start` and `npm run taproot` run. */
const program = resolve(import.meta.dirname, '../../../../src/cli/taproot.ts')

/** How a process is started. */
export interface ProcessOptions {
  /** `dev`, `api --config file`, `token --subject s`, ... */
  readonly args: readonly string[]
  /** `TAPROOT_*` settings. Of the environment only the search path is inherited. */
  readonly env?: Readonly<Record<string, string>>
  /** Its working directory, where `./.taproot` is. */
  readonly cwd: string
}

/** The output and exit code of a process. */
export interface Ending {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

/** The command `taproot` in its own process, which is killed after the test if it still runs. */
export class TaprootProcess {
  readonly #child: ChildProcess
  readonly #exited: Promise<unknown>
  #stdout = ''
  #stderr = ''

  constructor({ args, env = {}, cwd }: ProcessOptions) {
    const child = spawn(process.execPath, ['--disable-warning=ExperimentalWarning', program, ...args], {
      cwd,
      env: { ...programEnvironment(), ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    child.stdout.on('data', (chunk) => (this.#stdout += String(chunk)))
    child.stderr.on('data', (chunk) => (this.#stderr += String(chunk)))
    this.#child = child
    this.#exited = once(child, 'close')
    const kill = (): void => void child.kill('SIGKILL')
    process.once('exit', kill)
    child.once('exit', () => process.off('exit', kill))
  }

  get pid(): number {
    if (this.#child.pid === undefined) throw new Error('the process was not started')
    return this.#child.pid
  }

  get stdout(): string {
    return this.#stdout
  }

  get running(): boolean {
    return this.#child.exitCode === null && this.#child.signalCode === null
  }

  /** Sends a signal and waits for the end. */
  async end(signal: 'SIGINT' | 'SIGTERM' | 'SIGKILL'): Promise<Ending> {
    this.#child.kill(signal)
    return this.ending()
  }

  /** Waits until the process ended and all its output was read. */
  async ending(): Promise<Ending> {
    await this.#exited
    return { code: this.#child.exitCode, stdout: this.#stdout, stderr: this.#stderr }
  }

  /** Waits until `condition` holds. Throws with the output if the process ends before, or hangs for two minutes. */
  async until(condition: () => boolean | Promise<boolean>): Promise<void> {
    const deadline = performance.now() + 120_000
    while (!(await condition())) {
      if (!this.running || performance.now() > deadline) throw new Error(`the process is not up:\n${this.#stdout}\n${this.#stderr}`)
      await delay(10)
    }
  }
}

/** Starts the command; it is killed after the test. */
export function startProcess(options: ProcessOptions): TaprootProcess {
  const started = new TaprootProcess(options)
  onTestFinished(async () => {
    if (started.running) await started.end('SIGKILL')
  })
  return started
}

/** Runs the command to its end. */
export function runProcess(options: ProcessOptions): Promise<Ending> {
  return startProcess(options).ending()
}

/** An empty directory that is removed after the test. */
export async function freshDirectory(): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'taproot-process-'))
  // A killed process may still write while it ends.
  onTestFinished(() => rm(directory, { recursive: true, force: true, maxRetries: 3 }))
  return directory
}

/** Returns whether `/readyz` on this ops port reports ready. */
export async function isReady(opsPort: number): Promise<boolean> {
  try {
    const response = await fetch(`http://127.0.0.1:${opsPort}/readyz`)
    await response.body?.cancel()
    return response.ok
  } catch {
    // Nothing listens yet.
    return false
  }
}
