import type { ManifestRecord } from '../../gen/taproot/store/v1/registry_pb.ts'

/** A manifest as far as a collection looks at it. Numbers stand for digests (DigestNumbers). */
export interface GraphManifest {
  /** The SHA-256, under which the upstream has it: the manifest's own number, unless it was pushed by another digest. */
  readonly upstream: number
  /** The manifest that it refers to; undefined if it has no subject. */
  readonly subject: number | undefined
  /** Its children, and what it mentions: they may be manifests or blobs. */
  readonly parts: readonly number[]
  /** Its config and layers. */
  readonly blobs: readonly number[]
  readonly createMs: number
  /** 0 where it was not deleted. */
  readonly deleteMs: number
}

/** A blob as far as a collection looks at it. */
export interface GraphBlob {
  readonly touchMs: number
}

/** What a repo holds, and what points to it, as of one moment. */
export interface RepoContent {
  /** By number of the digest; deleted ones too. */
  readonly manifests: ReadonlyMap<number, GraphManifest>
  readonly blobs: ReadonlyMap<number, GraphBlob>
  /** The digests that tags point to, and those that the retained history of its tags has. */
  readonly named: ReadonlySet<number>
}

/** What may go. */
export interface Garbage {
  readonly manifests: readonly number[]
  readonly blobs: readonly number[]
}

/** The digests of what an image, an index or something else is made of. `parts`, children and what other types mention, may be manifests or blobs. */
export function partsOf(manifest: ManifestRecord): { parts: string[]; blobs: string[] } {
  return {
    parts: [...manifest.children.map(({ digest }) => digest), ...manifest.mentions],
    blobs: [...(manifest.config === undefined ? [] : [manifest.config]), ...manifest.layers].map(({ digest }) => digest),
  }
}

/** True where a manifest that is held needs the blob. */
export function needsBlob(manifest: ManifestRecord, digest: string): boolean {
  const { parts, blobs } = partsOf(manifest)
  return manifest.deleteTimeMs === 0n && (blobs.includes(digest) || parts.includes(digest))
}

/** Returns what each manifest keeps in addition to its parts: its referrers, and its own bytes under another digest. It may have been pushed or tagged by that digest. */
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

/** What is needed, see `garbageOf`. */
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
 * Returns the content that nothing needs (docs/spec/registry.md#garbage-collection). Needed manifests are those that a tag or its history names, or that were
 * put after `youngAfterMs`. Their parts are needed, and so is what refers to any of them or has the bytes of one under another digest. Blobs are needed if they
 * were put, or counted on, after `youngAfterMs`. A deleted manifest is not needed, and is removed once it was deleted before that time.
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
 * Returns the manifests to remove first: no other manifest in `gone` makes them needed. An index makes its images needed, and an image its referrers. So
 * nothing is removed before content that could still need it.
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
  // Where they name each other in a circle there is no order.
  return first.length > 0 ? first : [...gone]
}
