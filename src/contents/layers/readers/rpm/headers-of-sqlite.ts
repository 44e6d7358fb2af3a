import { constants, DatabaseSync } from 'node:sqlite'
import { pathToFileURL } from 'node:url'
import { ContentError } from '../../../package.ts'

/** What the one query may do. All else is denied, so nothing that the file defines is ever run: views, triggers, functions in columns. */
function isAllowed(action: number, table: string | null): boolean {
  if (action === constants.SQLITE_SELECT) return true
  return action === constants.SQLITE_READ && (table === 'Packages' || table === 'sqlite_master')
}

/** Limits of the library, far above what the real schema needs. */
const limits = {
  length: 64 * 1024 * 1024,
  sqlLength: 10_000,
  column: 20,
  exprDepth: 10,
  compoundSelect: 1,
  attach: 0,
  triggerDepth: 0,
  likePatternLength: 10,
  variableNumber: 10,
}

/**
 * Yields the headers of packages in `rpmdb.sqlite`. `path` is a copy of the file that nothing else uses. Throws ContentError
 * UNSUPPORTED_DATABASE without the table of rpm, or an Error if the file is damaged. Each step of the query reads one row, so the caller bounds the work.
 */
export function* headersOfSqlite(path: string): Generator<Buffer, void, undefined> {
  // Immutable: no lock, no journal and no write-ahead log, whatever the file says.
  const url = pathToFileURL(path)
  url.search = '?immutable=1'
  const database = new DatabaseSync(url, { readOnly: true, defensive: true, enableDoubleQuotedStringLiterals: false, limits })
  try {
    database.setAuthorizer((action, table) => (isAllowed(action, table) ? constants.SQLITE_OK : constants.SQLITE_DENY))
    const table = database.prepare("SELECT 1 FROM sqlite_master WHERE name = 'Packages' AND type = 'table' AND rootpage > 0").get()
    if (table === undefined) throw new ContentError('UNSUPPORTED_DATABASE', 'the package database has no table of packages')
    for (const { blob } of database.prepare('SELECT blob FROM Packages').iterate())
      if (blob instanceof Uint8Array) yield Buffer.from(blob.buffer, blob.byteOffset, blob.length)
  } finally {
    database.close()
  }
}
