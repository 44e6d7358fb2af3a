import { fromBinary } from '@bufbuild/protobuf'
import type { Uid } from '../../base/uid.ts'
import { BlobRecordSchema, HistoryRecordSchema, ManifestRecordSchema } from '../../gen/taproot/store/v1/registry_pb.ts'
import { blobPrefix } from '../records/blobs.ts'
import { manifestPrefix } from '../records/manifest-keys.ts'
import { historyPrefix } from '../tags/tag-history.ts'
import { tagOf } from '../records/tags.ts'
import type { Services } from '../../engine/services.ts'
import { entriesOf, pagesOf } from '../../store/pages.ts'
import type { Entry, Revision } from '../../store/store.ts'
import type { DigestNumbers } from './digest-numbers.ts'
import { partsOf, type GraphBlob, type GraphManifest } from './needed.ts'

/** A manifest that a repo holds, without its full record, which may have 1 MiB. */
export interface HeldManifest extends GraphManifest {
  /** Size of its record, in bytes. */
  readonly recordBytes: number
  /** Store revision of the last write of its record. */
  readonly revision: Revision
}

/** A blob that a repo holds. */
export interface HeldBlob extends GraphBlob {
  /** The digest under which the upstream stores it. */
  readonly upstream: number
  /** Size of the blob, in bytes. */
  readonly size: number
  readonly revision: Revision
}

/** The content of a repo, by numbers of digests. */
export interface HeldContent {
  readonly manifests: ReadonlyMap<number, HeldManifest>
  readonly blobs: ReadonlyMap<number, HeldBlob>
}

/** Number of manifest records to read at a time, which are in memory together. */
const manifestsAtOnce = 50

/** Reads all content of the repo, including deleted manifests. Adds their digests to `digests`. */
export async function readContent(
  { store }: Pick<Services, 'store'>,
  { repo, digests }: { repo: Uid; digests: DigestNumbers },
  signal: AbortSignal,
): Promise<HeldContent> {
  const manifests = new Map<number, HeldManifest>()
  const blobs = new Map<number, HeldBlob>()
  const ownPrefix = `${manifestPrefix}${repo}/`
  for await (const page of pagesOf(store, { prefix: ownPrefix, limit: manifestsAtOnce }, signal)) {
    for (const entry of page) {
      const digest = digests.of(entry.key.slice(ownPrefix.length))
      manifests.set(digest, heldManifest(digests, digest, entry))
    }
  }
  const blobsPrefix = `${blobPrefix}${repo}/`
  for await (const { key, value, revision } of entriesOf(store, { prefix: blobsPrefix }, signal)) {
    const { touchTimeMs, size, upstreamDigest } = fromBinary(BlobRecordSchema, value)
    const digest = digests.of(key.slice(blobsPrefix.length))
    const upstream = upstreamDigest === '' ? digest : digests.of(upstreamDigest)
    blobs.set(digest, { touchMs: Number(touchTimeMs), size: Number(size), upstream, revision })
  }
  return { manifests, blobs }
}

function heldManifest(digests: DigestNumbers, digest: number, { value, revision }: Entry): HeldManifest {
  const record = fromBinary(ManifestRecordSchema, value)
  const { parts, blobs } = partsOf(record)
  const numbers = (texts: readonly string[]): number[] => texts.map((text) => digests.of(text))
  return {
    upstream: record.upstreamDigest === '' ? digest : digests.of(record.upstreamDigest),
    subject: record.subject === '' ? undefined : digests.of(record.subject),
    parts: numbers(parts),
    blobs: numbers(blobs),
    createMs: Number(record.createTimeMs),
    deleteMs: Number(record.deleteTimeMs),
    recordBytes: value.length,
    revision,
  }
}

/** Returns the digests that the repo's tags point to now. */
export async function readTagged({ cache }: Services, { repo, digests }: { repo: Uid; digests: DigestNumbers }, signal: AbortSignal): Promise<Set<number>> {
  await cache.barrier(signal)
  const tagged = new Set<number>()
  for (const record of cache.tables.table('Tag').matching('parent', repo)) {
    const { digest } = tagOf(record)
    if (digest !== '') tagged.add(digests.of(digest))
  }
  return tagged
}

/** Returns the digests in the retained history of the repo's tags. */
export async function readNamed(services: Services, { repo, digests }: { repo: Uid; digests: DigestNumbers }, signal: AbortSignal): Promise<Set<number>> {
  const named = new Set<number>()
  for await (const { value } of entriesOf(services.store, { prefix: `${historyPrefix}${repo}:` }, signal)) {
    const { digest } = fromBinary(HistoryRecordSchema, value)
    if (digest !== '') named.add(digests.of(digest))
  }
  return named
}

/** Returns the digests under which the upstream stores the content. */
export function upstreamDigests({ manifests, blobs }: HeldContent): Readonly<Record<'manifest' | 'blob', ReadonlySet<number>>> {
  const of = (held: ReadonlyMap<number, { readonly upstream: number }>): Set<number> => new Set(held.values().map(({ upstream }) => upstream))
  return { manifest: of(manifests), blob: of(blobs) }
}
