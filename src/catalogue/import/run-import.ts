import { errorMessage } from '../../base/error-text.ts'
import type { Uid } from '../../base/uid.ts'
import type { CatalogueKind } from '../../cache/lists/catalogue-sources.ts'
import { distributionEcosystem } from '../../base/versions/ecosystems.ts'
import { catalogueKinds, type CatalogueRows, type ImportRow } from '../catalogue-kinds.ts'
import type { CatalogueWriter, PutOutcome, WriteTarget } from '../files/catalogue-writer.ts'
import { documentsOf, type FoundDocument } from './documents.ts'
import type { FormatContext } from './format.ts'
import { formatOf } from './formats/formats.ts'
import { RefusedDocument } from './members.ts'
import { documentNames, sourceFiles, type SourceFile } from './source-files.ts'

/** A document or file that was not imported. `line` is where it starts; undefined for a whole file. */
export interface ImportRefusal {
  readonly file: string
  readonly line: number | undefined
  readonly reason: string
}

/** What an import did to the rows of one catalogue. */
export interface RowCounts {
  readonly added: number
  readonly changed: number
  readonly unchanged: number
  readonly removed: number
}

/** What an import did. `refused` counts documents and files. */
export interface ImportCounts {
  readonly documents: number
  readonly refused: number
  /** The catalogues that the documents are about. */
  readonly rows: ReadonlyMap<CatalogueKind, RowCounts>
}

/** How an import goes about it. */
export interface ImportOptions {
  readonly paths: readonly string[]
  /** The group that advisories belong to. Without it, a document with advisories ends the import. */
  readonly group: Uid | undefined
  /** The ecosystem of OSV of packages whose documents name no distribution, e.g. `Alpine:v3.20`. */
  readonly ecosystem?: string | undefined
  /** Removes the rows that the sources do not have: advisories of the group, and other rows of the sources. They stay if anything was refused. */
  readonly replace: boolean
  readonly nowMs: number
  onRefusal(refusal: ImportRefusal): void
  onProgress(progress: { readonly documents: number; readonly bytes: number }): void
}

/** Makes the file to write for a kind of catalogue: an empty file, or a copy of the current catalogue. */
export type OpenTarget = (kind: CatalogueKind) => Promise<Omit<WriteTarget, 'group'>>

/** Runs an import: `importInto`, or the same in a process of its own. */
export type ImportRunner = (open: OpenTarget, options: ImportOptions, signal: AbortSignal) => Promise<ImportCounts>

const noDocuments = `the sources contain no documents: in folders and archives, only ${documentNames} files are read`
/** Number of documents after which other work gets a turn. */
const documentsPerTurn = 100

/** Writes rows of one kind, and counts them. */
class KindImport<Kind extends CatalogueKind> {
  readonly #kind: Kind
  readonly #writer: CatalogueWriter<CatalogueRows[Kind]>
  readonly counts = { added: 0, changed: 0, unchanged: 0, removed: 0 }

  constructor(kind: Kind, target: WriteTarget) {
    this.#kind = kind
    this.#writer = catalogueKinds[kind].write(target)
  }

  /** Throws RefusedDocument if this import wrote the row already. */
  check(row: CatalogueRows[Kind]): void {
    if (this.#writer.hasPut?.(row) === true) throw this.#repeated(row)
  }

  /** Throws RefusedDocument if this import wrote the row already. */
  put(row: CatalogueRows[Kind]): void {
    const outcome: PutOutcome = this.#writer.put(row)
    if (outcome === 'repeated') throw this.#repeated(row)
    this.counts[outcome] += 1
  }

  finish({ replace, paths, nowMs }: ImportOptions): void {
    if (replace) this.counts.removed = this.#writer.removeOthers()
    this.#writer.finish({ source: paths.join(' '), nowMs })
  }

  abandon(): void {
    this.#writer.abandon()
  }

  #repeated(row: CatalogueRows[Kind]): RefusedDocument {
    return new RefusedDocument(`${catalogueKinds[this.#kind].nameOf(row)} was in an earlier document of this import`)
  }
}

/** Writes the documents of a number of files into catalogue files. */
class Import {
  readonly #open: OpenTarget
  readonly #options: ImportOptions
  readonly #context: Omit<FormatContext, 'file'>
  readonly #kinds = new Map<CatalogueKind, KindImport<CatalogueKind>>()
  #documents = 0
  #refused = 0
  #bytes = 0

  constructor(open: OpenTarget, options: ImportOptions) {
    this.#open = open
    this.#options = options
    const group = (): Uid => {
      // Each document would be refused for the same reason.
      if (options.group === undefined) throw new Error('the sources have advisories: say with --group which group they belong to')
      return options.group
    }
    const ecosystem = options.ecosystem === undefined ? undefined : distributionEcosystem(options.ecosystem)
    this.#context = { group, nowMs: options.nowMs, ecosystem }
  }

  async run(signal: AbortSignal): Promise<ImportCounts> {
    const { paths, replace } = this.#options
    for (const path of paths) {
      for await (const file of sourceFiles(path, (bytes) => (this.#bytes += bytes))) await this.#file(file, signal)
    }
    // With `replace`, a wrong folder would remove everything.
    if (this.#documents + this.#refused === 0) throw new Error(noDocuments)
    const options = { ...this.#options, replace: replace && this.#refused === 0 }
    for (const one of this.#kinds.values()) one.finish(options)
    return { documents: this.#documents, refused: this.#refused, rows: new Map([...this.#kinds].map(([kind, { counts }]) => [kind, counts])) }
  }

  abandon(): void {
    for (const one of this.#kinds.values()) one.abandon()
  }

  async #file(file: SourceFile, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted()
    if ('refused' in file) {
      this.#refuse({ file: file.name, line: undefined, reason: file.refused })
      return
    }
    const documents = documentsOf(file.pieces)
    try {
      for (;;) {
        const next = await this.#nextOf(documents, file.name, signal)
        if (next === undefined) break
        // What fails here is the catalogue file, for example on a full disk: that ends the import.
        await this.#document(file.name, next, signal)
      }
    } finally {
      await documents.return()
    }
  }

  /** Returns the next document; undefined after the last one, and where the file cannot be read on. */
  async #nextOf(documents: AsyncGenerator<FoundDocument, void, undefined>, file: string, signal: AbortSignal): Promise<FoundDocument | undefined> {
    try {
      const next = await documents.next()
      return next.done === true ? undefined : next.value
    } catch (error) {
      if (signal.aborted) throw error
      this.#refuse({ file, line: undefined, reason: `the file cannot be read on: ${errorMessage(error, file)}` })
      return undefined
    }
  }

  async #document(file: string, document: FoundDocument, signal: AbortSignal): Promise<void> {
    this.#documents += 1
    if ('refused' in document) this.#refuse({ file, line: document.line, reason: document.refused })
    else {
      try {
        const rows = this.#rowsOf(file, document.value)
        for (const { kind } of rows) if (!this.#kinds.has(kind)) await this.#begin(kind)
        this.#put(rows)
      } catch (error) {
        if (!(error instanceof RefusedDocument)) throw error
        this.#refuse({ file, line: document.line, reason: error.message })
      }
    }
    if (this.#documents % documentsPerTurn !== 0) return
    this.#options.onProgress({ documents: this.#documents, bytes: this.#bytes })
    await new Promise(setImmediate)
    signal.throwIfAborted()
  }

  /** Returns all rows of a document before one of them is written. Throws RefusedDocument. */
  #rowsOf(file: string, value: unknown): readonly ImportRow[] {
    const { format, document } = formatOf(value)
    return [...format.rowsOf(document, { ...this.#context, file })]
  }

  async #begin(kind: CatalogueKind): Promise<void> {
    const target = await this.#open(kind)
    this.#kinds.set(kind, new KindImport(kind, { ...target, group: this.#options.group }))
  }

  /** Writes all rows of a document, or none of them. Throws RefusedDocument. */
  #put(rows: readonly ImportRow[]): void {
    // The last row is put first, which checks it.
    for (const { kind, row } of rows.slice(0, -1)) this.#kinds.get(kind)?.check(row)
    for (const { kind, row } of rows.toReversed()) this.#kinds.get(kind)?.put(row)
  }

  #refuse(refusal: ImportRefusal): void {
    this.#refused += 1
    this.#options.onRefusal(refusal)
  }
}

function isDiskFull(error: unknown): boolean {
  // SQLITE_FULL
  return error instanceof Error && 'errcode' in error && error.errcode === 13
}

/**
 * Imports files into the catalogue files that `open` makes: one for each kind that the documents are about. Afterwards they are catalogues. If this rejects, delete
 * the files. Rejects with the signal's reason, an error of the file system or of SQLite, or an error for people about the options or the sources.
 */
export const importInto: ImportRunner = async (open, options, signal) => {
  const one = new Import(open, options)
  try {
    return await one.run(signal)
  } catch (error) {
    one.abandon()
    throw isDiskFull(error) ? new Error('the disk of the data folder is full: make room, and import again', { cause: error }) : error
  }
}
