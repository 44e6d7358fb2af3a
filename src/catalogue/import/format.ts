import type { Uid } from '../../base/uid.ts'
import type { ImportRow } from '../catalogue-kinds.ts'
import type { Members } from './members.ts'

/** What a format may need besides the document. */
export interface FormatContext {
  /** Returns the group that advisories belong to. Throws an error that ends the import if it names none. */
  group(): Uid
  /** The time of the import, in milliseconds since 1970. */
  readonly nowMs: number
  /** The ecosystem of OSV of packages whose document names no distribution; undefined to leave them without. */
  readonly ecosystem: string | undefined
  /** The path of the file that has the document. A file in an archive follows the archive's path and an exclamation mark. */
  readonly file: string
}

/** A form of documents that imports read. */
export interface DocumentFormat {
  /** Its name for people, e.g. `OSV`. */
  readonly name: string
  /** True if the document says that it has this form. Looks at few members. */
  recognises(document: Members): boolean
  /** Returns what the document says. Throws RefusedDocument if it is not in the form, or beyond the bounds. */
  rowsOf(document: Members, context: FormatContext): Iterable<ImportRow>
}
