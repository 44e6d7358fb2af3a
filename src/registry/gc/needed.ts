import type { ManifestRecord } from '../../gen/taproot/store/v1/registry_pb.ts'

/** The part of a manifest that garbage collection needs. `DigestNumbers` maps each digest to a number. */
export interface GraphManifest {
  /**
   * The SHA-256 digest under which the upstream stores the manifest. Equals the manifest's own digest, unless it was pushed by another
   * algorithm.
   */
  readonly upstream: number
  /** The manifest in its `subject` field; undefined if it has none. */
  readonly subject: number | undefined
  /** The manifests of an index, and the digests that a manifest of unknown type contains: each may be a manifest or a blob. */
  readonly parts: readonly number[]
  /** The digests of its config and layers. */
  readonly blobs: readonly number[]
  readonly createMs: number
  /** When it was deleted, in milliseconds since 1970; 0 if it exists. */
  readonly deleteMs: number
}

/** What a garbage collection reads of a blob. */
export interface GraphBlob {
  readonly touchMs: number
}

/** The content of a repo, and the digests that its tags need, as of one moment. */
export interface RepoContent {
  /** Manifests by the number of their digest, including deleted ones. */
  readonly manifests: ReadonlyMap<number, GraphManifest>
  readonly blobs: ReadonlyMap<number, GraphBlob>
  /** The digests that tags point to now, or pointed to in their retained history. */
  readonly named: ReadonlySet<number>
}

/** Content that a collection may remove, by number of the digest. */
export interface Garbage {
  readonly manifests: readonly number[]
  readonly blobs: readonly number[]
}

/**
 * Returns the digests that a manifest consists of. `blobs` are its config and layers. `parts` may be manifests or blobs: images of an
 * index, or digests in a manifest of unknown type.
 */
export function partsOf(manifest: ManifestRecord): { parts: string[]; blobs: string[] } {
  return {
    parts: [...manifest.children.map(({ digest }) => digest), ...manifest.mentions],
    blobs: [...(manifest.config === undefined ? [] : [manifest.config]), ...manifest.layers].map(({ digest }) => digest),
  }
}

/** Returns true if the manifest exists and needs the blob. */
export function needsBlob(manifest: ManifestRecord, digest: string): boolean {
  const { parts, blobs } = partsOf(manifest)
  return manifest.deleteTimeMs === 0n && (blobs.includes(digest) || parts.includes(digest))
}

/**
 * Returns the manifests that each manifest keeps in addition to its parts. These are its referrers, and manifests with the same bytes
 * under another digest, which may have been pushed or tagged by that digest.
 */
function followersOf(manifests: RepoContent['manifests']): ReadonlyMap<number, number[]> {
  const followers = new Map<number, number[]>()
  const add = (leader: number, digest: number): void => {
    const held = followers.get(leader)
    if (held === undefined) followers.set(leader, [digest])
    else held.push(digest)
  }
  for (const [digest, { subject, upstream }] of manifests) {
    if (subject !== undefined) add(subject, digest)
    if (upstream !== digest) add(upstream, digest)
  }
  return followers
}

/** Returns the needed content; `garbageOf` has the rules. */
function neededOf({ manifests, blobs, named }: RepoContent, youngAfterMs: number): { manifests: ReadonlySet<number>; blobs: ReadonlySet<number> } {
  const followers = followersOf(manifests)
  const needed = { manifests: new Set<number>(), blobs: new Set<number>() }
  const open: number[] = []
  for (const [digest, { createMs }] of manifests) if (named.has(digest) || createMs > youngAfterMs) open.push(digest)
  for (let digest = open.pop(); digest !== undefined; digest = open.pop()) {
    const manifest = manifests.get(digest)
    if (manifest === undefined || manifest.deleteMs !== 0 || needed.manifests.has(digest)) continue
    needed.manifests.add(digest)
    for (const blob of manifest.blobs) needed.blobs.add(blob)
    for (const part of manifest.parts) {
      if (blobs.has(part)) needed.blobs.add(part)
      if (manifests.has(part)) open.push(part)
    }
    for (const follower of followers.get(digest) ?? []) open.push(follower)
  }
  return needed
}

/**
 * Returns the content that nothing needs (docs/spec/registry.md#garbage-collection). A manifest is needed if a tag or its history names
 * it, or if it was put after `youngAfterMs`. The parts of needed manifests are needed, and so are their referrers and the same bytes under
 * another digest. A blob is needed if it was put, or a request relied on it, after `youngAfterMs`. A deleted manifest is not needed, and
 * is removed if it was deleted before that time.
 */
export function garbageOf(content: RepoContent, youngAfterMs: number): Garbage {
  const needed = neededOf(content, youngAfterMs)
  const manifests: number[] = []
  const blobs: number[] = []
  for (const [digest, { deleteMs }] of content.manifests) if (!needed.manifests.has(digest) && deleteMs <= youngAfterMs) manifests.push(digest)
  for (const [digest, { touchMs }] of content.blobs) if (!needed.blobs.has(digest) && touchMs <= youngAfterMs) blobs.push(digest)
  return { manifests, blobs }
}

/**
 * Returns the manifests of `gone` to remove first: those that no other manifest in `gone` needs. An index needs its images, and an image
 * its referrers. So content is never removed before a manifest that needs it.
 */
export function firstToGo(content: Pick<RepoContent, 'manifests'>, gone: readonly number[]): number[] {
  const left = new Set(gone)
  const later = new Set<number>()
  for (const digest of gone) {
    const manifest = content.manifests.get(digest)
    if (manifest === undefined) continue
    const { parts, subject, upstream } = manifest
    for (const part of parts) if (part !== digest && left.has(part)) later.add(part)
    if (subject !== undefined && left.has(subject) && subject !== digest) later.add(digest)
    if (left.has(upstream) && upstream !== digest) later.add(digest)
  }
  const first = gone.filter((digest) => !later.has(digest))
  // Manifests that need each other in a circle have no order: all are returned.
  return first.length > 0 ? first : [...gone]
}
