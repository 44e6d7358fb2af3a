import { apkOrder } from './apk-version.ts'
import { debianOrder } from './debian-version.ts'
import { mavenOrder } from './maven-version.ts'
import { composerOrder, gemOrder, numbersOrder } from './other-versions.ts'
import { pep440Order } from './pep440-version.ts'
import { rpmOrder } from './rpm-version.ts'
import { goOrder, nugetOrder, semanticOrder } from './semantic-version.ts'
import type { VersionOrder } from './version-order.ts'

/** The packages of an ecosystem: the type of their package URLs, the namespace of those of a distribution, and the order of their versions. */
export interface EcosystemPackages {
  readonly type: string
  readonly namespace?: string
  readonly order: VersionOrder
}

/** The ecosystems of OSV (https://ossf.github.io/osv-schema/#affectedpackage-field). */
const ecosystems: ReadonlyMap<string, EcosystemPackages> = new Map([
  ['PyPI', { type: 'pypi', order: pep440Order }],
  ['npm', { type: 'npm', order: semanticOrder }],
  ['Go', { type: 'golang', order: goOrder }],
  ['Maven', { type: 'maven', order: mavenOrder }],
  ['RubyGems', { type: 'gem', order: gemOrder }],
  ['NuGet', { type: 'nuget', order: nugetOrder }],
  ['crates.io', { type: 'cargo', order: semanticOrder }],
  ['Packagist', { type: 'composer', order: composerOrder }],
  ['Hex', { type: 'hex', order: semanticOrder }],
  ['Pub', { type: 'pub', order: semanticOrder }],
  ['Hackage', { type: 'hackage', order: numbersOrder }],
  ['CRAN', { type: 'cran', order: numbersOrder }],
  ['Alpaquita', { type: 'apk', namespace: 'alpaquita', order: apkOrder }],
  ['Alpine', { type: 'apk', namespace: 'alpine', order: apkOrder }],
  ['Chainguard', { type: 'apk', namespace: 'chainguard', order: apkOrder }],
  ['MinimOS', { type: 'apk', namespace: 'minimos', order: apkOrder }],
  ['Wolfi', { type: 'apk', namespace: 'wolfi', order: apkOrder }],
  ['Debian', { type: 'deb', namespace: 'debian', order: debianOrder }],
  ['Ubuntu', { type: 'deb', namespace: 'ubuntu', order: debianOrder }],
  ['AlmaLinux', { type: 'rpm', namespace: 'almalinux', order: rpmOrder }],
  ['Mageia', { type: 'rpm', namespace: 'mageia', order: rpmOrder }],
  ['Red Hat', { type: 'rpm', namespace: 'redhat', order: rpmOrder }],
  ['Rocky Linux', { type: 'rpm', namespace: 'rocky-linux', order: rpmOrder }],
  ['SUSE', { type: 'rpm', namespace: 'suse', order: rpmOrder }],
  ['openEuler', { type: 'rpm', namespace: 'openeuler', order: rpmOrder }],
  ['openSUSE', { type: 'rpm', namespace: 'opensuse', order: rpmOrder }],
])

/** Types of package URLs whose namespace is the distribution, and no part of the name. */
export const distributionTypes: ReadonlySet<string> = new Set(['alpm', 'apk', 'deb', 'rpm'])

/** Returns the ecosystem without its release, which follows a colon: `Alpine` of `Alpine:v3.20`. */
export function baseOf(ecosystem: string): string {
  return ecosystem.split(':', 1)[0] ?? ecosystem
}

/** Returns the packages of an ecosystem of OSV, with or without a release. Undefined for other names. */
export function packagesOfEcosystem(ecosystem: string): EcosystemPackages | undefined {
  return ecosystems.get(baseOf(ecosystem))
}

/** Returns the ecosystem of package URLs, without a release. Undefined if OSV has none. */
export function ecosystemOfPackages({ type, namespace }: { readonly type: string; readonly namespace: string | undefined }): string | undefined {
  const distribution = distributionTypes.has(type) ? (namespace ?? '') : undefined
  return [...ecosystems].find(([, packages]) => packages.type === type && packages.namespace === distribution)?.[0]
}

/** True if a package may belong to the ecosystem of a distribution. Its identifier then names no distribution of OSV, or the same one without a release. */
export function isPackageOf(ecosystem: string, { type, namespace }: { readonly type: string; readonly namespace?: string }): boolean {
  if (!distributionTypes.has(type) || (packagesOfEcosystem(ecosystem)?.type ?? type) !== type) return false
  const known = ecosystemOfPackages({ type, namespace })
  return known === undefined || known === baseOf(ecosystem)
}

/**
 * Returns the ecosystem, with or without a release, if it can be that of a distribution's packages. Distributions that OSV does not know may have any name.
 * Throws an error for people.
 */
export function distributionEcosystem(text: string): string {
  const base = baseOf(text)
  const known = packagesOfEcosystem(text)
  const meant = [...ecosystems.keys()].find((name) => name.toLowerCase() === base.toLowerCase())
  if (known === undefined && meant !== undefined) throw new Error(`there is no ecosystem ${base}: write ${meant}`)
  if (known !== undefined && !distributionTypes.has(known.type)) throw new Error(`${base} is no distribution: its documents name their ecosystem`)
  if (text.length > 100 || !/^[A-Za-z][\w .+-]*(?::[\w .+:-]+)?$/.test(text)) throw new Error(`"${text}" is no ecosystem such as Wolfi or Alpine:v3.20`)
  return text
}

/** Returns the order of the versions of packages, by the type of their package URLs. Undefined for types that OSV does not have. */
export function orderOfType(type: string): VersionOrder | undefined {
  return [...ecosystems.values()].find((packages) => packages.type === type)?.order
}

/** How the names of an ecosystem are compared, by the type of its package URLs. Others compare exactly. */
const nameForms: Readonly<Record<string, (name: string) => string>> = {
  pypi: (name) => name.toLowerCase().replaceAll(/[-_.]+/g, '-'),
  golang: (name) => name.toLowerCase(),
  nuget: (name) => name.toLowerCase(),
  composer: (name) => name.toLowerCase(),
  hex: (name) => name.toLowerCase(),
}

/** Returns a name as its ecosystem compares it. `type` is that of package URLs. */
export function nameForm(type: string, name: string): string {
  return nameForms[type]?.(name) ?? name
}
