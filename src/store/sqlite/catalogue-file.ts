import { DatabaseSync } from 'node:sqlite'
import { errorText } from '../../base/error-text.ts'

/** The tables of one kind of catalogue. A process opens only files of its own version (docs/adr/0033). */
export interface CatalogueTables {
  readonly version: number
  /** The statements that make the tables. The table `meta` is made for every kind. */
  readonly sql: string
}

/** A file that is no catalogue of this version, or is damaged. The message is for operators. */
export class CatalogueError extends Error {
  override readonly name = 'CatalogueError'
}

/** Opens a file to write a catalogue, and makes the tables if it is new. Throws an error of SQLite if the file cannot be written. */
export function openForWriting(path: string, { tables, isNew }: { readonly tables: CatalogueTables; readonly isNew: boolean }): DatabaseSync {
  // Node refuses a file without a journal otherwise, and writes each page twice.
  const database = new DatabaseSync(path, { defensive: false })
  // No process reads the file before it is finished, and an unfinished one is thrown away.
  database.exec('PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -32768; PRAGMA temp_store = FILE')
  if (!isNew) return database
  database.exec(`CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID; ${tables.sql}`)
  setMeta(database, 'format', String(tables.version))
  return database
}

/** Returns the version of the tables of a catalogue; undefined for any other file. */
export function formatOf(path: string): string | undefined {
  const database = new DatabaseSync(path, { readOnly: true })
  try {
    return metaOf(database, 'format')
  } catch {
    // The file has no table of facts, or is no database.
    return undefined
  } finally {
    database.close()
  }
}

/** Opens a finished catalogue. Throws CatalogueError if the file is no catalogue of this version. */
export function openForReading(path: string, { version }: CatalogueTables): DatabaseSync {
  try {
    const database = new DatabaseSync(path, { readOnly: true })
    // Immutable files need no locks. Pages are read through the memory of the system.
    database.exec('PRAGMA query_only = 1; PRAGMA mmap_size = 1099511627776; PRAGMA temp_store = MEMORY')
    const format = metaOf(database, 'format')
    if (format !== String(version)) throw new CatalogueError(`the catalogue has format ${format}, and this version reads ${version}`)
    return database
  } catch (error) {
    if (error instanceof CatalogueError) throw error
    throw new CatalogueError(`the catalogue cannot be read: ${errorText(error)}`, { cause: error })
  }
}

/** Reads a fact about the whole file. */
export function metaOf(database: DatabaseSync, key: 'format' | 'built_ms'): string | undefined {
  const row = database.prepare('SELECT value FROM meta WHERE key = ?').get(key)
  return row === undefined ? undefined : String(row['value'])
}

/** Writes a fact about the whole file. */
export function setMeta(database: DatabaseSync, key: 'format' | 'built_ms', value: string): void {
  database.prepare('INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value').run(key, value)
}
