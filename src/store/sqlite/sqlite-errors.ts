import { StoreError, type StoreErrorKind } from '../store.ts'

/** SQLite's primary result codes (sqlite.org/rescode.html) that say something else than `unavailable`. */
const kindByCode = new Map<number, StoreErrorKind>([[13 /* SQLITE_FULL */, 'exhausted']])

/** Why the file could not be opened, by primary result code. */
const openFailureByCode = new Map<number, string>([
  [5 /* SQLITE_BUSY */, 'another process has it open'],
  [8 /* SQLITE_READONLY */, 'it is read-only'],
  [11 /* SQLITE_CORRUPT */, 'it is damaged'],
  [14 /* SQLITE_CANTOPEN */, 'it can not be created or opened'],
  [26 /* SQLITE_NOTADB */, 'it is not an SQLite database'],
])

/** The primary result code of an error of node:sqlite; undefined for any other error. */
function primaryCode(error: unknown): number | undefined {
  if (!(error instanceof Error) || !('errcode' in error) || typeof error.errcode !== 'number') return undefined
  return error.errcode & 0xff
}

/** What a failed statement means to the port. Errors that are not SQLite's are returned as they are. */
export function sqliteError(error: unknown): unknown {
  const code = primaryCode(error)
  if (code === undefined) return error
  return new StoreError(kindByCode.get(code) ?? 'unavailable', 'the embedded store failed', error)
}

/** What a failed open means: `unavailable`, with the reason in words. */
export function sqliteOpenError(path: string, error: unknown): StoreError {
  if (error instanceof StoreError) return error
  const reason = openFailureByCode.get(primaryCode(error) ?? -1) ?? 'it can not be opened'
  return new StoreError('unavailable', `the embedded store ${path}: ${reason}`, error)
}
