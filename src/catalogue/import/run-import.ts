import { errorMessage } from '../../base/error-text.ts'
import type { Uid } from '../../base/uid.ts'
import { AdvisoryBuilder } from '../advisories/advisory-builder.ts'
import { documentsOf, type FoundDocument } from './documents.ts'
import { formatOf } from './formats/formats.ts'
import { RefusedDocument } from './members.ts'
import { documentNames, sourceFiles, type SourceFile } from './source-files.ts'

/** A document or file that was not imported. `line` is where it starts; undefined for a whole file. */
export interface ImportRefusal {
  readonly file: string
  readonly line: number | undefined
  readonly reason: string
}

/** What an import did, in advisories. `refused` counts documents and files. */
export interface ImportCounts {
  readonly documents: number
  readonly added: number
  readonly changed: number
  readonly unchanged: number
  readonly removed: number
  readonly refused: number
}

/** How an import goes about it. */
export interface ImportOptions {
  readonly paths: readonly string[]
  /** The group that the advisories belong to. */
  readonly group: Uid
  /** Removes the group's advisories that the sources do not have. They stay if anything was refused: a damaged source removes nothing. */
  readonly replace: boolean
  readonly nowMs: number
  onRefusal(refusal: ImportRefusal): void
  onProgress(progress: { readonly documents: number; readonly bytes: number }): void
}

const noDocuments = `the sources contain no documents: in folders and archives, only ${documentNames} files are read`
const none: ImportCounts = { documents: 0, added: 0, changed: 0, unchanged: 0, removed: 0, refused: 0 }
/** Number of documents after which other work gets a turn. */
const documentsPerTurn = 100

/** Writes the documents of a number of files into one catalogue file. */
class Import {
  readonly #builder: AdvisoryBuilder
  readonly #options: ImportOptions
  #counts = none
  #bytes = 0

  constructor(builder: AdvisoryBuilder, options: ImportOptions) {
    this.#builder = builder
    this.#options = options
  }

  async run(signal: AbortSignal): Promise<ImportCounts> {
    const { paths, replace, nowMs } = this.#options
    for (const path of paths) {
      for await (const file of sourceFiles(path, (bytes) => (this.#bytes += bytes))) await this.#file(file, signal)
    }
    // With `replace`, a wrong folder would remove everything.
    if (this.#counts.documents + this.#counts.refused === 0) throw new Error(noDocuments)
    if (replace && this.#counts.refused === 0) this.#count('removed', this.#builder.removeOthers())
    this.#builder.finish({ source: paths.join(' '), nowMs })
    return this.#counts
  }

  async #file(file: SourceFile, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted()
    if ('refused' in file) {
      this.#refuse({ file: file.name, line: undefined, reason: file.refused })
      return
    }
    try {
      for await (const document of documentsOf(file.pieces)) await this.#document(file.name, document, signal)
    } catch (error) {
      if (signal.aborted) throw error
      this.#refuse({ file: file.name, line: undefined, reason: `the file cannot be read on: ${errorMessage(error)}` })
    }
  }

  async #document(file: string, document: FoundDocument, signal: AbortSignal): Promise<void> {
    this.#count('documents', 1)
    if ('refused' in document) this.#refuse({ file, line: document.line, reason: document.refused })
    else this.#put(file, document)
    if (this.#counts.documents % documentsPerTurn !== 0) return
    this.#options.onProgress({ documents: this.#counts.documents, bytes: this.#bytes })
    await new Promise(setImmediate)
    signal.throwIfAborted()
  }

  #put(file: string, { line, value }: { readonly line: number; readonly value: unknown }): void {
    try {
      const { format, document } = formatOf(value)
      for (const { row } of format.rowsOf(document, { group: () => this.#options.group, nowMs: this.#options.nowMs })) {
        const outcome = this.#builder.put(row)
        if (outcome === 'repeated') throw new RefusedDocument(`${row.advisory.advisoryId} was in an earlier document of this import`)
        this.#count(outcome, 1)
      }
    } catch (error) {
      if (!(error instanceof RefusedDocument)) throw error
      this.#refuse({ file, line, reason: error.message })
    }
  }

  #count(what: keyof ImportCounts, number: number): void {
    this.#counts = { ...this.#counts, [what]: this.#counts[what] + number }
  }

  #refuse(refusal: ImportRefusal): void {
    this.#count('refused', 1)
    this.#options.onRefusal(refusal)
  }
}

/**
 * Imports files into the catalogue file `target`: an empty file, or a copy of a catalogue. Afterwards it is a catalogue. If this rejects, delete the file. Rejects with
 * the signal's reason, an error of the file system, or if the sources contain no documents.
 */
export async function importInto(
  target: { readonly path: string; readonly isNew: boolean },
  options: ImportOptions,
  signal: AbortSignal,
): Promise<ImportCounts> {
  const builder = new AdvisoryBuilder(target.path, { group: options.group, isNew: target.isNew })
  try {
    return await new Import(builder, options).run(signal)
  } catch (error) {
    builder.abandon()
    throw error
  }
}
