import { hash } from 'node:crypto'
import { DomainError } from '../base/errors.ts'
import { RecentMap } from '../base/recent-map.ts'
import type { TaskTurn } from '../base/task-thread.ts'
import { lineage, type Uid } from '../base/uid.ts'
import {
  vulnerabilityStates,
  type ContentsSource,
  type ImageName,
  type ImageVulnerability,
  type ListedPackage,
  type PackageVulnerability,
  type ReadImage,
  type VulnerabilityState,
} from '../cache/lists/contents-source.ts'
import { OwnAdvisories } from '../catalogue/index.ts'
import type { AdvisorySource } from '../cache/lists/advisory-source.ts'
import type { Services } from '../engine/services.ts'
import { heldManifest, pathOf, platformImages, publicRoot } from '../registry/index.ts'
import { bytesOfAnswer } from './matching/match-bytes.ts'
import { PackageMatches } from './matching/package-matches.ts'

/** Number of packages that are compared together. */
const packagesTogether = 500
/** The most packages that one answer compares, and the most vulnerabilities in it. */
const maxPackages = 20_000
const maxVulnerabilities = 50_000
/** The most bytes to remember for each catalogue, of the last answers: the next pages of a list need them again. And about what an empty answer takes. */
const rememberedBytes = 64 * 1024 * 1024
const answerBytes = 1_000

/** What is found for the images of one repo. */
interface VulnerabilityQuery {
  readonly images: readonly ReadImage[]
  /** The index that contains them all. It counts also before it was read. Undefined if none is known. */
  readonly index?: string | undefined
  readonly states: readonly VulnerabilityState[]
}

/** Answers by catalogue. Another catalogue is another source. */
const answers = new WeakMap<AdvisorySource, RecentMap<string, readonly PackageVulnerability[]>>()

/** Returns the groups whose advisories count for a repo: those above it, and the public organisation. */
export function groupsFor({ cache: { tables }, settings }: Services, repo: Uid): Uid[] {
  const shared = publicRoot(tables, settings.registry?.publicOrganization)
  const groups = new Set([...lineage(repo), ...(shared === undefined ? [] : [shared])])
  return [...groups].filter((group) => tables.get('Group', group) !== undefined).sort()
}

/** Returns the host and path of a repo, by which statements name its images. */
function addressOf({ cache: { tables }, settings }: Services, repo: Uid): string {
  return `${settings.registry?.host ?? ''}/${pathOf(tables, repo) ?? ''}`.toLowerCase()
}

/**
 * Resolves with the vulnerabilities in the packages of images of one repo, in the order of `images` and of packages. Advisories count from the groups above the
 * repo, and from the public organisation: so all who may ask get the same answer. Rejects with code 14 while the process still loads its data, and with code 9 ANSWER_TOO_LARGE.
 */
export async function findVulnerabilities(services: Services, query: VulnerabilityQuery, turn: TaskTurn): Promise<readonly PackageVulnerability[]> {
  const { imageContents } = services
  const source = services.catalogue('advisories')
  const [first] = query.images
  if (imageContents === undefined || source === undefined || first === undefined) return []
  const groups = groupsFor(services, first.repo)
  const known = answers.get(source) ?? new RecentMap(rememberedBytes, (found) => answerBytes + bytesOfAnswer(found))
  answers.set(source, known)
  const { tables } = services.cache
  const address = addressOf(services, first.repo)
  const about = query.images.map(({ repo, digest, readMs, indexes }) => [repo, digest, readMs, indexes])
  // A strong hash: an image may be in many indexes.
  const key = hash('sha256', JSON.stringify([groups, OwnAdvisories.changesIn(tables, groups), query.states, address, query.index, about]), 'base64')
  const remembered = known.get(key)
  if (remembered !== undefined) return remembered
  const matches = new PackageMatches({ contents: imageContents, source, groups, own: OwnAdvisories.in(tables, groups) })
  const found = await compared({ imageContents, matches, address }, query, turn)
  known.set(key, found)
  return found
}

/** Compares the packages of images with advisories. */
async function compared(
  { imageContents, matches, address }: { readonly imageContents: ContentsSource; readonly matches: PackageMatches; readonly address: string },
  { images, states, index }: VulnerabilityQuery,
  turn: TaskTurn,
): Promise<PackageVulnerability[]> {
  if (images.reduce((sum, { packages }) => sum + packages, 0) > maxPackages) throw tooLarge(`the images have more than ${maxPackages} packages`)
  const found: PackageVulnerability[] = []
  for (const { repo, digest, distribution, indexes, platform } of images) {
    const digests = [...new Set([digest, ...indexes, ...(index === undefined ? [] : [index])])].sort()
    const image = { digests, address, architecture: platform.split('/')[1] ?? '' }
    const query = { images: [{ repo, digest }], names: [], types: [], text: '', skip: 0, limit: packagesTogether }
    for (let after: ListedPackage | undefined; ;) {
      const { packages } = await imageContents.packages({ ...query, after }, turn)
      after = packages.at(-1)
      if (after === undefined) break
      const some = await matches.in({ packages, distribution, states, image }, turn)
      if (some === undefined) throw tooLarge(`a package of ${digest} has too many advisories`)
      found.push(...some)
      if (found.length > maxVulnerabilities) throw tooLarge(`the images have more than ${maxVulnerabilities} vulnerabilities`)
    }
  }
  return found
}

function tooLarge(description: string): DomainError {
  return DomainError.precondition([{ type: 'ANSWER_TOO_LARGE', subject: 'images', description: `${description}: ask for one platform` }], {
    reason: 'ANSWER_TOO_LARGE',
  })
}

/** Resolves with the vulnerabilities that affect an image, or the images of an index, each once; undefined if the contents of one are not known. */
export async function vulnerabilitiesIn(services: Services, image: ImageName, turn: TaskTurn): Promise<readonly ImageVulnerability[] | undefined> {
  const { repo } = image
  // Without advisories nothing is known about any package.
  if (services.catalogue('advisories') === undefined || (await heldManifest(services, image, turn.signal)) === undefined) return undefined
  const images = (await platformImages(services, image, turn.signal)).map(({ digest }) => ({ repo, digest }))
  // An artifact is no image.
  if (images.length === 0) return undefined
  const read = (await services.imageContents?.imagesAmong(images, turn)) ?? []
  if (read.length < images.length || read.some(({ problem }) => problem !== '')) return undefined
  const found = await findVulnerabilities(services, { images: read, index: image.digest, states: vulnerabilityStates.slice(0, 2) }, turn)
  return [...new Map(found.map(({ id, aliases }) => [id, { id, aliases }])).values()]
}
