import type { Digest } from '../base/digest.ts'
import { DomainError } from '../base/errors.ts'
import type { TaskTurn } from '../base/task-thread.ts'
import type { Uid } from '../base/uid.ts'
import { vulnerabilityStates, type DecisiveVulnerability, type ImageFacts, type PackageVulnerability, type ReadImage } from '../cache/lists/contents-source.ts'
import type { Services } from '../engine/services.ts'
import { Vulnerability_SeverityLevel } from '../gen/taproot/registry/v2/contents_pb.ts'
import { heldManifest } from '../registry/index.ts'
import { severitiesByRank, severityLevel } from './counts/tag-state.ts'
import { findVulnerabilities } from './image-vulnerabilities.ts'

const { UNKNOWN } = Vulnerability_SeverityLevel

/** Returns the gap that an error leaves. Throws other errors again. */
function gapOf(error: unknown): string {
  if (error instanceof DomainError && error.code === 14 && error.reason === 'CATALOGUE_LOADING') return 'its contents or the advisories are being loaded'
  if (error instanceof DomainError && error.reason === 'ANSWER_TOO_LARGE') return 'it is too large to be compared with the advisories'
  throw error
}

/** What a promise resolved with, or the gap that it leaves. */
type OrGap<T> = { readonly value: T } | { readonly gap: string }

async function orGap<T>(work: () => Promise<T>): Promise<OrGap<T>> {
  try {
    return { value: await work() }
  } catch (error) {
    return { gap: gapOf(error) }
  }
}

/** True if the first severity is worse than the second, or says less. */
function isWorse(level: Vulnerability_SeverityLevel, other: Vulnerability_SeverityLevel): boolean {
  return severitiesByRank.indexOf(level) < severitiesByRank.indexOf(other)
}

/** Returns each vulnerability once for what is certain of it, and once for what is not, with its worst severity. */
function merged(found: readonly PackageVulnerability[]): DecisiveVulnerability[] {
  const all = new Map<string, DecisiveVulnerability>()
  for (const one of found) {
    const vulnerability = { names: [one.id, ...one.aliases], level: severityLevel(one), isCertain: one.state === 'affected' }
    // A package without a score does not hide a bad score in another one.
    const key = `${one.id} ${vulnerability.isCertain} ${vulnerability.level === UNKNOWN}`
    const before = all.get(key)
    if (before === undefined || isWorse(vulnerability.level, before.level)) all.set(key, vulnerability)
  }
  return [...all.values()]
}

function gapIn({ problem, skipped }: ReadImage): string {
  if (problem !== '') return `its contents could not be read (${problem})`
  return skipped.length > 0 ? 'some of its files could not be read' : ''
}

/** Returns the vulnerabilities of one image, or the gap. Those of images that could not be read whole are known in part. */
async function vulnerabilitiesOf(services: Services, image: ReadImage, turn: TaskTurn): Promise<Pick<ImageFacts, 'vulnerabilities' | 'gap'>> {
  const gap = gapIn(image)
  if (image.problem !== '') return { vulnerabilities: [], gap }
  const found = await orGap(async () => {
    if (services.catalogue('advisories') === undefined) return 'no advisories were imported'
    return findVulnerabilities(services, { images: [image], states: vulnerabilityStates.slice(0, 2) }, turn)
  })
  if ('gap' in found) return { vulnerabilities: [], gap: found.gap }
  return typeof found.value === 'string' ? { vulnerabilities: [], gap: found.value } : { vulnerabilities: merged(found.value), gap }
}

/** Resolves with true if an image has an SBOM. Undefined if it could not be read, or if the SBOM that was read is gone: there may be another one. */
async function hasSbom(services: Services, { repo, source, sourceDigest, problem }: ReadImage, signal: AbortSignal): Promise<boolean | undefined> {
  if (problem !== '') return undefined
  if (source === 'layers') return false
  const isThere = (await heldManifest(services, { repo, digest: sourceDigest as Digest }, signal)) !== undefined // of a held manifest
  return isThere ? true : undefined
}

/**
 * Resolves with what is known of images of one repo for decisions about pulls. What is not known is a gap. An image that was not read, or could not be, has
 * one. So have all without advisories, while this process loads them, and where the comparison is too large. Rejects with other errors.
 */
export async function imageFacts(
  services: Services,
  { repo, images }: { readonly repo: Uid; readonly images: readonly Digest[] },
  turn: TaskTurn,
): Promise<readonly ImageFacts[]> {
  const source = services.imageContents
  const unread = (gap: string): ImageFacts[] => images.map((digest) => ({ digest, hasSbom: undefined, vulnerabilities: [], gap }))
  if (source === undefined) return unread('the contents of images are not read here')
  const among = await orGap(() =>
    source.imagesAmong(
      images.map((digest) => ({ repo, digest })),
      turn,
    ),
  )
  if ('gap' in among) return unread(among.gap)
  const read = new Map(among.value.map((image) => [image.digest, image]))
  const facts: ImageFacts[] = []
  for (const digest of images) {
    const image = read.get(digest)
    if (image === undefined) facts.push({ digest, hasSbom: undefined, vulnerabilities: [], gap: 'it was not read yet' })
    else facts.push({ digest, hasSbom: await hasSbom(services, image, turn.signal), ...(await vulnerabilitiesOf(services, image, turn)) })
  }
  return facts
}
