import type { DescribedProduct } from '../../cache/lists/contents-source.ts'
import type { Distribution } from '../package.ts'
import type { PackageList } from '../package-list.ts'
import { distributionTypes, packageOfUrl, type PackageParts } from '../package-url.ts'
import { textIn, type SbomObject } from './json.ts'

/** What a document says besides its packages. */
export interface SbomFacts {
  /** As the document names it, or else as its package URLs do. */
  readonly distribution?: Distribution
  readonly described?: DescribedProduct
}

/** A form of SBOM. */
export interface SbomForm<Name extends string = string> {
  readonly name: Name
  /** True for documents of this form, in any version. */
  recognises(document: SbomObject): boolean
  /** Adds the packages of a document to the list. Throws ContentError. */
  read(document: SbomObject, packages: PackageList): SbomFacts
}

/** Returns the facts that are known. */
export function factsOf(distribution: Distribution | undefined, described: DescribedProduct | undefined): SbomFacts {
  return { ...(distribution && { distribution }), ...(described && { described }) }
}

/** Returns a distribution, or undefined if its id is no text. */
export function distributionOf(id: unknown, version: unknown): Distribution | undefined {
  const text = textIn(id).toLowerCase()
  return text === '' ? undefined : { id: text, version: textIn(version) }
}

/** Returns the described product, or undefined if its name is no text. */
export function describedOf({ name, version, purl }: Record<'name' | 'version' | 'purl', unknown>): DescribedProduct | undefined {
  const text = textIn(name)
  return text === '' ? undefined : { name: text, version: textIn(version), purl: packageOfUrl(purl)?.purl ?? '' }
}

/** The types of syft, and the types of package URLs that are meant. */
const typesOfSyft: ReadonlyMap<unknown, string> = new Map([
  ...['alpm', 'apk', 'conan', 'deb', 'gem', 'hackage', 'hex', 'npm', 'rpm', 'swift'].map((type) => [type, type] as const),
  ['R-package', 'cran'],
  ['dart-pub', 'pub'],
  ['dotnet', 'nuget'],
  ['go-module', 'golang'],
  ['java-archive', 'maven'],
  ['lua-rocks', 'luarocks'],
  ['php-composer', 'composer'],
  ['pod', 'cocoapods'],
  ['python', 'pypi'],
  ['rust-crate', 'cargo'],
])

/** The type of syft for a program that it recognised by its bytes. Many have no package URL, such as those for Windows in pip. */
export const programType = 'binary'

/** What syft says of a package that has no package URL. */
interface SyftParts extends Record<'type' | 'group' | 'name' | 'version', unknown> {
  readonly distribution: Distribution | undefined
}

/** Returns the parts of a package whose type syft names. Undefined for types that have no package URL. */
export function partsOfSyft({ type: syftType, group, name, version, distribution }: SyftParts): PackageParts | undefined {
  const type = typesOfSyft.get(syftType)
  if (type === undefined) return undefined
  const namespace = distributionTypes.has(type) ? (distribution?.id ?? '') : textIn(group)
  return { type, namespace, name: textIn(name), version: textIn(version) }
}
