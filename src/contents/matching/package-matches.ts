import { hash } from 'node:crypto'
import { RecentMap } from '../../base/recent-map.ts'
import type { TaskTurn } from '../../base/task-thread.ts'
import type { Uid } from '../../base/uid.ts'
import type { AdvisorySource } from '../../cache/lists/advisory-source.ts'
import type { ContentsSource, ListedPackage, MatchQuestion, PackageVulnerability } from '../../cache/lists/contents-source.ts'
import type { OwnAdvisories } from '../../catalogue/index.ts'
import { bytesOfMatches, type PackageMatch } from './match-bytes.ts'

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

/** What was found by catalogue. Another catalogue is another source. */
const remembered = new WeakMap<object, RecentMap<string, readonly PackageMatch[]>>()

/** Compares packages with advisories, each package once for all images that have it (docs/adr/0043). */
export class PackageMatches {
  readonly #use: AdvisoriesInUse
  readonly #known: RecentMap<string, readonly PackageMatch[]>
  readonly #groups: readonly Uid[]

  constructor(use: AdvisoriesInUse) {
    this.#use = use
    const { source, groups } = use
    this.#known = remembered.get(source) ?? new RecentMap(rememberedBytes, (found) => packageBytes + bytesOfMatches(found))
    remembered.set(source, this.#known)
    // Repos of several groups share what is found in the groups that have advisories.
    const withAdvisories = new Set(source.groups())
    this.#groups = groups.filter((group) => withAdvisories.has(group))
  }

  /** Resolves with the vulnerabilities in the packages, in their order; undefined if one of them has more than 64 MiB of advisories. */
  async in(question: Question, turn: TaskTurn): Promise<PackageVulnerability[] | undefined> {
    const { packages } = question
    const about = JSON.stringify([this.#groups, this.#use.own.edition, question.distribution, question.states])
    const keys = packages.map((found) => keyOf(about, found))
    const matches = new Map<string, readonly PackageMatch[]>()
    const unknown = new Map<string, ListedPackage>()
    for (const [at, found] of packages.entries()) {
      const key = keys[at] ?? ''
      const known = this.#known.get(key)
      if (known === undefined) unknown.set(key, found)
      else matches.set(key, known)
    }
    const compared = await this.#compare({ ...question, packages: [...unknown.values()] }, turn)
    if (compared === undefined) return undefined
    const byPackage = Map.groupBy(compared, ({ found }) => keyOf(about, found))
    for (const key of unknown.keys()) {
      const found = (byPackage.get(key) ?? []).map(({ found: _, ...match }) => match)
      this.#known.set(key, found)
      matches.set(key, found)
    }
    return packages.flatMap((found, at) => (matches.get(keys[at] ?? '') ?? []).map((match) => ({ ...match, found })))
  }

  /** Compares packages together, or in halves if they have too many advisories. */
  async #compare(question: Question, turn: TaskTurn): Promise<readonly PackageVulnerability[] | undefined> {
    const { packages, distribution } = question
    if (packages.length === 0) return []
    const { contents, source, own } = this.#use
    const names = await contents.namesOf({ packages, distribution }, turn)
    const made = await own.ofPackages(names, maxAdvisoryBytes)
    const imported = made && (await source.ofPackages({ groups: this.#groups, names, maxBytes: maxAdvisoryBytes - made.bytes }, turn))
    if (made !== undefined && imported !== undefined) return contents.match({ ...question, advisories: [...imported, ...made.advisories] }, turn)
    if (packages.length === 1) return undefined
    const middle = packages.length >> 1
    const first = await this.#compare({ ...question, packages: packages.slice(0, middle) }, turn)
    const second = first && (await this.#compare({ ...question, packages: packages.slice(middle) }, turn))
    return first && second && [...first, ...second]
  }
}

/** Returns a key of all that decides which vulnerabilities a package has. Packages of several organisations share the map: the key is a strong hash. */
function keyOf(about: string, { purl, type, name, version, origin }: ListedPackage): string {
  return hash('sha256', JSON.stringify([about, purl, type, name, version, origin]), 'base64')
}
