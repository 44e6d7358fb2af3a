import { stat } from 'node:fs/promises'
import { contentLimits } from '../../../package.ts'
import type { LayerFile } from '../../layer-file.ts'
import type { Reader } from '../../reader.ts'
import { headersOfBerkeleyDb, headersOfNdb } from './headers-of-files.ts'
import { headersOfSqlite } from './headers-of-sqlite.ts'
import { rpmPackage } from './header.ts'

interface Headers {
  readonly headers: Iterable<Buffer>
  readonly fileBytes: number
}

async function inMemory(file: LayerFile, read: (bytes: Buffer) => Iterable<Buffer>): Promise<Headers> {
  const bytes = await file.bytes(contentLimits.parsedFileBytes)
  return { headers: read(bytes), fileBytes: bytes.length }
}

/** Names of databases -> how their headers are read. */
const databases: Readonly<Record<string, (file: LayerFile) => Promise<Headers>>> = {
  'rpmdb.sqlite': async (file) => {
    const path = await file.saved(contentLimits.parsedFileBytes)
    return { headers: headersOfSqlite(path), fileBytes: (await stat(path)).size }
  },
  'Packages.db': (file) => inMemory(file, headersOfNdb),
  Packages: (file) => inMemory(file, headersOfBerkeleyDb),
}
const databasePath = /^(?:var\/lib\/rpm|usr\/lib\/sysimage\/rpm|usr\/share\/rpm)\/(rpmdb\.sqlite|Packages\.db|Packages)$/

/** How many times as many bytes as the file has its headers may have. Headers of a hostile file share bytes. */
const maxShared = 4

/** The databases of rpm: SQLite, ndb and Berkeley DB. */
export const rpm: Reader = {
  wants: (path) => databasePath.test(path),
  async read(file, findings) {
    const [, name = ''] = databasePath.exec(file.path) ?? []
    const found = await databases[name]?.(file)
    let bytes = 0
    for (const header of found?.headers ?? []) {
      bytes += header.length
      if (found === undefined || bytes > found.fileBytes * maxShared) throw new Error('the package database names the same bytes too often')
      findings.add(rpmPackage(header))
    }
  },
}
