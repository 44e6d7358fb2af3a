import type { Uid } from '../../base/uid.ts'

/** The file that an import writes. */
export interface WriteTarget {
  readonly path: string
  /** True for a file without tables. */
  readonly isNew: boolean
  /** The group that advisories belong to; undefined if the import names none. Then it has no advisories. */
  readonly group: Uid | undefined
}

/** What became of a row. `repeated`: this import wrote it already. */
export type PutOutcome = 'added' | 'changed' | 'unchanged' | 'repeated'

/**
 * Writes one catalogue file: an empty one, or a copy of the current one. The file is private until `finish`: a process that ends before leaves a file that no
 * process opens. Synchronous.
 */
export interface CatalogueWriter<Row> {
  /** True if `put` would return `repeated`. Absent where no document has several rows. */
  hasPut?(row: Row): boolean
  /** Adds a row, or changes the one with its key. */
  put(row: Row): PutOutcome
  /** Removes rows that were not put since the start, of the sources that were put. Returns how many. */
  removeOthers(): number
  /** Records where the rows came from, computes what readers need, and closes the file. */
  finish(facts: { readonly source: string; readonly nowMs: number }): void
  /** Closes the file as it is. It is not a catalogue then. */
  abandon(): void
}
