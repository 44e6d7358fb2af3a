import { isDigest, type Digest } from '../../base/digest.ts'
import { DomainError } from '../../base/errors.ts'
import type { CatalogueKind, KeptCatalogue } from '../../cache/lists/catalogue-sources.ts'
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
  /** The time of the first import into this catalogue and those that it was copied from, in milliseconds since 1970. Older releases wrote none. */
  readonly begunMs?: number | undefined
}

/** The catalogues of each kind: the current one first, then the earlier ones, newest first. A kind without imports is absent. */
export type CatalogueRecord = { readonly [Kind in CatalogueKind]?: readonly PublishedCatalogue[] }

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
  if (entry === undefined) return { record: {}, revision: undefined }
  // Only `encodeCatalogues` writes this key.
  const record = JSON.parse(Buffer.from(entry.value).toString()) as CatalogueRecord
  if (
    !Object.values(record)
      .flat()
      .every(({ manifest, blob }) => isDigest(manifest) && isDigest(blob))
  )
    throw new TypeError(`${cataloguesKey} names no digests`)
  return { record, revision: entry.revision }
}

/** A changed record. `dropped` are the catalogues that it no longer names, and whose file no other one has. */
export interface NextCatalogues {
  readonly record: CatalogueRecord
  readonly dropped: readonly PublishedCatalogue[]
}

/** Returns when the current catalogue of a kind began without rows: 0 if that is unknown, or if there is none. */
export function beginOf(record: CatalogueRecord, kind: CatalogueKind): number {
  return record[kind]?.[0]?.begunMs ?? 0
}

/** Returns the record with new current catalogues. */
export function withPublished(record: CatalogueRecord, published: ReadonlyMap<CatalogueKind, PublishedCatalogue>): NextCatalogues {
  const next = [...published].map(([kind, current]): [CatalogueKind, readonly PublishedCatalogue[]] => {
    const earlier = (record[kind] ?? []).filter(({ manifest }) => manifest !== current.manifest)
    return [kind, [current, ...earlier].slice(0, keptCatalogues)]
  })
  return changedTo(record, { ...record, ...Object.fromEntries(next) })
}

/** Returns the record with one of the kept catalogues as the current one of its kind. Undefined if the record does not name it. */
export function withCurrent(record: CatalogueRecord, manifest: string): NextCatalogues | undefined {
  for (const kind of kindsIn(record)) {
    const all = record[kind] ?? []
    const current = all.find((one) => one.manifest === manifest)
    if (current !== undefined) return changedTo(record, { ...record, [kind]: [current, ...all.filter((one) => one !== current)] })
  }
  return undefined
}

/** Returns the record with the current catalogue of each kind only. */
export function withoutEarlier(record: CatalogueRecord): NextCatalogues {
  return changedTo(record, Object.fromEntries(kindsIn(record).map((kind) => [kind, (record[kind] ?? []).slice(0, 1)])))
}

/** Returns all catalogues of a record. */
export function keptIn(record: CatalogueRecord): readonly KeptCatalogue[] {
  return kindsIn(record).flatMap((kind) =>
    (record[kind] ?? []).map(({ manifest, size, publishedMs }, at) => ({ kind, manifest, size, publishedMs, isCurrent: at === 0 })),
  )
}

/** Returns code 9 for what needs catalogues where nothing stores them. */
export function noUpstream(): DomainError {
  return new DomainError(9, 'no upstream is configured (registry.upstream): it stores the catalogues', { reason: 'NO_UPSTREAM' })
}

/** Returns the kinds that have catalogues. */
export function kindsIn(record: CatalogueRecord): readonly CatalogueKind[] {
  return Object.keys(record) as CatalogueKind[] // of the record
}

function changedTo(before: CatalogueRecord, record: CatalogueRecord): NextCatalogues {
  const files = new Set(Object.values(record).flatMap((all) => all.map(({ blob }) => blob)))
  const manifests = new Set(Object.values(record).flatMap((all) => all.map(({ manifest }) => manifest)))
  const left = Object.values(before)
    .flat()
    .filter(({ manifest }) => !manifests.has(manifest))
  return { record, dropped: left.filter(({ blob }) => !files.has(blob)) }
}
