import { PackageURL } from 'packageurl-js'
import type { Distribution, ImagePackage } from '../package.ts'

/** Types whose namespace in the package URL is the distribution of the image. */
const distributionTypes = ['apk', 'deb', 'rpm'] as const

/** A package as a reader finds it, before the distribution of the image is known. */
export interface LayerPackage {
  readonly type: (typeof distributionTypes)[number] | 'golang' | 'maven' | 'npm' | 'pypi'
  /** The name as its ecosystem writes it, with its namespace. */
  readonly name: string
  readonly version: string
  /** Parts of the package URL. Name and version are those above if they are not here. */
  readonly url?: {
    readonly namespace?: string
    readonly name?: string
    readonly version?: string
    readonly qualifiers?: Readonly<Record<string, string>>
  }
  readonly origin?: string
  readonly licenses?: readonly string[]
}

/** Namespaces that differ from the ID in os-release. */
const namespaces: Readonly<Record<string, string>> = { rhel: 'redhat' }

function isOfDistribution(type: string): boolean {
  return distributionTypes.some((known) => known === type)
}

function distributionName({ id, version }: Distribution): string {
  return version === '' ? id : `${id}-${version}`
}

/** Returns the package with its canonical URL. Throws an Error if its ecosystem does not allow the name or version. */
export function imagePackage(found: LayerPackage, distribution: Distribution | undefined, locations: readonly string[]): ImagePackage {
  const { type, name, version, url = {}, origin = '', licenses = [] } = found
  const known = isOfDistribution(type) ? distribution : undefined
  const namespace = known === undefined ? url.namespace : (namespaces[known.id] ?? known.id)
  const qualifiers = { ...url.qualifiers, ...(known === undefined ? {} : { distro: distributionName(known) }) }
  const purl = new PackageURL(type, namespace, url.name ?? name, url.version ?? version, qualifiers).toString()
  return { purl, type, name, version, origin, licenses, locations }
}
