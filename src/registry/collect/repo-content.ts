import { fromBinary } from '@bufbuild/protobuf'
import type { Uid } from '../../core/uid.ts'
import { BlobRecordSchema, HistoryRecordSchema, ManifestRecordSchema, type BlobRecord, type ManifestRecord } from '../../gen/taproot/store/v1/registry_pb.ts'
import { blobPrefix } from '../../resources/registry/blobs.ts'
import { manifestPrefix } from '../../resources/registry/manifest-keys.ts'
import { historyPrefix } from '../../resources/registry/tag-history.ts'
import { tagOf } from '../../resources/registry/tags.ts'
import type { Services } from '../../resources/services.ts'
import { entriesOf } from '../../store/pages.ts'
import type { Revision } from '../../store/store.ts'

/** What a repo holds, with the commits that wrote it. */
export interface HeldContent {
  readonly manifests: ReadonlyMap<string, ManifestRecord>
  readonly blobs: ReadonlyMap<string, BlobRecord>
  /** By key. */
  readonly revisions: ReadonlyMap<string, Revision>
}

/** Everything that the repo holds; deleted manifests too. */
export async function readContent(services: Services, repo: Uid, signal: AbortSignal): Promise<HeldContent> {
  const manifests = new Map<string, ManifestRecord>()
  const blobs = new Map<string, BlobRecord>()
  const revisions = new Map<string, Revision>()
  for await (const { key, value, revision } of entriesOf(services.store, { prefix: `${manifestPrefix}${repo}/` }, signal)) {
    manifests.set(key.slice(manifestPrefix.length + repo.length + 1), fromBinary(ManifestRecordSchema, value))
    revisions.set(key, revision)
  }
  for await (const { key, value, revision } of entriesOf(services.store, { prefix: `${blobPrefix}${repo}/` }, signal)) {
    blobs.set(key.slice(blobPrefix.length + repo.length + 1), fromBinary(BlobRecordSchema, value))
    revisions.set(key, revision)
  }
  return { manifests, blobs, revisions }
}

/** The digests that the repo's tags point to, as of now. */
export async function readTagged({ replica }: Services, repo: Uid, signal: AbortSignal): Promise<Set<string>> {
  await replica.barrier(signal)
  return new Set([...replica.snapshot.table('Tag').matching('parent', repo)].map((row) => tagOf(row).digest))
}

/** The digests that the retained history of the repo's tags has. */
export async function readNamed(services: Services, repo: Uid, signal: AbortSignal): Promise<Set<string>> {
  const named = new Set<string>()
  for await (const { value } of entriesOf(services.store, { prefix: `${historyPrefix}${repo}:` }, signal))
    named.add(fromBinary(HistoryRecordSchema, value).digest)
  return named
}

/** The digests under which the upstream has what the repo holds. */
export function upstreamDigests({ manifests, blobs }: Pick<HeldContent, 'manifests' | 'blobs'>): Readonly<Record<'manifest' | 'blob', ReadonlySet<string>>> {
  return {
    manifest: new Set([...manifests].map(([digest, record]) => record.upstreamDigest || digest)),
    blob: new Set([...blobs].map(([digest, record]) => record.upstreamDigest || digest)),
  }
}
