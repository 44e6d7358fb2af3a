import { isDigest } from '../../base/digest.ts'
import type { RecordTables } from '../../cache/record-tables.ts'
import type { PublishedCatalogue } from '../../catalogue/index.ts'
import type { Revision } from '../../store/store.ts'
import type { SegmentSize } from './segment-builder.ts'

/** The record that names all segments: JSON. It is the only thing that changes when contents are published. `meta/` is in memory. */
export const contentsKey = 'meta/contents'

/** A published segment. */
export interface Segment extends PublishedCatalogue, SegmentSize {}

/** What the record says. */
export interface ContentsRecord {
  /** The version of what reads images. Under another one all images are read again. */
  readonly readers: number
  /** When images that are gone were last looked for, in milliseconds since 1970. */
  readonly sweptMs: number
  /** Newest first. An image is in the newest one that has it. */
  readonly segments: readonly Segment[]
}

/** The record with the revision of its last change; both undefined before the first one. */
export interface StoredContents {
  readonly record: ContentsRecord | undefined
  readonly revision: Revision | undefined
}

/** Returns the bytes to store. */
export function encodeContents(record: ContentsRecord): Uint8Array {
  return Buffer.from(JSON.stringify(record))
}

/** Returns the record as of the snapshot. Throws TypeError if another program wrote it. */
export function storedContents(tables: Pick<RecordTables, 'entry'>): StoredContents {
  const entry = tables.entry(contentsKey)
  if (entry === undefined) return { record: undefined, revision: undefined }
  // Only `encodeContents` writes this key.
  const record = JSON.parse(Buffer.from(entry.value).toString()) as ContentsRecord
  if (!record.segments.every(({ manifest, blob }) => isDigest(manifest) && isDigest(blob))) throw new TypeError(`${contentsKey} names no digests`)
  return { record, revision: entry.revision }
}

/** The most segments. Each is one more file to look into. */
const maxSegments = 16

/**
 * Returns how many of the newest segments a new one includes: those that are at most twice as large as what comes before them. So there are few segments, and each package is copied a few times only.
 */
export function includedIn(packages: number, segments: readonly Segment[]): number {
  let size = packages
  let count = 0
  for (const segment of segments) {
    if (segment.packages > 2 * size && segments.length - count < maxSegments) break
    size += segment.packages
    count += 1
  }
  return count
}
