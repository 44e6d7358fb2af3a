import { DomainError } from '../../base/errors.ts'
import type { TaskTurn } from '../../base/task-thread.ts'
import { vulnerabilityStates, type ImageName, type PackageVulnerability } from '../../cache/lists/contents-source.ts'
import { severityOf } from '../../catalogue/index.ts'
import type { Services } from '../../engine/services.ts'
import { Vulnerability_SeverityLevel } from '../../gen/taproot/registry/v2/contents_pb.ts'
import { heldManifest, platformImages, type PlatformImage } from '../../registry/index.ts'
import { findVulnerabilities } from '../image-vulnerabilities.ts'
import { knownState, type CountedState } from './tag-month.ts'

const { UNKNOWN, NEGLIGIBLE, LOW, MEDIUM, HIGH, CRITICAL } = Vulnerability_SeverityLevel
/** All severities, the worst first. One that is not known may be any. */
export const severitiesByRank: readonly Vulnerability_SeverityLevel[] = [CRITICAL, HIGH, MEDIUM, LOW, NEGLIGIBLE, UNKNOWN]

/** Returns the severity of a vulnerability in a package. */
export function severityLevel({ severities }: Pick<PackageVulnerability, 'severities'>): Vulnerability_SeverityLevel {
  const level = severityOf(severities)
  if (level === undefined) return UNKNOWN
  return level === 'NONE' ? NEGLIGIBLE : Vulnerability_SeverityLevel[level]
}

/** Returns the worst severity of each vulnerability by its id. */
export function worstSeverities(found: readonly PackageVulnerability[]): ReadonlyMap<string, Vulnerability_SeverityLevel> {
  const worst = new Map<string, Vulnerability_SeverityLevel>()
  for (const one of found) {
    const [level, before] = [severityLevel(one), worst.get(one.id)]
    if (before === undefined || severitiesByRank.indexOf(level) < severitiesByRank.indexOf(before)) worst.set(one.id, level)
  }
  return worst
}

/** Returns the other names of vulnerabilities that have some, by id. */
function aliasesOf(found: readonly PackageVulnerability[]): ReadonlyMap<string, readonly string[]> {
  const all = new Map<string, Set<string>>()
  for (const { id, aliases } of found) {
    if (aliases.length === 0) continue
    const names = all.get(id) ?? new Set()
    all.set(id, names)
    for (const alias of aliases) names.add(alias)
  }
  return new Map([...all].map(([id, names]) => [id, [...names]]))
}

const defaultArchitecture = 'amd64'

/** Returns the size of the image of the default architecture, else that of the first one, in bytes. */
function sizeOf(images: readonly PlatformImage[]): number {
  return Number((images.find(({ architecture }) => architecture === defaultArchitecture) ?? images[0])?.size ?? 0n)
}

/** The state of an image; `pending` until it was read. */
export type ImageState = CountedState | 'pending'

const unknown: CountedState = { kind: 'unknown' }

/** Resolves with the vulnerabilities that are known in an image, or in the images of an index. Rejects with code 14 while the process still loads its data, and with StoreError. */
export async function imageState(services: Services, { repo, digest }: ImageName, turn: TaskTurn): Promise<ImageState> {
  if ((await heldManifest(services, { repo, digest }, turn.signal)) === undefined) return unknown
  try {
    const images = await platformImages(services, { repo, digest }, turn.signal)
    // An artifact is no image.
    if (images.length === 0) return unknown
    const names = images.map((image) => ({ repo, digest: image.digest }))
    const read = (await services.imageContents?.imagesAmong(names, turn)) ?? []
    if (read.some(({ problem }) => problem !== '')) return unknown
    if (read.length < names.length) return 'pending'
    const found = await findVulnerabilities(services, { images: read, index: digest, states: vulnerabilityStates.slice(0, 2) }, turn)
    return knownState(worstSeverities(found), sizeOf(images), { digest, aliases: aliasesOf(found) })
  } catch (error) {
    // The image was deleted meanwhile (5), or is too large to compare (9).
    if (error instanceof DomainError && (error.code === 5 || error.code === 9)) return unknown
    throw error
  }
}
