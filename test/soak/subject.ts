import { fork, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { grpcDoor, restDoor, type Door } from '../harness/doors.ts'
import type { Question, Started } from './protocol.ts'

/** The process under test, seen from outside: calls over its ports, questions by message, what the system counts of it. */
export class Subject {
  readonly rest: Door
  readonly grpc: Door
  readonly started: Started
  readonly #child: ChildProcess
  readonly #waiting = new Map<number, PromiseWithResolvers<unknown>>()
  #questions = 0

  private constructor(child: ChildProcess, started: Started) {
    this.#child = child
    this.started = started
    this.rest = restDoor(`http://127.0.0.1:${started.apiPort}`)
    this.grpc = grpcDoor(`127.0.0.1:${started.apiPort}`)
    child.on('message', (message: { id?: number; value?: unknown; error?: string }) => {
      const waiting = this.#waiting.get(message.id ?? -1)
      this.#waiting.delete(message.id ?? -1)
      if (message.error === undefined) waiting?.resolve(message.value)
      else waiting?.reject(new Error(message.error))
    })
    child.once('exit', (code, signal) => {
      for (const waiting of this.#waiting.values()) waiting.reject(new Error(`the server ended: code ${code}, signal ${signal}`))
    })
  }

  /** Starts a server whose clock runs `speed` times as fast; resolves when it serves. */
  static async start(speed: number, env: Readonly<Record<string, string>>): Promise<Subject> {
    const child = fork(join(import.meta.dirname, 'server.ts'), [String(speed)], {
      execArgv: ['--disable-warning=ExperimentalWarning', '--expose-gc'],
      env: { PATH: process.env['PATH'] ?? '', ...env },
    })
    process.once('exit', () => child.kill('SIGKILL'))
    const ended = once(child, 'exit').then(() => Promise.reject(new Error('the server did not start')))
    // It ends some day.
    ended.catch(() => undefined)
    // The first message that it sends.
    const [{ started }] = (await Promise.race([once(child, 'message'), ended])) as [{ started: Started }]
    return new Subject(child, started)
  }

  get running(): boolean {
    return this.#child.exitCode === null && this.#child.signalCode === null
  }

  /** The answer to a question; its type is the one that protocol.ts names for it. */
  ask<T>(question: Question): Promise<T> {
    const id = (this.#questions += 1)
    const waiting = Promise.withResolvers<unknown>()
    this.#waiting.set(id, waiting)
    this.#child.send({ id, question })
    return waiting.promise as Promise<T>
  }

  /** Bytes of memory that the process has, and how many file descriptors. */
  async resources(): Promise<{ rss: number; descriptors: number }> {
    const status = await readFile(`/proc/${this.#child.pid}/status`, 'utf8')
    const descriptors = await readdir(`/proc/${this.#child.pid}/fd`)
    return { rss: Number(/^VmRSS:\s+(\d+) kB/m.exec(status)?.[1]) * 1024, descriptors: descriptors.length }
  }

  async stop(): Promise<void> {
    this.rest.close()
    this.grpc.close()
    if (!this.running) return
    const exited = once(this.#child, 'exit')
    this.#child.send({ id: 0, question: { ask: 'stop' } })
    const timer = setTimeout(() => this.#child.kill('SIGKILL'), 20_000)
    await exited
    clearTimeout(timer)
  }
}
