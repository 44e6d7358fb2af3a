import { spawn, type ChildProcess } from 'node:child_process'
import { openSync, closeSync } from 'node:fs'
import { programEnvironment } from '../../support/parts/own-program.ts'

/** Options of a program. */
export interface ChildOptions {
  readonly command: readonly string[]
  readonly env?: Readonly<Record<string, string>>
  readonly cwd: string
  /** Its output is added to this file. */
  readonly logFile: string
  /** Opens a message channel to a Node program. */
  readonly channel?: boolean
}

/** A program that can be killed, suspended and restarted. It never outlives this process. */
export class Child {
  readonly #options: ChildOptions
  #process: ChildProcess | undefined
  #killed = false
  #died = false

  constructor(options: ChildOptions) {
    this.#options = options
  }

  get running(): boolean {
    const child = this.#process
    return child !== undefined && child.exitCode === null && child.signalCode === null
  }

  /** The running process's id; undefined where none runs. */
  get pid(): number | undefined {
    return this.running ? this.#process?.pid : undefined
  }

  /** Starts the program. `changes` override its command and environment. */
  start(changes: { readonly command?: readonly string[]; readonly env?: Readonly<Record<string, string>> } = {}): void {
    if (this.running) throw new Error('it runs already')
    const { command, env = {}, cwd, logFile, channel = false } = { ...this.#options, ...(changes.command === undefined ? {} : { command: changes.command }) }
    const [program = '', ...args] = command
    const log = openSync(logFile, 'a')
    const child = spawn(program, args, {
      cwd,
      env: { ...programEnvironment(), ...env, ...changes.env },
      stdio: channel ? ['ignore', log, log, 'ipc'] : ['ignore', log, log],
    })
    closeSync(log)
    // A program that can't be started counts as one that died.
    child.on('error', () => undefined)
    this.#process = child
    this.#killed = false
    const kill = (): void => void child.kill('SIGKILL')
    process.once('exit', kill)
    child.once('exit', (_code, signal) => {
      process.off('exit', kill)
      // A program that ended just before its kill ended by itself.
      if (!this.#killed || signal !== 'SIGKILL') this.#died = true
    })
  }

  /** True once it ended without being killed, also after a restart. */
  get died(): boolean {
    return this.#died
  }

  /** Kills it without warning and waits until it is gone. */
  async kill(): Promise<void> {
    const child = this.#process
    if (child === undefined || !this.running) return
    this.#killed = true
    // `events.once` would reject on any other error of the program.
    const { promise, resolve } = Promise.withResolvers<unknown>()
    child.once('exit', resolve)
    child.kill('SIGKILL')
    await promise
  }

  /** Suspends it. */
  pause(): void {
    this.#process?.kill('SIGSTOP')
  }

  /** Resumes it. */
  resume(): void {
    this.#process?.kill('SIGCONT')
  }

  /** Sends a message over the channel. A message to a program that was just killed is lost. */
  send(message: Readonly<Record<string, unknown>>): void {
    if (this.running) this.#process?.send(message, () => undefined)
  }
}
