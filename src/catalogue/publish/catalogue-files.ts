import { mkdir, readdir, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { hexOf } from '../../base/digest.ts'
import { randomHex, type Clock, type Random } from '../../base/runtime.ts'
import type { CatalogueKind } from '../../cache/lists/catalogue-sources.ts'
import type { Upstream } from '../../registry/index.ts'
import { fetchCatalogue } from './artifact.ts'
import { kindsIn, type CatalogueRecord, type PublishedCatalogue } from './catalogue-record.ts'

/** Age at which a file that a killed process left is removed, in milliseconds. */
const abandonedMs = 24 * 3_600_000
const temporarySuffix = '.part'

/** The dependencies of CatalogueFiles. */
export interface CatalogueFilesOptions {
  readonly upstream: Upstream
  /** The folder for files. Several processes may share it. */
  readonly directory: string
  readonly clock: Clock
  readonly random: Random
}

/** The files of this process: copies of catalogues in the upstream, and those that are being written. */
export class CatalogueFiles {
  readonly #options: CatalogueFilesOptions

  constructor(options: CatalogueFilesOptions) {
    this.#options = options
  }

  get directory(): string {
    return this.#options.directory
  }

  /**
   * Resolves with the path of a catalogue's file, which is fetched if it is not there; undefined if the upstream does not have it. Rejects with UpstreamError,
   * CatalogueError or an error of the file system.
   */
  async fetched(kind: CatalogueKind, catalogue: PublishedCatalogue, signal: AbortSignal): Promise<string | undefined> {
    const path = this.#fileOf(kind, catalogue)
    const isThere = await fetchCatalogue(this.#options.upstream, { catalogue, path, temporary: await this.temporary() }, signal)
    return isThere ? path : undefined
  }

  /** Resolves with a path for a file that no other process uses. Such files are removed a day after a process was killed. */
  async temporary(): Promise<string> {
    const { directory, random } = this.#options
    await mkdir(directory, { recursive: true, mode: 0o700 })
    return join(directory, `${randomHex(random, 16)}${temporarySuffix}`)
  }

  /** Removes files of catalogues that the record does not name, and what killed processes left. */
  async removeOld(record: CatalogueRecord): Promise<void> {
    const { directory, clock } = this.#options
    const kept = new Set(kindsIn(record).flatMap((kind) => (record[kind] ?? []).map((catalogue) => this.#fileOf(kind, catalogue))))
    for (const name of await readdir(directory)) {
      const path = join(directory, name)
      if (kept.has(path)) continue
      const modifiedMs = (await stat(path).catch(() => undefined))?.mtimeMs ?? 0
      if (!name.endsWith(temporarySuffix) || clock.now() - modifiedMs > abandonedMs) await rm(path, { force: true, recursive: true })
    }
  }

  #fileOf(kind: CatalogueKind, { blob }: PublishedCatalogue): string {
    return join(this.#options.directory, `${kind}-${hexOf(blob)}.sqlite`)
  }
}
