import type { BlobRecord, ManifestRecord } from '../../gen/taproot/store/v1/registry_pb.ts'

/** What a repo holds, and what points to it, as of one moment. */
export interface RepoContent {
  /** By digest; deleted ones too. */
  readonly manifests: ReadonlyMap<string, ManifestRecord>
  readonly blobs: ReadonlyMap<string, BlobRecord>
  /** The digests that tags point to, and those that the retained history of its tags has. */
  readonly named: ReadonlySet<string>
}

/** What may go. */
export interface Garbage {
  readonly manifests: readonly string[]
  readonly blobs: readonly string[]
}

/** The digests of what an image, an index or something else is made of. Children, and what other types mention, may be manifests or blobs. */
function partsOf(manifest: ManifestRecord): { manifests: string[]; blobs: string[] } {
  const either = [...manifest.children.map(({ digest }) => digest), ...manifest.mentions]
  const blobs = [...(manifest.config === undefined ? [] : [manifest.config]), ...manifest.layers].map(({ digest }) => digest)
  return { manifests: either, blobs: [...blobs, ...either] }
}

/** True where a manifest that is held needs the blob. */
export function needsBlob(manifest: ManifestRecord, digest: string): boolean {
  return manifest.deleteTimeMs === 0n && partsOf(manifest).blobs.includes(digest)
}

/** True where the record has the manifest under another digest than the SHA-256, which is what tags point to. */
function isOtherDigest(digest: string, { upstreamDigest }: ManifestRecord): boolean {
  return upstreamDigest !== '' && upstreamDigest !== digest
}

/** What each manifest keeps beside its parts: what refers to it, and its own bytes under another digest, by which it may have been pushed and tagged. */
function followersOf(manifests: RepoContent['manifests']): ReadonlyMap<string, string[]> {
  const followers = new Map<string, string[]>()
  const add = (leader: string, digest: string): void => {
    const held = followers.get(leader)
    if (held === undefined) followers.set(leader, [digest])
    else held.push(digest)
  }
  for (const [digest, manifest] of manifests) {
    if (manifest.subject !== '') add(manifest.subject, digest)
    if (isOtherDigest(digest, manifest)) add(manifest.upstreamDigest, digest)
  }
  return followers
}

/**
 * What nothing needs (docs/spec/registry.md#garbage-collection). Needed are manifests that a tag or its history names, or that were put after `youngAfterMs`; what these are made of; what
 * refers to any of them, or has the bytes of one under another digest; and blobs that were put, or counted on, after `youngAfterMs`. A deleted manifest is needed by nobody, and goes once it was deleted before
 * that time.
 */
export function garbageOf(content: RepoContent, youngAfterMs: number): Garbage {
  const { manifests, blobs, named } = content
  const followers = followersOf(manifests)
  const needed = new Set<string>()
  const neededBlobs = new Set<string>()
  const isYoung = (timeMs: bigint): boolean => Number(timeMs) > youngAfterMs
  const open = [...manifests].filter(([digest, manifest]) => named.has(digest) || isYoung(manifest.createTimeMs)).map(([digest]) => digest)
  for (let digest = open.pop(); digest !== undefined; digest = open.pop()) {
    const manifest = manifests.get(digest)
    if (manifest === undefined || manifest.deleteTimeMs !== 0n || needed.has(digest)) continue
    needed.add(digest)
    const parts = partsOf(manifest)
    for (const blob of parts.blobs) neededBlobs.add(blob)
    open.push(...parts.manifests, ...(followers.get(digest) ?? []))
  }
  const isGarbage = ([digest, manifest]: readonly [string, ManifestRecord]): boolean => !needed.has(digest) && !isYoung(manifest.deleteTimeMs)
  return {
    manifests: [...manifests].filter(isGarbage).map(([digest]) => digest),
    blobs: [...blobs].filter(([digest, blob]) => !neededBlobs.has(digest) && !isYoung(blob.touchTimeMs)).map(([digest]) => digest),
  }
}

/**
 * Those of the manifests that go first: none of the others makes them needed, as an index its images and an image what refers to it. So nothing goes before what could
 * still come to need it.
 */
export function firstToGo(content: Pick<RepoContent, 'manifests'>, gone: readonly string[]): string[] {
  const left = new Set(gone)
  const later = new Set<string>()
  for (const digest of gone) {
    const manifest = content.manifests.get(digest)
    if (manifest === undefined) continue
    for (const part of partsOf(manifest).manifests) if (part !== digest) later.add(part)
    if (left.has(manifest.subject) && manifest.subject !== digest) later.add(digest)
    if (left.has(manifest.upstreamDigest) && isOtherDigest(digest, manifest)) later.add(digest)
  }
  const first = gone.filter((digest) => !later.has(digest))
  // Where they name each other in a circle there is no order.
  return first.length > 0 ? first : [...gone]
}
