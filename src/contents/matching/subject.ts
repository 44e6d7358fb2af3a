import { PackageURL } from 'packageurl-js'
import { distributionTypes, ecosystemOfPackages, nameForm, packagesOfEcosystem } from '../../base/versions/ecosystems.ts'
import type { ReadVersion, VersionOrder } from '../../base/versions/version-order.ts'
import type { Distribution, ImagePackage } from '../package.ts'
import { areDifferent, ecosystemOfDistribution, isReleaseOf, parseDistro } from './distributions.ts'

/** The longest version that is read, in characters. Advisories have no longer ones. */
const maxVersionLength = 512

/** What a version says in each order in which it is compared. */
export class SubjectVersion {
  readonly text: string
  readonly #read = new Map<VersionOrder, ReadVersion | undefined>()

  constructor(text: string) {
    this.text = text
  }

  /** Returns undefined for a text that is no version of the order. */
  in(order: VersionOrder): ReadVersion | undefined {
    if (!this.#read.has(order)) this.#read.set(order, this.text === '' || this.text.length > maxVersionLength ? undefined : order.read(this.text))
    return this.#read.get(order)
  }
}

/** A package of an image, as advisories are compared with it. */
export interface MatchSubject {
  /** The type of its package URL. */
  readonly type: string
  /** Its ecosystem without a release. Empty if there is none. */
  readonly ecosystem: string
  /** The package in the form of its ecosystem, to compare names. */
  readonly name: string
  /** The source package. It is `name` if it is the same or unknown. */
  readonly source: string
  readonly version: SubjectVersion
  /** The version of the source package. */
  readonly sourceVersion: SubjectVersion
  /** By these, advisories of the package are found: `keyOf` of each name. */
  readonly keys: readonly string[]
  /** Returns true if the package is of this release of its ecosystem. Undefined if it may be: its own release is not known. */
  isOfRelease(release: string): boolean | undefined
}

/** The key by which packages and advisories find each other. */
export function keyOf({ type, ecosystem }: Pick<MatchSubject, 'type' | 'ecosystem'>, name: string): string {
  return `${ecosystem === '' ? type : ecosystem}\0${nameForm(type, name)}`
}

/** Returns undefined for a text that is no package URL. */
export function parsePurl(text: string): PackageURL | undefined {
  if (!text.startsWith('pkg:')) return undefined
  try {
    return PackageURL.fromString(text)
  } catch {
    // The package throws errors of several classes.
    return undefined
  }
}

/** Returns the distribution of a package: what its package URL says, else that of the image. */
function distributionOf(url: PackageURL | undefined, image: Distribution | undefined): Distribution {
  const distro = parseDistro(url?.qualifiers?.['distro'] ?? '')
  const id = url?.namespace ?? distro.id ?? image?.id ?? ''
  if (distro.version !== '') return { id, version: distro.version }
  // The version of another distribution says nothing.
  return { id, version: image === undefined || areDifferent(id, image.id) ? '' : image.version }
}

/** Returns the version of the source package. Rebuilds of a package of Debian have a number of their own. */
function sourceVersionOf(version: string, { type, url }: { readonly type: string; readonly url: PackageURL | undefined }): string {
  const [, named] = /^[^@]+@(.+)$/.exec(url?.qualifiers?.['upstream'] ?? '') ?? []
  if (named !== undefined) return named
  return type === 'deb' ? version.replace(/\+b\d+$/, '') : version
}

/** Returns the package as advisories are compared with it. `image` is the distribution of the image, if it is known. */
export function subjectOf(found: Pick<ImagePackage, 'purl' | 'type' | 'name' | 'version' | 'origin'>, image?: Distribution): MatchSubject {
  const { type, name, version: written, origin } = found
  const url = parsePurl(found.purl)
  const isOfDistribution = distributionTypes.has(type)
  const distribution = distributionOf(url, image)
  const ecosystem = isOfDistribution ? ecosystemOfDistribution(distribution.id) : (ecosystemOfPackages({ type, namespace: undefined }) ?? '')
  const epoch = url?.qualifiers?.['epoch']
  const version = new SubjectVersion(type === 'rpm' && epoch !== undefined && !written.includes(':') ? `${epoch}:${written}` : written)
  const source = isOfDistribution && origin !== '' ? origin : name
  const sourceText = isOfDistribution ? sourceVersionOf(version.text, { type, url }) : version.text
  const names = [...new Set([name, source])]
  // Advisories that name no distribution are about those that OSV does not know.
  const isKnown = !isOfDistribution || packagesOfEcosystem(ecosystem) !== undefined
  const keys = names.flatMap((one) => [keyOf({ type, ecosystem }, one), ...(isKnown ? [] : [keyOf({ type, ecosystem: '' }, one)])])
  const isPro = version.text.includes('esm')
  return {
    type,
    ecosystem,
    name: nameForm(type, name),
    source: nameForm(type, source),
    version,
    sourceVersion: sourceText === version.text ? version : new SubjectVersion(sourceText),
    keys: [...new Set(keys)],
    isOfRelease: (release) => {
      if (release === '' || !isOfDistribution) return true
      const [, subscription] = /^Pro:(.+)$/.exec(release) ?? []
      return subscription === undefined ? isReleaseOf(distribution, release) : isPro && isReleaseOf(distribution, subscription)
    },
  }
}
