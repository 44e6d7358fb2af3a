import { isDigest, type Digest } from '../../base/digest.ts'
import type { RecordTables } from '../../cache/record-tables.ts'
import type { Revision } from '../../store/store.ts'

/**
 * The record that names all catalogues: JSON. It is the only thing that changes when a catalogue is published, so a process sees the old one or the new one. `meta/`
 * is in memory, and every read waits for its changes.
 */
export const cataloguesKey = 'meta/catalogues'

/** The number of catalogues of one kind that are kept, the current one included. */
export const keptCatalogues = 3

/** One published catalogue. */
export interface PublishedCatalogue {
  /** The digest of its manifest in the upstream: its name. */
  readonly manifest: Digest
  /** The digest of the file. */
  readonly blob: Digest
  /** The size of the file in bytes. */
  readonly size: number
  /** The time of the import, in milliseconds since 1970. */
  readonly publishedMs: number
}

/** The catalogues of each kind, newest first. */
export interface CatalogueRecord {
  readonly advisories: readonly PublishedCatalogue[]
}

/** The record with the revision of its last change; undefined before the first import. */
export interface StoredCatalogues {
  readonly record: CatalogueRecord
  readonly revision: Revision | undefined
}

/** Returns the bytes to store. */
export function encodeCatalogues(record: CatalogueRecord): Uint8Array {
  return Buffer.from(JSON.stringify(record))
}

/** Returns the catalogues as of the snapshot. Throws TypeError if another program wrote the record. */
export function storedCatalogues(tables: Pick<RecordTables, 'entry'>): StoredCatalogues {
  const entry = tables.entry(cataloguesKey)
  if (entry === undefined) return { record: { advisories: [] }, revision: undefined }
  // Only `encodeCatalogues` writes this key.
  const record = JSON.parse(Buffer.from(entry.value).toString()) as CatalogueRecord
  if (!record.advisories.every(({ manifest, blob }) => isDigest(manifest) && isDigest(blob))) throw new TypeError(`${cataloguesKey} names no digests`)
  return { record, revision: entry.revision }
}

/** A record after an import. `dropped` are the catalogues that it no longer names, and whose file no other one has. */
export interface NextCatalogues {
  readonly record: CatalogueRecord
  readonly dropped: readonly PublishedCatalogue[]
}

/** Returns the record with a new current catalogue. */
export function withPublished(record: CatalogueRecord, published: PublishedCatalogue): NextCatalogues {
  const all = [published, ...record.advisories.filter(({ manifest }) => manifest !== published.manifest)]
  const kept = all.slice(0, keptCatalogues)
  const files = new Set(kept.map(({ blob }) => blob))
  return { record: { ...record, advisories: kept }, dropped: all.slice(keptCatalogues).filter(({ blob }) => !files.has(blob)) }
}
