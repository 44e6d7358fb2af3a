import { spawn, type ChildProcess, type SpawnOptions } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as delay } from 'node:timers/promises'
import { freePorts } from '../../test/support/parts/free-port.ts'

const portAttempts = 4
/** Maximum number of characters of a process's output in an error message. */
const shownOutput = 2000

/** A server process. It is killed when the benchmark ends. Its output is kept for error messages. */
export class Child {
  readonly process: ChildProcess
  #output = ''

  constructor(command: readonly string[], options: SpawnOptions = {}) {
    const [program = '', ...args] = command
    const child = spawn(program, args, { stdio: ['ignore', 'ignore', 'pipe'], ...options })
    child.stderr?.on('data', (chunk) => (this.#output = (this.#output + String(chunk)).slice(-20_000)))
    const kill = (): void => void child.kill('SIGKILL')
    process.once('exit', kill)
    child.once('exit', () => process.off('exit', kill))
    this.process = child
  }

  get pid(): number {
    return this.process.pid ?? 0
  }

  /** The last part of its standard error output. */
  get output(): string {
    return this.#output
  }

  get running(): boolean {
    return this.process.exitCode === null && this.process.signalCode === null
  }

  /**
   * Checks `condition` every 20 ms until it is true. If that takes longer than `timeoutMs`, or the process ends, kills it and throws with
   * its output.
   */
  async until(condition: () => Promise<boolean>, timeoutMs: number): Promise<void> {
    const deadline = performance.now() + timeoutMs
    while (!(await condition())) {
      if (!this.running || performance.now() > deadline) {
        await this.stop()
        throw new Error(`${this.process.spawnargs[0] ?? ''} did not start:\n${this.#output.slice(-shownOutput)}`)
      }
      await delay(20)
    }
  }

  async stop(signal: 'SIGTERM' | 'SIGKILL' = 'SIGKILL'): Promise<void> {
    if (!this.running) return
    const exited = once(this.process, 'exit')
    this.process.kill(signal)
    await exited
  }
}

/** Returns true if an HTTP server answers with status 200. */
export async function answers(url: string): Promise<boolean> {
  try {
    const response = await fetch(url, { signal: AbortSignal.timeout(2000) })
    await response.body?.cancel()
    return response.ok
  } catch {
    // No server listens yet.
    return false
  }
}

/** Starts servers on free ports. Tries other ports if another program takes one of them meanwhile. */
export async function onFreePorts<T>(count: number, start: (ports: readonly number[]) => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await start(await freePorts(count))
    } catch (error) {
      if (attempt === portAttempts || !(error instanceof Error) || !/in use/.test(error.message)) throw error
    }
  }
}
