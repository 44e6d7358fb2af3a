import { join } from 'node:path'
import { AskedProcess } from '../../support/parts/asked-process.ts'
import type { MemoryInUse } from '../../support/parts/memory-in-use.ts'
import type { Corpus, DearMethod, Filling, LoggedError, Ports, Question, StateChange, Work } from './protocol.ts'

/** The server under test: its ports, and the queries to its process. */
export interface Target {
  readonly ports: Ports
  /** Creates new records, and returns the data for requests about them. */
  corpus(): Promise<Corpus>
  /** Returns the changes in the store since the last call. `settle` waits for the sweeps of accepted requests. */
  changes(settle: boolean): Promise<readonly StateChange[]>
  /** Memory right after full garbage collections. */
  memory(): Promise<MemoryInUse>
  /** Log lines since the last call that should never appear, also on standard error. */
  errors(): Promise<readonly LoggedError[]>
  /** The processor time of its main thread. */
  work(): Promise<Work>
  /** Writes records; resolves with their uids once the server has them. */
  fill(filling: Filling): Promise<readonly string[]>
  /** Resolves once all dependents of deleted records are removed; rejects after `boundMs`. */
  swept(boundMs: number): Promise<void>
  /** An access token for an identity. */
  token(identity: string): Promise<string>
  /** False after the process has ended. */
  running(): boolean
  stop(): Promise<void>
}

/** Output of the OpenID provider of the sign-ins, which runs in the same process. */
const notOurs = /^oidc-provider (?:WARNING|NOTICE): .*\n?/gm

/** A real server in its own process. */
class ServerTarget implements Target {
  readonly #process: AskedProcess<Question, Ports>

  constructor(asked: AskedProcess<Question, Ports>) {
    this.#process = asked
  }

  get ports(): Ports {
    return this.#process.started
  }

  corpus(): Promise<Corpus> {
    return this.#process.ask({ ask: 'corpus' })
  }

  changes(settle: boolean): Promise<readonly StateChange[]> {
    return this.#process.ask({ ask: 'state', settle })
  }

  memory(): Promise<MemoryInUse> {
    return this.#process.ask({ ask: 'memory' })
  }

  async errors(): Promise<readonly LoggedError[]> {
    const logged = await this.#process.ask<LoggedError[]>({ ask: 'faults' })
    const said = this.#process.takeOutput().replaceAll(notOurs, '').trim()
    return said === '' ? logged : [...logged, { requestId: '', text: `standard output or error: ${said}` }]
  }

  work(): Promise<Work> {
    return this.#process.ask({ ask: 'work' })
  }

  fill(filling: Filling): Promise<readonly string[]> {
    return this.#process.ask({ ask: 'fill', filling })
  }

  swept(boundMs: number): Promise<void> {
    return this.#process.ask({ ask: 'swept', boundMs })
  }

  token(identity: string): Promise<string> {
    return this.#process.ask({ ask: 'token', identity })
  }

  running(): boolean {
    return this.#process.running
  }

  stop(): Promise<void> {
    return this.#process.stop()
  }
}

/** Starts a server on its own store. `env` has `TAPROOT_*` settings in addition to those of role `dev`. Resolves when the server is ready. */
export async function startTarget(store: 'sqlite' | 'etcd', env: Readonly<Record<string, string>> = {}, dear: readonly DearMethod[] = []): Promise<Target> {
  const args = [store, JSON.stringify(dear)]
  return new ServerTarget(await AskedProcess.start<Question, Ports>(join(import.meta.dirname, 'server.ts'), { args, env }))
}
