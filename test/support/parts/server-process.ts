import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as delay } from 'node:timers/promises'

const keptOutputCharacters = 16_000
const pollMs = 50

/** Options of a server. */
export interface ServerOptions {
  /** Its name in errors. */
  readonly name: string
  /** The program and its arguments. */
  readonly command: readonly string[]
  /** Added to the environment of this process. */
  readonly env?: Readonly<Record<string, string>>
  /** True once the server serves; called repeatedly. */
  readonly isReady: () => Promise<boolean>
  /** 60 s by default. */
  readonly timeoutMs?: number
}

/** A server in a child process: stopped -> `start` -> running -> `kill` -> stopped, and again. It ends with the process of the test. */
export class ServerProcess {
  readonly #options: ServerOptions
  #child: ChildProcess | undefined
  #output = ''

  constructor(options: ServerOptions) {
    this.#options = options
  }

  /** The id of the running process, or 0. */
  get pid(): number {
    return this.running ? (this.#child?.pid ?? 0) : 0
  }

  get running(): boolean {
    return this.#child?.pid !== undefined && this.#child.exitCode === null && this.#child.signalCode === null
  }

  /** The end of its output. */
  get output(): string {
    return this.#output
  }

  /** Starts the server; resolves when it is ready. If it ends before or takes too long, ends it and throws with its output. */
  async start(): Promise<void> {
    const { name, timeoutMs = 60_000, isReady } = this.#options
    this.#spawn()
    const deadline = performance.now() + timeoutMs
    while (!(await isReady())) {
      if (this.running && performance.now() < deadline) {
        await delay(pollMs)
        continue
      }
      await this.kill()
      throw new Error(`${name} did not start:\n${this.#output}`)
    }
  }

  #spawn(): void {
    if (this.running) throw new Error(`${this.#options.name} runs already`)
    const [program = '', ...args] = this.#options.command
    const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, ...this.#options.env } })
    const keep = (chunk: unknown): void => void (this.#output = (this.#output + String(chunk)).slice(-keptOutputCharacters))
    child.stdout.on('data', keep)
    child.stderr.on('data', keep)
    child.on('error', keep)
    const killChild = (): void => void child.kill('SIGKILL')
    process.once('exit', killChild)
    child.once('exit', () => process.off('exit', killChild))
    this.#child = child
  }

  /** Kills the process and waits for its end; does nothing if it is not running. */
  async kill(signal: 'SIGKILL' | 'SIGTERM' = 'SIGKILL'): Promise<void> {
    const child = this.#child
    if (child === undefined || !this.running) return
    const exited = once(child, 'exit')
    child.kill(signal)
    await exited
  }
}
