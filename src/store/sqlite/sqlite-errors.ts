import { accessSync, constants } from 'node:fs'
import { dirname } from 'node:path'
import { StoreError, type StoreErrorKind } from '../store.ts'

/**
 * SQLite's result codes (sqlite.org/rescode.html), primary or extended, that do not mean `unavailable`. With the first two, a write was refused before a flush
 * and SQLite has rolled the transaction back. The second means a user quota, a file size limit, or a read-only file system.
 */
const kindByCode = new Map<number, StoreErrorKind>([
  [13 /* SQLITE_FULL */, 'exhausted'],
  [778 /* SQLITE_IOERR_WRITE */, 'exhausted'],
  [11 /* SQLITE_CORRUPT */, 'damaged'],
  [26 /* SQLITE_NOTADB */, 'damaged'],
])

/** The reason why the file could not be opened or used, by primary result code. */
const reasonByCode = new Map<number, string>([
  [5 /* SQLITE_BUSY */, 'another process uses the file: stop the server or command that has it'],
  [8 /* SQLITE_READONLY */, 'the file is read-only'],
  [11 /* SQLITE_CORRUPT */, 'the file is damaged'],
  [13 /* SQLITE_FULL */, 'there is no space left for the file'],
  [14 /* SQLITE_CANTOPEN */, 'the file cannot be created or opened'],
  [26 /* SQLITE_NOTADB */, 'the file is not an SQLite database'],
])

/** Returns the extended result code of a node:sqlite error; undefined for any other error. Its low byte is the primary code. */
function resultCode(error: unknown): number | undefined {
  return error instanceof Error && 'errcode' in error && typeof error.errcode === 'number' ? error.errcode : undefined
}

function kindOf(code: number): StoreErrorKind {
  return kindByCode.get(code) ?? kindByCode.get(code & 0xff) ?? 'unavailable'
}

/** Returns the code of a system error, such as `EROFS`. */
function systemCode(error: unknown): unknown {
  return error instanceof Error && 'code' in error ? error.code : undefined
}

/** True if `path` is not writable because the file system of the nearest existing folder is mounted read-only. */
function isReadOnly(path: string): boolean {
  const folder = dirname(path)
  try {
    accessSync(folder, constants.W_OK)
    return false
  } catch (error) {
    const code = systemCode(error)
    return code === 'EROFS' || (code === 'ENOENT' && folder !== path && isReadOnly(folder))
  }
}

function reasonOf(path: string, error: unknown, otherwise: string): string {
  if (systemCode(error) === 'EROFS' || isReadOnly(path)) return 'the file system is read-only'
  return reasonByCode.get((resultCode(error) ?? 0) & 0xff) ?? otherwise
}

/**
 * Translates the error of a failed statement into a StoreError, with the reason in words. `path` is the database file. Returns other errors than SQLite's
 * unchanged.
 */
export function sqliteError(path: string, error: unknown): unknown {
  const code = resultCode(error)
  if (code === undefined) return error
  return new StoreError(kindOf(code), `the embedded store ${path}: ${reasonOf(path, error, 'reading or writing the file failed')}`, error)
}

/** Translates the error of a failed open into StoreError `unavailable` or `damaged`, with the reason in words. */
export function sqliteOpenError(path: string, error: unknown): StoreError {
  if (error instanceof StoreError) return error
  const kind = kindOf(resultCode(error) ?? 0) === 'damaged' ? 'damaged' : 'unavailable'
  return new StoreError(kind, `the embedded store ${path}: ${reasonOf(path, error, 'the file cannot be opened')}`, error)
}
