import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { grpcClient, restClient, type ApiClient } from '../support/api-clients.ts'
import { AskedProcess } from '../support/parts/asked-process.ts'
import type { Question, Started } from './protocol.ts'

/** The process under test from outside: calls, questions by message, and system counters. */
export class Subject {
  readonly rest: ApiClient
  readonly grpc: ApiClient
  readonly started: Started
  readonly #process: AskedProcess<Question, Started>

  private constructor(asked: AskedProcess<Question, Started>) {
    this.#process = asked
    this.started = asked.started
    this.rest = restClient(`http://127.0.0.1:${asked.started.apiPort}`)
    this.grpc = grpcClient(`127.0.0.1:${asked.started.apiPort}`)
  }

  /** Starts a server whose clock runs `speed` times as fast; resolves when it serves. */
  static async start(speed: number, env: Readonly<Record<string, string>>): Promise<Subject> {
    return new Subject(await AskedProcess.start<Question, Started>(join(import.meta.dirname, 'server.ts'), { args: [String(speed)], env }))
  }

  get running(): boolean {
    return this.#process.running
  }

  /** The answer to a question, of the type in protocol.ts. */
  ask<T>(question: Question): Promise<T> {
    return this.#process.ask<T>(question)
  }

  /** Memory in bytes and open file descriptors of the process. */
  async resources(): Promise<{ rss: number; descriptors: number }> {
    const status = await readFile(`/proc/${this.#process.pid}/status`, 'utf8')
    const descriptors = await readdir(`/proc/${this.#process.pid}/fd`)
    return { rss: Number(/^VmRSS:\s+(\d+) kB/m.exec(status)?.[1]) * 1024, descriptors: descriptors.length }
  }

  async stop(): Promise<void> {
    this.rest.close()
    this.grpc.close()
    await this.#process.stop()
  }
}
