import { ContentError, contentLimits, type Distribution, type ImagePackage } from './package.ts'
import { isPlainText, originName, packageOfParts, packageOfUrl, type PackageIdentity, type PackageParts } from './package-url.ts'

/** A package as a reader finds it. Values are of any type: what is no usable text is left out. */
export interface FoundPackage {
  /** Package URLs, best first. The first valid one counts. */
  readonly purls: readonly unknown[]
  /** The parts to make a package URL of, if none of `purls` is valid. */
  readonly parts?: PackageParts | undefined
  /** True for what tools name without a package URL, for example a lock file, or a program that syft recognised by its bytes. */
  readonly isExempt?: boolean
  /** The source package, with or without its version. */
  readonly origin?: unknown
  readonly licenses?: readonly unknown[]
  /** Paths in the image, with or without the first slash. */
  readonly locations?: readonly unknown[]
}

/** Limits of one package. What is beyond them is left out. */
const limits = { purls: 4, locations: 10, locationLength: 4_096, licenses: 20, licenseLength: 512 } as const
/** The largest list, in characters. Many packages can refer to one long text of a document. */
const maxCharacters = contentLimits.documentBytes
/** Types of package URLs that are images and their layers, and no packages in them. */
const imageTypes: ReadonlySet<string> = new Set(['docker', 'oci'])
/** Words for a licence that is not known. */
const noLicenses: ReadonlySet<string> = new Set(['', 'NOASSERTION', 'NONE'])

interface PackageDraft extends PackageIdentity {
  readonly licenses: Set<string>
  readonly locations: Set<string>
}

function pathOf(location: string): string {
  return `/${location.replace(/^(?:\.?\/)+/, '')}`
}

/** The packages of one image, each package URL once. It keeps the limits of `contentLimits`, whatever is added. */
export class PackageList {
  /** By each spelling of a package URL in the source: a repeated one is not parsed again. Undefined for images. */
  readonly #bySpelling = new Map<string, PackageDraft | undefined>()
  readonly #byPurl = new Map<string, PackageDraft>()
  #unnamed = 0
  #exempt = 0
  #characters = 0

  /** The number of packages that have no valid package URL, without those that are exempt. */
  get unnamed(): number {
    return this.#unnamed
  }

  /** The number of those without a valid package URL that are exempt. */
  get exempt(): number {
    return this.#exempt
  }

  /** Adds a package, or joins it with the same one from elsewhere. Throws ContentError TOO_LARGE. */
  add(found: FoundPackage): void {
    const draft = this.#draftOf(found)
    if (draft === undefined) return
    for (const license of found.licenses ?? []) {
      if (draft.licenses.size >= limits.licenses) break
      if (isPlainText(license, limits.licenseLength) && !noLicenses.has(license)) this.#keep(draft.licenses, license)
    }
    for (const location of found.locations ?? []) {
      if (draft.locations.size >= limits.locations) break
      if (isPlainText(location, limits.locationLength) && location !== '') this.#keep(draft.locations, pathOf(location))
    }
  }

  /** Returns the packages, sorted by package URL. */
  packages(): ImagePackage[] {
    const sorted = [...this.#byPurl.values()].sort((one, other) => (one.purl < other.purl ? -1 : 1))
    return sorted.map(({ distribution: _, ...draft }) => ({ ...draft, licenses: [...draft.licenses], locations: [...draft.locations] }))
  }

  /** Returns the distribution that the package URLs name. Undefined if they name none, or several. */
  distribution(): Distribution | undefined {
    const named = [...this.#byPurl.values()].flatMap(({ distribution }) => distribution ?? [])
    const [first] = named
    return named.every(({ id, version }) => id === first?.id && version === first.version) ? first : undefined
  }

  #draftOf({ purls, parts, origin, isExempt = false }: FoundPackage): PackageDraft | undefined {
    for (const purl of purls.slice(0, limits.purls)) {
      if (typeof purl !== 'string') continue
      if (this.#bySpelling.has(purl)) return this.#bySpelling.get(purl)
      const identity = packageOfUrl(purl)
      if (identity !== undefined) return this.#named(purl, identity, origin)
    }
    const made = parts && packageOfParts(parts)
    if (made !== undefined) return this.#bySpelling.get(made.purl) ?? this.#named(made.purl, made, origin)
    if (isExempt) this.#exempt += 1
    else this.#unnamed += 1
    this.#assertFew()
    return undefined
  }

  #named(spelling: string, identity: PackageIdentity, origin: unknown): PackageDraft | undefined {
    const draft = imageTypes.has(identity.type) ? undefined : (this.#byPurl.get(identity.purl) ?? this.#draft(identity, origin))
    this.#bySpelling.set(spelling, draft)
    this.#assertFew()
    return draft
  }

  #draft(identity: PackageIdentity, origin: unknown): PackageDraft {
    const source = originName(origin) || identity.origin
    const draft = { ...identity, origin: source === identity.name ? '' : source, licenses: new Set<string>(), locations: new Set<string>() }
    this.#byPurl.set(draft.purl, draft)
    return draft
  }

  #keep(texts: Set<string>, text: string): void {
    if (texts.has(text)) return
    texts.add(text)
    this.#characters += text.length
    if (this.#characters > maxCharacters) throw new ContentError('TOO_LARGE', 'the locations and licences of the packages are too long together')
  }

  #assertFew(): void {
    const { packages } = contentLimits
    if (this.#bySpelling.size + this.#unnamed + this.#exempt > packages) throw new ContentError('TOO_LARGE', `there are more than ${packages} packages`)
  }
}
