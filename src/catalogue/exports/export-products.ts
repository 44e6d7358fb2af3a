import { PackageURL } from 'packageurl-js'
import { distributionTypes, ecosystemOfPackages, packagesOfEcosystem } from '../../base/versions/ecosystems.ts'
import { isFurtherEcosystem } from './osv-names.ts'
import type { OsvFacts } from '../advisories/osv-facts.ts'
import type { StoredAdvisory } from './export-facts.ts'
import type { Advisory } from '../../gen/taproot/vulnerabilities/v2/advisories_pb.ts'

/** What an advisory says of its artifact or its component. */
interface NamedPackage {
  readonly name: string
  readonly type: string
  readonly architecture: string
  /** A package URL, or any other place. */
  readonly location: string
}

/** Returns the parts of a name that a package URL has apart. */
function partsOf(type: string, name: string): { readonly namespace: string | undefined; readonly name: string } {
  const at = distributionTypes.has(type) ? -1 : name.lastIndexOf(type === 'maven' ? ':' : '/')
  return at <= 0 || at === name.length - 1 ? { namespace: undefined, name } : { namespace: name.slice(0, at), name: name.slice(at + 1) }
}

/** Returns undefined for parts that make no package URL. */
function urlOf(parts: {
  type: string
  namespace?: string | undefined
  name: string
  version?: string | undefined
  qualifiers?: Record<string, string> | undefined
}): PackageURL | undefined {
  try {
    const { type, namespace, name, version, qualifiers } = parts
    return new PackageURL(type, namespace, name, version, qualifiers, undefined)
  } catch {
    // The package throws errors of several classes.
    return undefined
  }
}

function locatedAt(location: string): PackageURL | undefined {
  if (!location.startsWith('pkg:')) return undefined
  try {
    return PackageURL.fromString(location)
  } catch {
    return undefined
  }
}

/** Returns the package URL of a package, without a version unless its location has one. */
function packageUrl({ name, type, architecture, location }: NamedPackage): PackageURL {
  const located = locatedAt(location)
  if (located !== undefined) return located
  const known = packagesOfEcosystem(type)
  const purlType = known?.type ?? (/^[a-z][a-z0-9.+-]*$/.test(type) ? type : 'generic')
  const { namespace, name: last } = partsOf(purlType, name)
  const qualifiers = architecture === '' ? undefined : { arch: architecture }
  const url = urlOf({ type: purlType, namespace: known?.namespace ?? namespace, name: last, qualifiers })
  // The package refuses a name of blanks.
  const plain = url ?? urlOf({ type: 'generic', name }) ?? urlOf({ type: 'generic', name: encodeURIComponent(name) })
  if (plain === undefined) throw new TypeError('an advisory has a name')
  return plain
}

function withVersion(url: PackageURL, version: string | undefined): string {
  if (version === undefined) return url.toString()
  const { type, namespace, name, qualifiers } = url
  const versioned = urlOf({ type, namespace: namespace ?? undefined, name, version, qualifiers: qualifiers ?? undefined })
  return (versioned ?? url).toString()
}

/** The product that a statement is about. */
export interface ExportedProduct {
  /** The package URL of the artifact. */
  readonly artifact: string
  /** The package URL of a part of the artifact. Undefined if the statement is about the artifact itself. */
  readonly component: string | undefined
}

/** Returns the product of an advisory: of one version of the component, or of all of them. */
export function productOfAdvisory({ advisory, facts }: StoredAdvisory, version?: string): ExportedProduct {
  const { artifactName, artifactType, artifactArchitecture, componentName, componentType, componentLocation } = advisory
  const component = packageUrl({ name: componentName, type: componentType, architecture: '', location: componentLocation })
  if (artifactName === componentName && artifactType === componentType) return { artifact: withVersion(component, version), component: undefined }
  const artifact = packageUrl({ name: artifactName, type: artifactType, architecture: artifactArchitecture, location: facts.artifact ?? '' })
  return { artifact: artifact.toString(), component: withVersion(component, version) }
}

/** A package as OSV names it. */
export interface OsvPackage {
  readonly ecosystem: string
  readonly name: string
  /** Undefined if the ecosystem has no package URLs. */
  readonly purl: string | undefined
  /** The version that the advisory is about; undefined if it names none. */
  readonly version: string | undefined
}

/**
 * Returns the component of an advisory as OSV names it. `ecosystem` in the facts is that of a distribution which the import named, if its identifier does not.
 * Undefined if OSV has no ecosystem for it.
 */
export function osvPackageOf(
  { componentName, componentType, componentLocation }: Advisory,
  { ecosystem: distribution, affected }: Pick<OsvFacts, 'ecosystem' | 'affected'>,
): OsvPackage | undefined {
  const isNamed = packagesOfEcosystem(componentType) !== undefined
  // What came from OSV keeps its ecosystem, also one that the schema does not list yet.
  if (isFurtherEcosystem(componentType) || (!isNamed && affected !== undefined))
    return { ecosystem: componentType, name: componentName, purl: undefined, version: undefined }
  const url = packageUrl({ name: componentName, type: componentType, architecture: '', location: componentLocation })
  const { type, name, version } = url
  const own = url.namespace ?? undefined
  const ecosystem = isNamed ? componentType : (distribution ?? ecosystemOfPackages({ type, namespace: own }))
  if (ecosystem === undefined) return undefined
  const namespace = distribution === undefined ? own : (packagesOfEcosystem(distribution)?.namespace ?? own)
  const purl = urlOf({ type, namespace, name })?.toString()
  return purl === undefined ? undefined : { ecosystem, name: componentName, purl, version: version ?? undefined }
}
