import { DomainError } from '../base/errors.ts'
import type { TaskTurn } from '../base/task-thread.ts'
import { lineage, type Uid } from '../base/uid.ts'
import {
  vulnerabilityStates,
  type ImageName,
  type ImageVulnerability,
  type ListedPackage,
  type PackageVulnerability,
  type ReadImage,
  type VulnerabilityState,
} from '../cache/lists/contents-source.ts'
import type { Services } from '../engine/services.ts'
import { heldManifest, platformImages, publicRoot } from '../registry/index.ts'

/** Number of packages that are compared together, and the most bytes of their advisories. */
const packagesTogether = 100
const maxAdvisoryBytes = 64 * 1024 * 1024
/** The most vulnerabilities of one answer. */
const maxVulnerabilities = 50_000

/** Returns the groups whose advisories count for a repo: those above it, and the public organisation. */
function groupsFor({ cache: { tables }, settings }: Services, repo: Uid): Uid[] {
  const shared = publicRoot(tables, settings.registry?.publicOrganization)
  const groups = new Set([...lineage(repo), ...(shared === undefined ? [] : [shared])])
  return [...groups].filter((group) => tables.get('Group', group) !== undefined).sort()
}

/**
 * Resolves with the vulnerabilities in the packages of images of one repo, in the order of `images` and of packages. Advisories count from the groups above the
 * repo, and from the public organisation: so all who may ask get the same answer. Rejects with code 14 while a process loads, and with code 9 ANSWER_TOO_LARGE.
 */
export async function findVulnerabilities(
  services: Services,
  { images, states }: { readonly images: readonly ReadImage[]; readonly states: readonly VulnerabilityState[] },
  turn: TaskTurn,
): Promise<PackageVulnerability[]> {
  const { imageContents } = services
  const source = services.catalogue('advisories')
  const found: PackageVulnerability[] = []
  if (imageContents === undefined || source === undefined) return found
  for (const { repo, digest, distribution } of images) {
    const groups = groupsFor(services, repo)
    const query = { images: [{ repo, digest }], names: [], types: [], text: '', skip: 0, limit: packagesTogether }
    for (let after: ListedPackage | undefined; ;) {
      const { packages } = await imageContents.packages({ ...query, after }, turn)
      after = packages.at(-1)
      if (after === undefined) break
      const names = await imageContents.namesOf({ packages, distribution }, turn)
      const advisories = await source.ofPackages({ groups, names, maxBytes: maxAdvisoryBytes }, turn)
      if (advisories === undefined) throw tooLarge(digest)
      found.push(...(await imageContents.match({ packages, distribution, advisories, states }, turn)))
      if (found.length > maxVulnerabilities) throw tooLarge(digest)
    }
  }
  return found
}

function tooLarge(digest: string): DomainError {
  const description = `the advisories about ${digest} are too many for one answer`
  return DomainError.precondition([{ type: 'ANSWER_TOO_LARGE', subject: digest, description }], { reason: 'ANSWER_TOO_LARGE' })
}

/** Resolves with the vulnerabilities that affect an image, or the images of an index, each once; undefined if the contents of one are not known. */
export async function vulnerabilitiesIn(services: Services, image: ImageName, turn: TaskTurn): Promise<readonly ImageVulnerability[] | undefined> {
  const { repo } = image
  if ((await heldManifest(services, image, turn.signal)) === undefined) return undefined
  const images = (await platformImages(services, image, turn.signal)).map(({ digest }) => ({ repo, digest }))
  const read = (await services.imageContents?.imagesAmong(images, turn)) ?? []
  if (read.length < images.length || read.some(({ problem }) => problem !== '')) return undefined
  const found = await findVulnerabilities(services, { images: read, states: vulnerabilityStates.slice(0, 2) }, turn)
  return [...new Map(found.map(({ id, aliases }) => [id, { id, aliases }])).values()]
}
