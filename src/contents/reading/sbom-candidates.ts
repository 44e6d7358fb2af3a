import { hexOf, type Digest } from '../../base/digest.ts'
import type { ManifestRecord } from '../../gen/taproot/store/v1/registry_pb.ts'
import { heldManifest, referrersOf, tagNamed, tagOf } from '../../registry/index.ts'
import { packageSources, type PackageSource } from '../image-contents.ts'
import { sbomPredicates } from '../sbom/statements.ts'
import { ContentError } from '../package.ts'
import { readManifest, type ReadableRepo, type ManifestPart, type NamedManifest } from './held-content.ts'

/** A manifest that may hold SBOMs of an image. */
export interface SbomManifest {
  readonly source: PackageSource
  readonly digest: Digest
  readonly record: ManifestRecord
  /** True if it is about the image itself, false if it is about the index that the image is in. */
  readonly isOwn: boolean
  /** The end of the name of cosign's tag that it has. */
  readonly tag?: CosignEnd
}

/** The ends of the tags by which cosign attaches documents. */
const cosignEnds = ['att', 'sbom'] as const
type CosignEnd = (typeof cosignEnds)[number]

/** A blob that may be an SBOM. */
export interface SbomBlob {
  readonly source: PackageSource
  /** The digest of the manifest that it is in. */
  readonly manifest: Digest
  readonly digest: Digest
}

/** An image whose SBOMs are looked for, and the index that it is in. */
export interface SbomSubject {
  readonly image: NamedManifest
  readonly index: NamedManifest | undefined
}

/** Limits of one image. What is beyond them is not looked at. */
const limits = { referrers: 1_000, referrersAtOnce: 200, manifests: 100, blobs: 20 } as const

const attestationType = 'vnd.docker.reference.type'
const attestedDigest = 'vnd.docker.reference.digest'
/** Annotations of layers and manifests with the predicate of the statement in them. */
const predicateKeys = ['in-toto.io/predicate-type', 'predicateType', 'dev.sigstore.bundle.predicateType'] as const
/** Media types and types of artifacts that are SBOMs, or can have one in them. */
const sbomTypes = /spdx|cyclonedx|syft|in-toto|dsse|sigstore\.bundle/i
const signatureTypes = /\bsig\b|signature/i

/** True for a child of an index that says something about another child. */
export function isAttestation({ annotations }: ManifestPart): boolean {
  return annotations[attestationType] !== undefined
}

/** Returns the predicate that annotations name; undefined if they name none. */
export function predicateIn(annotations: Readonly<Record<string, unknown>>): unknown {
  return predicateKeys.map((key) => annotations[key]).find((value) => value !== undefined)
}

/** True unless an annotation names a predicate that is no SBOM. */
export function mayBeSbom(annotations: Readonly<Record<string, unknown>>): boolean {
  const predicate = predicateIn(annotations)
  return predicate === undefined || (typeof predicate === 'string' && sbomPredicates.test(predicate))
}

/** What documents are looked for: those about a subject whose annotations do not exclude it. */
interface WantedDocuments {
  readonly subject: SbomSubject
  readonly mayBe: (annotations: Readonly<Record<string, unknown>>) => boolean
  /** The number of referrers that may still be looked at. It goes down with each. */
  readonly referrers?: { left: number }
}

/** Returns when a manifest was made, in milliseconds since 1970: as it says itself, but not later than it was pushed. */
function timeOf({ annotations, createTimeMs }: ManifestRecord): number {
  const created = Date.parse(annotations['org.opencontainers.image.created'] ?? '')
  return Number.isNaN(created) ? Number(createTimeMs) : Math.min(created, Number(createTimeMs))
}

/** Sorts the best first: by source, those of the image before those of its index, and the newest. */
function compare(one: SbomManifest, other: SbomManifest): number {
  const rank = ({ source }: SbomManifest): number => packageSources.indexOf(source)
  if (rank(one) !== rank(other)) return rank(one) - rank(other)
  if (one.isOwn !== other.isOwn) return one.isOwn ? -1 : 1
  return timeOf(other.record) - timeOf(one.record) || (one.digest < other.digest ? -1 : 1)
}

/** Returns the digests by which statements and referrers can name a manifest. */
export function namesOf({ digest, record }: NamedManifest): Digest[] {
  return [...new Set([digest, record.upstreamDigest as Digest])] // a cast: the record holds nothing else
}

async function attestationsOf(content: ReadableRepo, { image, index }: SbomSubject, signal: AbortSignal): Promise<SbomManifest[]> {
  const names: readonly unknown[] = namesOf(image)
  const found: SbomManifest[] = []
  for (const { digest, annotations } of index?.children ?? []) {
    if (annotations[attestationType] !== 'attestation-manifest' || !names.includes(annotations[attestedDigest])) continue
    if (found.length >= limits.manifests) break
    const record = await heldManifest(content.services, { repo: content.repo, digest }, signal)
    if (record !== undefined) found.push({ source: 'attestation', digest, record, isOwn: true })
  }
  return found
}

async function referrersOfManifest(
  { services, repo }: ReadableRepo,
  { manifest, mayBe, referrers = { left: Infinity } }: Omit<WantedDocuments, 'subject'> & { readonly manifest: NamedManifest },
  signal: AbortSignal,
): Promise<Omit<SbomManifest, 'isOwn'>[]> {
  const found: Omit<SbomManifest, 'isOwn'>[] = []
  for (const subject of namesOf(manifest)) {
    let after: string | undefined
    for (let listed = 0; listed < limits.referrers; listed += limits.referrersAtOnce) {
      const limit = Math.min(limits.referrersAtOnce, referrers.left)
      if (limit <= 0) break
      const page = { repo, subject, limit, ...(after !== undefined && { after }) }
      const { items, more } = await referrersOf(services, page, signal)
      referrers.left -= items.length
      for (const { digest, record } of items) {
        if (!signatureTypes.test(record.artifactType) && mayBe(record.annotations)) found.push({ source: 'referrer', digest, record })
      }
      after = items.at(-1)?.digest
      if (!more || after === undefined) break
    }
  }
  return found
}

function cosignTag({ record }: NamedManifest, end: CosignEnd): string {
  return `sha256-${hexOf(record.upstreamDigest as Digest)}.${end}` // a cast: the record holds nothing else
}

/** Returns the names of the tags by which cosign attaches documents to a manifest. */
export function cosignTags(manifest: NamedManifest): string[] {
  return cosignEnds.map((end) => cosignTag(manifest, end))
}

async function taggedOf({ services, repo }: ReadableRepo, manifest: NamedManifest, signal: AbortSignal): Promise<Omit<SbomManifest, 'isOwn'>[]> {
  const found: Omit<SbomManifest, 'isOwn'>[] = []
  for (const tag of cosignEnds) {
    const named = tagNamed(services.cache.tables, repo, cosignTag(manifest, tag))
    if (named === undefined) continue
    const digest = tagOf(named).digest as Digest // a cast: digests are checked before they are written
    const tagged = await heldManifest(services, { repo, digest }, signal)
    if (tagged !== undefined) found.push({ source: 'tag', digest, record: tagged, tag })
  }
  return found
}

/** Returns the manifests that may hold SBOMs or other documents about an image, best first. At most about 5,000. */
export async function manifestsAbout(content: ReadableRepo, { subject, ...wanted }: WantedDocuments, signal: AbortSignal): Promise<SbomManifest[]> {
  const { image, index } = subject
  const found = await attestationsOf(content, subject, signal)
  for (const manifest of index === undefined || index.digest === image.digest ? [image] : [image, index]) {
    const isOwn = manifest === image
    for (const one of await referrersOfManifest(content, { manifest, ...wanted }, signal)) found.push({ ...one, isOwn })
    for (const one of await taggedOf(content, manifest, signal)) found.push({ ...one, isOwn })
  }
  return found.sort(compare)
}

/** What is known of an image: where its packages were read, and what was refused then. */
export interface KnownSource {
  readonly source: PackageSource
  readonly sourceDigest: string
  readonly skipped?: readonly { readonly path: string }[]
}

/**
 * Returns those of the manifests that are better than the known one, and whether the known contents stay if none of them can be read. They do not stay if the
 * repo does not hold their source any more.
 */
export async function betterThan(
  { content, manifests, image }: { content: ReadableRepo; manifests: readonly SbomManifest[]; image: NamedManifest },
  known: KnownSource | undefined,
  signal: AbortSignal,
): Promise<{ readonly manifests: readonly SbomManifest[]; readonly isKnown: boolean }> {
  if (known === undefined) return { manifests, isKnown: false }
  if (known.source === 'layers') return { manifests, isKnown: true }
  const listed = manifests.find(({ source, digest }) => source === known.source && digest === known.sourceDigest)
  const digest = known.sourceDigest as Digest // a cast: it is only looked up
  const record = listed?.record ?? (known.source === 'tag' ? undefined : await heldManifest(content.services, { repo: content.repo, digest }, signal))
  if (record === undefined) return { manifests, isKnown: false }
  const isOwn = listed?.isOwn ?? (record.subject === '' || namesOf(image).some((name) => name === record.subject))
  const source: SbomManifest = { source: known.source, digest, record, isOwn }
  return { manifests: manifests.filter((one) => compare(one, source) < 0 && one.digest !== digest), isKnown: true }
}

/** A manifest whose SBOMs cannot be read, or an SBOM. */
export interface FailedSbom {
  /** The digest of the manifest. */
  readonly manifest: Digest
  readonly error: ContentError
}

/** Yields the blobs in the manifests that may be SBOMs, best first. At most 20. Adds manifests that cannot be read to `failed`. */
export async function* sbomBlobs(
  content: ReadableRepo,
  { manifests, failed }: { readonly manifests: readonly SbomManifest[]; readonly failed: FailedSbom[] },
  signal: AbortSignal,
): AsyncGenerator<SbomBlob, void, undefined> {
  let blobs = 0
  for (const { source, digest, record } of manifests.slice(0, limits.manifests)) {
    const manifest = await readManifest(content, digest, signal).catch((error: unknown) => {
      if (!(error instanceof ContentError)) throw error
      failed.push({ manifest: digest, error })
      return undefined
    })
    // Cosign adds the newest one at the end.
    for (const layer of (source === 'tag' ? manifest?.layers.toReversed() : manifest?.layers) ?? []) {
      if (!mayBeSbom(layer.annotations) || !(sbomTypes.test(layer.mediaType) || sbomTypes.test(record.artifactType))) continue
      if (blobs >= limits.blobs) return
      blobs += 1
      yield { source, manifest: digest, digest: layer.digest }
    }
  }
}
