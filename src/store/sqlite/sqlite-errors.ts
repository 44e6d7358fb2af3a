import { StoreError, type StoreErrorKind } from '../store.ts'

/**
 * SQLite's result codes (sqlite.org/rescode.html) that say something else than `unavailable`. Both are refused writes, before anything was flushed: SQLite has
 * rolled the transaction back. The second is a quota of the user, a limit on the size of files, or a file system that is read-only.
 */
const kindByCode = new Map<number, StoreErrorKind>([
  [13 /* SQLITE_FULL */, 'exhausted'],
  [778 /* SQLITE_IOERR_WRITE */, 'exhausted'],
])

/** Why the file could not be opened, by primary result code. */
const openFailureByCode = new Map<number, string>([
  [5 /* SQLITE_BUSY */, 'another process has it open'],
  [8 /* SQLITE_READONLY */, 'it is read-only'],
  [11 /* SQLITE_CORRUPT */, 'it is damaged'],
  [14 /* SQLITE_CANTOPEN */, 'it can not be created or opened'],
  [26 /* SQLITE_NOTADB */, 'it is not an SQLite database'],
])

/** The extended result code of an error of node:sqlite; undefined for any other error. Its low byte is the primary one. */
function resultCode(error: unknown): number | undefined {
  return error instanceof Error && 'errcode' in error && typeof error.errcode === 'number' ? error.errcode : undefined
}

/** What a failed statement means to the port. Errors that are not SQLite's are returned as they are. */
export function sqliteError(error: unknown): unknown {
  const code = resultCode(error)
  if (code === undefined) return error
  return new StoreError(kindByCode.get(code) ?? 'unavailable', 'the embedded store failed', error)
}

/** What a failed open means: `unavailable`, with the reason in words. */
export function sqliteOpenError(path: string, error: unknown): StoreError {
  if (error instanceof StoreError) return error
  const reason = openFailureByCode.get((resultCode(error) ?? 0) & 0xff) ?? 'it can not be opened'
  return new StoreError('unavailable', `the embedded store ${path}: ${reason}`, error)
}
