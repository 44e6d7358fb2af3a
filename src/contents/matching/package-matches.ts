import { hash } from 'node:crypto'
import { RecentMap } from '../../base/recent-map.ts'
import type { TaskTurn } from '../../base/task-thread.ts'
import type { Uid } from '../../base/uid.ts'
import type { AdvisorySource } from '../../cache/lists/advisory-source.ts'
import type { ContentsSource, ListedPackage, MatchAnswer, MatchQuestion, PackageVulnerability } from '../../cache/lists/contents-source.ts'
import type { OwnAdvisories } from '../../catalogue/index.ts'
import { bytesOf, bytesOfMatches, type PackageMatch } from './match-bytes.ts'

/** The most bytes of advisories that are compared together. */
const maxAdvisoryBytes = 64 * 1024 * 1024
/** The most bytes to remember for each catalogue, and about what a package without vulnerabilities takes. */
const rememberedBytes = 128 * 1024 * 1024
const packageBytes = 250

/** What packages are compared with. */
export interface AdvisoriesInUse {
  readonly contents: Pick<ContentsSource, 'namesOf' | 'match'>
  readonly source: Pick<AdvisorySource, 'groups' | 'ofPackages'>
  readonly groups: readonly Uid[]
  /** The hand-made advisories of the groups. */
  readonly own: Pick<OwnAdvisories, 'edition' | 'ofPackages'>
}

/** Packages to compare: MatchQuestion without advisories. */
type Question = Omit<MatchQuestion, 'advisories'>

/** What is known of a package: in all images, or in one. */
interface MatchedPackage {
  readonly matches: readonly PackageMatch[]
  /** The digests of images that statements about the package name (docs/adr/0045). */
  readonly images: readonly string[]
}

const nothing: MatchedPackage = { matches: [], images: [] }

/** What was found by catalogue. Another catalogue is another source. */
const remembered = new WeakMap<object, RecentMap<string, MatchedPackage>>()

/** Compares packages with advisories, each package once for all images that have it (docs/adr/0043), and again for each image that statements about it name. */
export class PackageMatches {
  readonly #use: AdvisoriesInUse
  readonly #known: RecentMap<string, MatchedPackage>
  readonly #groups: readonly Uid[]

  constructor(use: AdvisoriesInUse) {
    this.#use = use
    const { source, groups } = use
    this.#known = remembered.get(source) ?? new RecentMap(rememberedBytes, ({ matches, images }) => packageBytes + bytesOfMatches(matches) + bytesOf(images))
    remembered.set(source, this.#known)
    // Repos of several groups share what is found in the groups that have advisories.
    const withAdvisories = new Set(source.groups())
    this.#groups = groups.filter((group) => withAdvisories.has(group))
  }

  /** Resolves with the vulnerabilities in the packages, in their order; undefined if one of them has more than 64 MiB of advisories. */
  async in({ image, ...question }: Question, turn: TaskTurn): Promise<PackageVulnerability[] | undefined> {
    const { packages } = question
    const found = await this.#matches(question, turn)
    if (found === undefined) return undefined
    const digests = new Set(image?.digests)
    // Few packages: only these are compared for the image alone.
    const stated = packages.filter((_, at) => found[at]?.images.some((digest) => digests.has(digest)) === true)
    const ofImage = stated.length === 0 ? [] : await this.#matches({ ...question, packages: stated, image }, turn)
    if (ofImage === undefined) return undefined
    const replaced = new Map(stated.map((one, at) => [one, ofImage[at]]))
    return packages.flatMap((one, at) => (replaced.get(one) ?? found[at])?.matches.map((match) => ({ ...match, found: one })) ?? [])
  }

  /** Resolves with what is known of each package, in their order. */
  async #matches(question: Question, turn: TaskTurn): Promise<MatchedPackage[] | undefined> {
    const { packages, distribution, states, image } = question
    // An image may be in many indexes: their digests are hashed once, not for each package.
    const about = hash('sha256', JSON.stringify([this.#groups, this.#use.own.edition, distribution, states, image]), 'base64')
    const keys = packages.map((one) => keyOf(about, one))
    const matches = new Map<string, MatchedPackage>()
    const unknown = new Map<string, ListedPackage>()
    for (const [at, one] of packages.entries()) {
      const key = keys[at] ?? ''
      const known = this.#known.get(key)
      if (known === undefined) unknown.set(key, one)
      else matches.set(key, known)
    }
    const compared = await this.#compare({ ...question, packages: [...unknown.values()] }, turn)
    if (compared === undefined) return undefined
    const byPackage = Map.groupBy(compared.vulnerabilities, ({ found }) => keyOf(about, found))
    for (const [at, key] of [...unknown.keys()].entries()) {
      const one = { matches: (byPackage.get(key) ?? []).map(({ found: _, ...match }) => match), images: compared.images[at] ?? [] }
      this.#known.set(key, one)
      matches.set(key, one)
    }
    return keys.map((key) => matches.get(key) ?? nothing)
  }

  /** Compares packages together, or in halves if they have too many advisories. */
  async #compare(question: Question, turn: TaskTurn): Promise<MatchAnswer | undefined> {
    const { packages, distribution } = question
    if (packages.length === 0) return { vulnerabilities: [], images: [] }
    const { contents, source, own } = this.#use
    const names = await contents.namesOf({ packages, distribution }, turn)
    const made = await own.ofPackages(names, maxAdvisoryBytes)
    const imported = made && (await source.ofPackages({ groups: this.#groups, names, maxBytes: maxAdvisoryBytes - made.bytes }, turn))
    if (made !== undefined && imported !== undefined) return contents.match({ ...question, advisories: [...imported, ...made.advisories] }, turn)
    if (packages.length === 1) return undefined
    const middle = packages.length >> 1
    const first = await this.#compare({ ...question, packages: packages.slice(0, middle) }, turn)
    const second = first && (await this.#compare({ ...question, packages: packages.slice(middle) }, turn))
    return first && second && { vulnerabilities: [...first.vulnerabilities, ...second.vulnerabilities], images: [...first.images, ...second.images] }
  }
}

/** Returns a key of all that decides which vulnerabilities a package has. Packages of several organisations share the map: the key is a strong hash. */
function keyOf(about: string, { purl, type, name, version, origin }: ListedPackage): string {
  return hash('sha256', JSON.stringify([about, purl, type, name, version, origin]), 'base64')
}
