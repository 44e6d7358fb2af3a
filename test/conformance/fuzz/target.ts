import { join } from 'node:path'
import { AskedProcess } from '../../support/parts/asked-process.ts'
import type { MemoryInUse } from '../../support/parts/memory-in-use.ts'
import type { Corpus, Filling, LoggedError, Ports, Question, StateChange, Work } from './protocol.ts'

/** What is fuzzed: its ports, and what its process says of itself. */
export interface Target {
  readonly ports: Ports
  /** A fresh world, and what requests about it are made of. */
  corpus(): Promise<Corpus>
  /** What changed in the store since this was asked last. `settle`: what is swept behind an accepted request is waited for. */
  changes(settle: boolean): Promise<readonly StateChange[]>
  /** Right after full garbage collections. */
  memory(): Promise<MemoryInUse>
  /** What the server logged since this was asked last that it never should, also on standard error. */
  errors(): Promise<readonly LoggedError[]>
  /** What its thread did. */
  work(): Promise<Work>
  /** Writes records; resolves with their uids once the server has them. */
  fill(filling: Filling): Promise<readonly string[]>
  /** Resolves once nothing is left of what was deleted; rejects where that takes longer. */
  swept(boundMs: number): Promise<void>
  /** An access token for an identity. */
  token(identity: string): Promise<string>
  /** False where the process has ended. */
  running(): boolean
  stop(): Promise<void>
}

/** What the OpenID provider of the sign-ins, which runs in that process too, says of itself. */
const notOurs = /^oidc-provider (?:WARNING|NOTICE): .*\n?/gm

/** A real server in a process of its own. */
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

/**
 * Starts a server on its own store; `env` are `TAPROOT_*` settings over those of role `dev`. Where `dearMethod` names a method, as the walk does, its handler holds the
 * thread for 200 ms where the request is larger than 1 KiB. Resolves when it serves.
 */
export async function startTarget(store: 'sqlite' | 'etcd', env: Readonly<Record<string, string>> = {}, dearMethod = ''): Promise<Target> {
  return new ServerTarget(await AskedProcess.start<Question, Ports>(join(import.meta.dirname, 'server.ts'), { args: [store, dearMethod], env }))
}
