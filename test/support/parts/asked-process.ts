import { fork, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { inspect } from 'node:util'

const keptOutputCharacters = 20_000
const stopTimeoutMs = 20_000

/** A question to the process; all processes support `stop`. */
interface Asked {
  readonly ask: string
}

interface Reply {
  readonly id?: number
  readonly value?: unknown
  readonly error?: string
}

/** The environment in which programs are found, without server settings. */
function passedOn(): Record<string, string | undefined> {
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('TAPROOT_') && name !== 'NODE_OPTIONS'))
}

/** A child process that answers questions by `answerQuestions`. It ends with this process. */
export class AskedProcess<Question extends Asked, Started> {
  readonly started: Started
  readonly #child: ChildProcess
  readonly #waiting = new Map<number, PromiseWithResolvers<unknown>>()
  #questions = 0
  #output: string

  private constructor(child: ChildProcess, { started, output }: { started: Started; output: string }) {
    this.#child = child
    this.started = started
    this.#output = output
    const keep = (chunk: unknown): void => void (this.#output = (this.#output + String(chunk)).slice(-keptOutputCharacters))
    for (const stream of [child.stderr, child.stdout]) stream?.on('data', keep)
    child.on('message', ({ id = -1, value, error }: Reply) => {
      const waiting = this.#waiting.get(id)
      this.#waiting.delete(id)
      if (error === undefined) waiting?.resolve(value)
      else waiting?.reject(new Error(error))
    })
    child.once('exit', (code, signal) => {
      for (const waiting of this.#waiting.values()) waiting.reject(new Error(`the process ended: code ${code}, signal ${signal}\n${this.#output}`))
    })
  }

  /** Starts the module with these arguments and `TAPROOT_*` settings. Resolves after the process has reported its start; rejects if the process ends before. */
  static async start<Question extends Asked, Started>(
    module: string,
    { args, env }: { readonly args: readonly string[]; readonly env: Readonly<Record<string, string>> },
  ): Promise<AskedProcess<Question, Started>> {
    const child = fork(module, args, {
      execArgv: ['--disable-warning=ExperimentalWarning'],
      env: { ...passedOn(), ...env },
      stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    })
    process.once('exit', () => child.kill('SIGKILL'))
    let output = ''
    const keep = (chunk: unknown): void => void (output += String(chunk))
    for (const stream of [child.stderr, child.stdout]) stream?.on('data', keep)
    const ended = once(child, 'exit').then(() => Promise.reject(new Error(`the process did not start:\n${output}`)))
    // The end is expected at some time.
    ended.catch(() => undefined)
    // The first message that it sends.
    const [{ started }] = (await Promise.race([once(child, 'message'), ended])) as [{ started: Started }]
    for (const stream of [child.stderr, child.stdout]) stream?.off('data', keep)
    return new AskedProcess(child, { started, output })
  }

  get pid(): number | undefined {
    return this.#child.pid
  }

  get running(): boolean {
    return this.#child.exitCode === null && this.#child.signalCode === null
  }

  /** The answer to a question. Rejects if the process fails to answer, or ends. */
  async ask<T>(question: Question): Promise<T> {
    if (!this.running) throw new Error(`the process ended\n${this.#output}`)
    const id = (this.#questions += 1)
    const waiting = Promise.withResolvers<unknown>()
    this.#waiting.set(id, waiting)
    this.#child.send({ id, question })
    return (await waiting.promise) as T
  }

  /** The end of the output since the last call. */
  takeOutput(): string {
    const output = this.#output.trim()
    this.#output = ''
    return output
  }

  /** Asks the process to stop, and kills it after a time-out. */
  async stop(): Promise<void> {
    if (!this.running) return
    const exited = once(this.#child, 'exit')
    this.#child.send({ id: 0, question: { ask: 'stop' } })
    const timer = setTimeout(() => this.#child.kill('SIGKILL'), stopTimeoutMs)
    await exited
    clearTimeout(timer)
  }
}

/** The `TAPROOT_*` settings from the asking process. */
export function chosenSettings(): Record<string, string> {
  return Object.fromEntries(Object.entries(process.env).flatMap(([name, value = '']) => (name.startsWith('TAPROOT_') ? [[name, value] as const] : [])))
}

/** Runs in the process: reports its start, answers questions until `stop`, and ends if its parent has ended. */
export function answerQuestions<Question extends Asked>(
  started: object,
  { answer, stop }: { readonly answer: (question: Exclude<Question, { ask: 'stop' }>) => Promise<unknown>; readonly stop: () => Promise<void> },
): void {
  // The asking process has ended.
  process.on('disconnect', () => process.exit(0))
  process.on('message', ({ id, question }: { id: number; question: Question }) => {
    const reply = (message: Reply): void => void (process.connected && process.send?.({ id, ...message }))
    if (question.ask === 'stop') return void stop().finally(() => process.disconnect?.())
    answer(question as Exclude<Question, { ask: 'stop' }>).then(
      (value) => reply({ value }),
      (error: unknown) => reply({ error: inspect(error) }),
    )
  })
  process.send?.({ started })
}
