import type { Digest } from '../../base/digest.ts'
import { tmpdir } from 'node:os'
import { Readable } from 'node:stream'
import type { Services } from '../../engine/services.ts'
import { heldManifest, isForeignLayer, isImage, isImageLayer, isImageRecord, type Upstream } from '../../registry/index.ts'
import type { ImageName } from '../../cache/lists/contents-source.ts'
import type { ImageContents, ImageIndex } from '../image-contents.ts'
import type { SkippedFile } from '../layers/packages-of-layers.ts'
import { ContentError, contentLimits, strongestRetry, type ContentRetry, type ImagePackage } from '../package.ts'
import { absent, namedBlob, platformOf, readManifest, readWhole, type ReadableRepo, type NamedBlob, type NamedManifest } from './held-content.ts'
import { prepareFolder, readInProcess, type ReadFacts } from './reading-process.ts'
import {
  betterThan,
  isAttestation,
  manifestsAbout,
  mayBeSbom,
  namesOf,
  sbomBlobs,
  type FailedSbom,
  type KnownSource,
  type SbomSubject,
} from './sbom-candidates.ts'

/** What reading the contents of images needs. */
export interface ReadingOptions {
  readonly services: Services
  readonly upstream: Upstream
  /** Resolves with where the contents of an image were read that are known already. */
  readonly known?: (image: ImageName) => Promise<KnownSource | undefined>
  /** Where a process keeps its files while it reads an image: at most 512 MiB each. Created if missing; the folder for temporary files by default. */
  readonly folder?: string
  /** The longest time for one image, or for all images of an index together, in milliseconds; 15 minutes by default. */
  readonly timeLimitMs?: number
}

/** The repo of the images, and how to read them. */
interface RepoReading extends ReadableRepo, Required<Pick<ReadingOptions, 'folder'>> {
  /** Aborts with a ContentError when the time is over. */
  readonly ended: AbortSignal
}

const defaultTimeLimitMs = 15 * 60_000
/** Limits of one index. The number of packages bounds the memory of the result. */
const limits = { images: 100, packages: 300_000, skipped: 100 } as const
const encryptedLayer = /\+encrypted$/

function isOfImage({ config, layers, children }: NamedManifest): boolean {
  return config !== undefined && children.length === 0 && isImage({ config: config.mediaType, layers: layers.map(({ mediaType }) => mediaType) })
}

/** Yields the image itself, or the images in the index. Adds children whose manifests cannot be read to `lost`. */
async function* imagesIn(
  content: ReadableRepo,
  { manifest, lost }: { readonly manifest: NamedManifest; readonly lost: ContentError[] },
  signal: AbortSignal,
): AsyncGenerator<SbomSubject & { platform: string }, void, undefined> {
  if (isOfImage(manifest)) yield { image: manifest, index: undefined, platform: '' }
  const seen = new Set<Digest>()
  for (const child of manifest.children) {
    if (isAttestation(child) || seen.has(child.digest)) continue
    if (seen.size >= limits.images) return
    seen.add(child.digest)
    const image = await readManifest(content, child.digest, signal).catch((error: unknown) => {
      lost.push(contentErrorOf(error, signal))
      return undefined
    })
    if (image !== undefined && isOfImage(image)) yield { image, index: manifest, platform: child.platform }
  }
}

/** The layers that can be read, and those that cannot. */
interface LayerPlan {
  readonly layers: readonly NamedBlob[]
  readonly skipped: readonly SkippedFile[]
}

/** The packages that were read. */
interface ReadPackages extends ReadFacts {
  readonly packages: readonly ImagePackage[]
}

async function layersOf(content: ReadableRepo, { layers }: NamedManifest, signal: AbortSignal): Promise<LayerPlan> {
  const found: NamedBlob[] = []
  const skipped: SkippedFile[] = []
  for (const { digest, mediaType } of layers) {
    if (!isImageLayer(mediaType) || encryptedLayer.test(mediaType)) {
      skipped.push({ path: digest, problem: 'UNSUPPORTED_FORM', message: 'layers of this media type are not read' })
      continue
    }
    const blob = await namedBlob(content, digest, signal)
    if (blob !== undefined) found.push(blob)
    else if (isForeignLayer(mediaType)) skipped.push({ path: digest, problem: 'UNREADABLE', message: 'the layer is stored elsewhere' })
    else throw absent(`layer ${digest}`)
  }
  return { layers: found, skipped }
}

async function readLayers(reading: RepoReading, image: NamedManifest, signal: AbortSignal): Promise<ReadPackages> {
  const { layers, skipped } = await layersOf(reading, image, signal)
  for (const layer of layers) await layer.assertThere(signal)
  const job = { kind: 'layers', layers: layers.map(({ digest, size }) => ({ digest, size })) } as const
  const streams = layers.map((layer) => (opened: AbortSignal) => layer.open(opened))
  const { items: packages, facts } = await readInProcess(job, { streams, folder: reading.folder }, signal)
  return { ...facts, packages, skipped: [...skipped, ...facts.skipped] }
}

async function readSbom(reading: RepoReading, { digest, subject }: { digest: Digest; subject: SbomSubject }, signal: AbortSignal): Promise<ReadPackages> {
  const blob = await namedBlob(reading, digest, signal)
  if (blob === undefined) throw absent(`SBOM ${digest}`)
  const pieces = await readWhole(blob, contentLimits.documentBytes, signal)
  const digests = [...namesOf(subject.image), ...(subject.index === undefined ? [] : namesOf(subject.index))]
  const streams = [() => Promise.resolve(Readable.from(pieces, { objectMode: false }))]
  const { items: packages, facts } = await readInProcess({ kind: 'sbom', size: blob.size, digests }, { streams, folder: reading.folder }, signal)
  return { ...facts, packages }
}

function skippedOf(failed: readonly FailedSbom[]): SkippedFile[] {
  // Signatures and other statements are often in the same place.
  const sboms = failed.filter(({ error }) => error.problem !== 'UNSUPPORTED_FORM')
  return sboms.map(({ manifest, error }) => ({ path: manifest, problem: error.problem, message: `the SBOM was not read: ${error.message}` }))
}

/** Returns the error if it says something about the image. Throws all others: those of the upstream, and the signal's reason. */
function contentErrorOf(error: unknown, signal: AbortSignal): ContentError {
  signal.throwIfAborted()
  if (error instanceof ContentError) return error
  throw error
}

type Outcome = Omit<ImageContents, keyof ImageName | 'platform'>

function outcomeOf(read: ReadPackages, source: Pick<Outcome, 'source' | 'sourceDigest'>, failed: readonly FailedSbom[]): Outcome {
  // What is said of the source as a whole has no path.
  const skipped = read.skipped.map(({ path, ...why }) => ({ path: path || source.sourceDigest, ...why }))
  return { ...read, ...source, problem: undefined, message: '', skipped: [...skippedOf(failed), ...skipped].slice(0, limits.skipped) }
}

function failureOf({ problem, message }: ContentError, failed: readonly FailedSbom[]): Outcome {
  const skipped = skippedOf(failed)
  const [sbom] = skipped
  return {
    source: 'layers',
    sourceDigest: '',
    problem,
    message: sbom === undefined ? message : `${message}; ${sbom.message}`,
    distribution: undefined,
    described: undefined,
    packages: [],
    skipped,
  }
}

/** What reading an image had for a result. */
interface ImageReading {
  /** Undefined if the known source is the best one that can be read. */
  readonly outcome: Outcome | undefined
  /** When it is to be read again: a source that counts more may be readable then. */
  readonly retry: ContentRetry
}

/** An image to read. */
interface AskedImage {
  readonly reading: RepoReading
  readonly subject: SbomSubject
  readonly known: KnownSource | undefined
}

/** Returns the result for an image of an index whose time was over before it. */
function notReached(known: KnownSource | undefined): ImageReading {
  const error = new ContentError('TOO_LARGE', 'the index was not read in time: this image was not reached', { retry: 'few' })
  return { outcome: known === undefined ? failureOf(error, []) : undefined, retry: error.retry }
}

/** Reads one image from the best source that can be read. What is known is read again if an SBOM was refused since: then the facts say so. */
async function readImage(asked: AskedImage, signal: AbortSignal): Promise<ImageReading> {
  const { outcome, retry, refusesMore } = await readBetter(asked, signal)
  return outcome === undefined && refusesMore ? readBetter({ ...asked, known: undefined }, signal) : { outcome, retry }
}

/** Reads one image from the best source that can be read, and that is better than the known one. `refusesMore` is true if it refused an SBOM of which the known facts say nothing. */
async function readBetter({ reading, subject, known }: AskedImage, signal: AbortSignal): Promise<ImageReading & { readonly refusesMore: boolean }> {
  const { image } = subject
  const { ended } = reading
  const all = await manifestsAbout(reading, { subject, mayBe: mayBeSbom }, signal)
  const { manifests, isKnown } = await betterThan({ content: reading, manifests: all, image }, known, signal)
  const limited = AbortSignal.any([signal, ended])
  const failed: FailedSbom[] = []
  const done = (outcome: Outcome | undefined, error?: ContentError): ImageReading & { readonly refusesMore: boolean } => {
    const retry = strongestRetry([...failed.map((sbom) => sbom.error), ...(error === undefined ? [] : [error])].map((one) => one.retry))
    const refused = skippedOf(failed).filter(({ path }) => known?.skipped?.some((one) => one.path === path) !== true)
    // An attestation of another index cannot be read again here.
    const isHere = known?.source === 'layers' || all.some((one) => one.digest === known?.sourceDigest)
    return { outcome, retry, refusesMore: refused.length > 0 && isHere && !ended.aborted }
  }
  try {
    for await (const { source, manifest, digest } of sbomBlobs(reading, { manifests, failed }, limited)) {
      try {
        return done(outcomeOf(await readSbom(reading, { digest, subject }, limited), { source, sourceDigest: manifest }, failed))
      } catch (error) {
        failed.push({ manifest, error: contentErrorOf(error, signal) })
      }
    }
    return done(isKnown ? undefined : outcomeOf(await readLayers(reading, image, limited), { source: 'layers', sourceDigest: '' }, failed))
  } catch (error) {
    const failure = contentErrorOf(error, signal)
    return done(isKnown ? undefined : failureOf(failure, failed), failure)
  }
}

/** What was read of a manifest. */
export interface ReadManifest {
  readonly images: readonly ImageContents[]
  /** The index, with all images in it. Undefined without any. */
  readonly index: ImageIndex | undefined
  /** When the manifest is to be read again, if nothing is pushed before. */
  readonly retry: ContentRetry
}

/** Resolves with the contents of an image that cannot be read at all: the reason, unless its contents are known. The images of an index are read by themselves. */
export async function unreadContents(
  { services, known }: Pick<ReadingOptions, 'services' | 'known'>,
  { name, error }: { readonly name: ImageName; readonly error: ContentError },
  signal: AbortSignal,
): Promise<ReadManifest> {
  const record = await heldManifest(services, name, signal)
  const { retry } = error
  if (record === undefined || !isImageRecord(record)) return { images: [], index: undefined, retry }
  const image = { repo: name.repo, digest: record.upstreamDigest as Digest } // a cast: the record holds nothing else
  if ((await known?.(image)) !== undefined) return { images: [], index: undefined, retry }
  return { images: [{ ...image, platform: '', ...failureOf(error, []) }], index: undefined, retry }
}

/**
 * Reads the contents of the image with this digest, or of each image in an index: at most 100. Resolves with none if the manifest is gone, or is no image.
 * Leaves out images for which nothing better than the known source can be read. If no source can be read, the result has a problem. So do the images of an
 * index that were not reached in time.
 *
 * Rejects with UpstreamError if the upstream is not available, with errors of the store, or with the signal's reason. No process is left then.
 */
export async function readContents(options: ReadingOptions, name: ImageName, signal: AbortSignal): Promise<ReadManifest> {
  const { timeLimitMs = defaultTimeLimitMs } = options
  const ending = new AbortController()
  const late = new ContentError('TOO_LARGE', `the image was not read within ${timeLimitMs / 1000} seconds`, { retry: 'few' })
  const timer = setTimeout(() => ending.abort(late), timeLimitMs)
  try {
    return await readUntil(ending.signal, { options, name }, signal)
  } finally {
    clearTimeout(timer)
  }
}

/** Does the work of `readContents` until the time is over. */
async function readUntil(
  ended: AbortSignal,
  { options: { services, upstream, known, folder = tmpdir() }, name }: { readonly options: ReadingOptions; readonly name: ImageName },
  signal: AbortSignal,
): Promise<ReadManifest> {
  const { repo } = name
  const reading = { services, upstream, repo, ended, folder }
  const manifest = await readManifest(reading, name.digest, signal).catch((error: unknown) => contentErrorOf(error, signal))
  if (manifest === undefined) return { images: [], index: undefined, retry: 'never' }
  if (manifest instanceof ContentError) return unreadContents({ services, ...(known && { known }) }, { name, error: manifest }, signal)
  await prepareFolder(folder)
  const images: ImageContents[] = []
  const lost: ContentError[] = []
  const retries: ContentRetry[] = []
  const members: Digest[] = []
  let packages = 0
  for await (const { platform, ...subject } of imagesIn(reading, { manifest, lost }, signal)) {
    const { record, config } = subject.image
    const digest = record.upstreamDigest as Digest // a cast: the record holds nothing else
    if (subject.index !== undefined) members.push(digest)
    const source = await known?.({ repo, digest })
    const isReached = !ended.aborted || subject.index === undefined
    const { outcome: read, retry } = isReached ? await readImage({ reading, subject, known: source }, signal) : notReached(source)
    retries.push(retry)
    if (read === undefined) continue
    packages += read.packages.length
    const tooMany = new ContentError('TOO_LARGE', `the images of the index have more than ${limits.packages} packages`)
    const outcome = packages > limits.packages ? failureOf(tooMany, []) : read
    packages = Math.min(packages, limits.packages)
    const named = config === undefined ? '' : await platformOf(reading, config.digest, signal)
    images.push({ repo, digest, platform: named || platform, ...outcome })
  }
  // A cast: the record holds nothing else.
  const index = members.length === 0 ? undefined : { repo, digest: manifest.record.upstreamDigest as Digest, images: members }
  return { images, index, retry: strongestRetry([...retries, ...lost.map(({ retry }) => retry)]) }
}
