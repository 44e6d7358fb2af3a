import { setTimeout as delay } from 'node:timers/promises'
import { Gauge, type Registry } from 'prom-client'
import type { Log } from '../../base/log.ts'
import type { Clock } from '../../base/runtime.ts'
import { FileGroup, type FileState, type Reloaded, type SettingFile } from './file-group.ts'

/**
 * The files of certificates, keys and passwords that the configuration names. They are read at the start, and again while the process runs. Their contents are
 * compared, because Kubernetes replaces files through symbolic links.
 */
export class ReloadedFiles {
  readonly #log: Log
  readonly #closing = new AbortController()
  #following = Promise.resolve()
  readonly #groups: { readonly states: readonly FileState[]; lookAgain(): Promise<void> }[] = []

  constructor(log: Log) {
    this.#log = log
  }

  /** Reads a group of files that are only valid together. Throws SettingError if one cannot be read or used. */
  read<N extends string>(files: Readonly<Record<N, SettingFile>>): Reloaded<N> {
    const group = new FileGroup(files, this.#log)
    this.#groups.push(group)
    return group
  }

  /** Reads all files again, and uses the contents that have changed. Never rejects. */
  async lookAgain(): Promise<void> {
    await Promise.all(this.#groups.map((group) => group.lookAgain()))
  }

  /** Reads all files again every `everyMs` milliseconds until `close`. */
  follow(everyMs: number): void {
    const { signal } = this.#closing
    const run = async (): Promise<void> => {
      while (!signal.aborted) {
        await delay(everyMs, undefined, { signal, ref: false }).catch(() => undefined)
        if (!signal.aborted) await this.lookAgain()
      }
    }
    this.#following = run()
  }

  /** Stops reading the files again. Resolves when no file is being read. Never rejects. */
  async close(): Promise<void> {
    this.#closing.abort()
    await this.#following
  }

  /** Registers the metrics `taproot_certificate_expiry_seconds` and `taproot_file_unusable`, by setting and file. */
  registerMetrics(registry: Registry, clock: Clock): void {
    const shared = { labelNames: ['setting', 'file'] as const, registers: [registry] }
    const states = (): readonly FileState[] => this.#groups.flatMap((group) => group.states)
    const expiry: Gauge<'setting' | 'file'> = new Gauge({
      name: 'taproot_certificate_expiry_seconds',
      help: 'Seconds until the certificate in use expires: the first one of a chain, the last one of a bundle of authorities',
      ...shared,
      collect() {
        for (const { setting, path, expiresAtMs } of states()) {
          if (expiresAtMs !== undefined) expiry.set({ setting, file: path }, (expiresAtMs - clock.now()) / 1000)
        }
      },
    })
    const unusable: Gauge<'setting' | 'file'> = new Gauge({
      name: 'taproot_file_unusable',
      help: '1 while the new content of a file is unusable and the old content is in use',
      ...shared,
      collect() {
        for (const { setting, path, isUnusable } of states()) unusable.set({ setting, file: path }, isUnusable ? 1 : 0)
      },
    })
  }
}
