import { existsSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { Child } from './child.ts'
import { until } from './until.ts'

const root = resolve(import.meta.dirname, '../../..')

/** Returns the program in a source tree. Versions before 0.2.0 have it in src/cmd. */
function programIn(source: string): string {
  const program = join(source, 'src/cli/taproot.ts')
  return existsSync(program) ? program : join(source, 'src/cmd/taproot.ts')
}

const clock = join(import.meta.dirname, 'jumping-clock.ts')

/** Maximum time until a process is ready, with a store that answers. */
export const apiStartMs = 60_000

/** The folder and settings of an `api` process that is started repeatedly. */
export interface ApiOptions {
  readonly name: string
  readonly directory: string
  readonly env: Readonly<Record<string, string>>
  readonly ports: { readonly api: number; readonly ops: number }
}

/** One `taproot api` process. */
export class ApiProcess {
  readonly name: string
  readonly ports: ApiOptions['ports']
  readonly logFile: string
  readonly #child: Child
  #offsetMs = 0
  #source = root

  constructor({ name, directory, env, ports }: ApiOptions) {
    this.name = name
    this.ports = ports
    this.logFile = join(directory, `${name}.log`)
    this.#child = new Child({ command: [], env, cwd: directory, logFile: this.logFile, channel: true })
  }

  get running(): boolean {
    return this.#child.running
  }

  /** True once it ended without being killed, also after a restart. */
  get died(): boolean {
    return this.#child.died
  }

  get pid(): number | undefined {
    return this.#child.pid
  }

  get url(): string {
    return `http://127.0.0.1:${this.ports.api}`
  }

  start(): void {
    const command = [process.execPath, '--disable-warning=ExperimentalWarning', '--import', clock, programIn(this.#source), 'api']
    this.#child.start({ command, env: { FAULTS_CLOCK_OFFSET_MS: String(this.#offsetMs) } })
  }

  /** Changes the version of the program for the next start, or back to the current one. */
  changeVersion(other: string): void {
    this.#source = this.#source === root ? other : root
  }

  /** Starts it and waits until it is ready. */
  async restart(signal?: AbortSignal): Promise<void> {
    this.start()
    await this.ready(signal)
  }

  /** Kills it without warning and waits until it is gone. */
  kill(): Promise<void> {
    return this.#child.kill()
  }

  pause(): void {
    this.#child.pause()
  }

  resume(): void {
    this.#child.resume()
  }

  /** Sets its wall clock to the machine's plus an offset, also after a restart. */
  jump(offsetMs: number): void {
    this.#offsetMs = offsetMs
    this.#child.send({ offsetMs })
  }

  /** Resolves once `/readyz` succeeds. Throws if the process ended by itself. Waits for a killed process, which another part of the run restarts. */
  async ready(signal?: AbortSignal): Promise<void> {
    const look = async (): Promise<boolean> => {
      if (this.died) throw new Error(`${this.name} has ended by itself, see ${this.logFile}`)
      return this.isReady()
    }
    await until(look, { withinMs: apiStartMs, what: `${this.name} is ready`, signal })
  }

  /** Returns whether `/readyz` reports ready. */
  async isReady(): Promise<boolean> {
    try {
      const response = await fetch(`http://127.0.0.1:${this.ports.ops}/readyz`, { signal: AbortSignal.timeout(2_000) })
      await response.body?.cancel()
      return response.ok
    } catch {
      // Nothing listens yet, or it is suspended.
      return false
    }
  }
}
