import type { DatabaseSync } from 'node:sqlite'
import { fromBinary } from '@bufbuild/protobuf'
import type { VersionKey, VersionPage, VersionQuery, VersionTerm } from '../../cache/lists/library-source.ts'
import { ArtifactSchema } from '../../gen/taproot/libraries/v2/artifacts_pb.ts'
import { prefixes } from './artifact-facts.ts'
import { versionOrders, type KnownEcosystem } from './version-orders.ts'

/** An artifact of the file. */
interface FoundRow {
  readonly database: DatabaseSync
  readonly id: number
  readonly ecosystem: KnownEcosystem
  readonly uid: string
}

/** A field of the order as a column, and its value at the place after which the page starts. */
interface SortColumn {
  readonly column: string
  readonly descending: boolean
  readonly bound: (after: VersionKey) => string | number
}

/** Returns the uid of a version. */
export function versionUidOf(artifact: string, version: string): string {
  return `${artifact}:${version}`
}

/** Returns the place of a version in the order of the ecosystem: between two ranks if the file does not have it. */
function placeOf({ database, id, ecosystem }: FoundRow, version: string): number {
  const { compare } = versionOrders[ecosystem]
  const at = database.prepare('SELECT rank, version FROM version WHERE artifact = ? AND rank >= ? ORDER BY rank LIMIT 1')
  let low = 1
  let high = Number(database.prepare('SELECT max(rank) AS last FROM version WHERE artifact = ?').get(id)?.['last'] ?? 0) + 1
  // A text that is no version has rank 0.
  if (versionOrders[ecosystem].ranked([version])[0]?.rank === 0) return 0
  while (low < high) {
    const middle = Math.floor((low + high) / 2)
    const order = compare(String(at.get(id, middle)?.['version']), version)
    if (order === 0) return middle
    if (order < 0) low = middle + 1
    else high = middle
  }
  return low - 0.5
}

/** Returns the columns of an order. All versions have the same name. */
function columnsOf(terms: readonly VersionTerm[], row: FoundRow): SortColumn[] {
  return terms.flatMap(({ field, descending }): SortColumn[] => {
    if (field === 'version') return [{ column: 'rank', descending, bound: ({ version }) => placeOf(row, version) }]
    if (field === 'uid') return [{ column: 'version', descending, bound: ({ uid }) => uid.slice(row.uid.length + 1) }]
    if (field === 'createMs') return [{ column: 'create_ms', descending, bound: ({ createMs }) => createMs }]
    return field === 'updateMs' ? [{ column: 'update_ms', descending, bound: ({ updateMs }) => updateMs }] : []
  })
}

/** Returns the condition that a version comes after a place, with its values. */
function comesAfter(columns: readonly SortColumn[], after: VersionKey): { readonly text: string; readonly values: readonly (string | number)[] } {
  const bounds = columns.map(({ column, descending, bound }) => ({ column, sign: descending ? '<' : '>', value: bound(after) }))
  const ways = bounds.map(({ column, sign, value }, at) => {
    const equal = bounds.slice(0, at)
    return {
      text: `(${[...equal.map((one) => `${one.column} = ?`), `${column} ${sign} ?`].join(' AND ')})`,
      values: [...equal.map((one) => one.value), value],
    }
  })
  return { text: ` AND (${ways.map(({ text }) => text).join(' OR ')})`, values: ways.flatMap(({ values }) => values) }
}

/** Returns one page of the versions of an artifact; undefined if the file does not have the artifact. */
export function versionPage(
  database: DatabaseSync,
  { ecosystem, name }: { readonly ecosystem: KnownEcosystem; readonly name: string },
  { terms, after, skip, limit }: VersionQuery,
): VersionPage | undefined {
  const found = database.prepare('SELECT id, body FROM artifact WHERE ecosystem = ? AND name = ?').get(ecosystem, name)
  if (found === undefined) return undefined
  const row: FoundRow = { database, id: Number(found['id']), ecosystem, uid: `${prefixes[ecosystem]}${name}` }
  const artifact = fromBinary(ArtifactSchema, found['body'] as Uint8Array) // a BLOB column
  const columns = columnsOf(terms, row)
  const { text, values } = after === undefined ? { text: '', values: [] } : comesAfter(columns, after)
  const sorting = columns.map(({ column, descending }) => `${column}${descending ? ' DESC' : ''}`).join(', ')
  const versions = database
    .prepare(
      `SELECT version, create_ms, update_ms, size_bytes, description FROM version WHERE artifact = ?${text}
       ORDER BY ${sorting} LIMIT ? OFFSET ?`,
    )
    .all(row.id, ...values, limit, skip)
    .map((one) => ({
      uid: versionUidOf(row.uid, String(one['version'])),
      version: String(one['version']),
      createMs: Number(one['create_ms']),
      updateMs: Number(one['update_ms']),
      sizeBytes: Number(one['size_bytes']),
      description: String(one['description'] ?? artifact.description),
    }))
  return { name, versions, total: artifact.versionCount }
}
