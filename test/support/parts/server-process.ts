import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as delay } from 'node:timers/promises'

const keptOutputCharacters = 16_000
const pollMs = 50

/** How a server is started. */
export interface ServerOptions {
  /** What it is called in errors. */
  readonly name: string
  /** The program and its arguments. */
  readonly command: readonly string[]
  /** Added to the environment of this process. */
  readonly env?: Readonly<Record<string, string>>
  /** True once it serves; asked again and again. */
  readonly isReady: () => Promise<boolean>
  /** 60 s by default. */
  readonly timeoutMs?: number
}

/** A real server in a process of its own: stopped -> `start` -> running -> `kill` -> stopped, and again. It does not outlive the process of the test. */
export class ServerProcess {
  readonly #options: ServerOptions
  #child: ChildProcess | undefined
  #output = ''

  constructor(options: ServerOptions) {
    this.#options = options
  }

  /** The number of the running process, or 0. */
  get pid(): number {
    return this.running ? (this.#child?.pid ?? 0) : 0
  }

  get running(): boolean {
    return this.#child?.pid !== undefined && this.#child.exitCode === null && this.#child.signalCode === null
  }

  /** What it wrote, the last of it. */
  get output(): string {
    return this.#output
  }

  /** Starts it; resolves when it is ready. Throws with its output, the process gone, where it ends before that or takes too long. */
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

  /** Ends it without warning and waits until it is gone; nothing where it does not run. */
  async kill(signal: 'SIGKILL' | 'SIGTERM' = 'SIGKILL'): Promise<void> {
    const child = this.#child
    if (child === undefined || !this.running) return
    const exited = once(child, 'exit')
    child.kill(signal)
    await exited
  }
}
