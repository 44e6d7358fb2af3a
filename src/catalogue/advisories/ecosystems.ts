/** The package URLs of an ecosystem: their type, and the namespace of those of a distribution. */
export interface EcosystemPackages {
  readonly type: string
  readonly namespace?: string
}

/** The ecosystems of OSV (https://ossf.github.io/osv-schema/#affectedpackage-field). */
const ecosystems: ReadonlyMap<string, EcosystemPackages> = new Map([
  ['PyPI', { type: 'pypi' }],
  ['npm', { type: 'npm' }],
  ['Go', { type: 'golang' }],
  ['Maven', { type: 'maven' }],
  ['RubyGems', { type: 'gem' }],
  ['NuGet', { type: 'nuget' }],
  ['crates.io', { type: 'cargo' }],
  ['Packagist', { type: 'composer' }],
  ['Hex', { type: 'hex' }],
  ['Pub', { type: 'pub' }],
  ['Hackage', { type: 'hackage' }],
  ['CRAN', { type: 'cran' }],
  ['Alpaquita', { type: 'apk', namespace: 'alpaquita' }],
  ['Alpine', { type: 'apk', namespace: 'alpine' }],
  ['Chainguard', { type: 'apk', namespace: 'chainguard' }],
  ['MinimOS', { type: 'apk', namespace: 'minimos' }],
  ['Wolfi', { type: 'apk', namespace: 'wolfi' }],
  ['Debian', { type: 'deb', namespace: 'debian' }],
  ['Ubuntu', { type: 'deb', namespace: 'ubuntu' }],
  ['AlmaLinux', { type: 'rpm', namespace: 'almalinux' }],
  ['Mageia', { type: 'rpm', namespace: 'mageia' }],
  ['Red Hat', { type: 'rpm', namespace: 'redhat' }],
  ['Rocky Linux', { type: 'rpm', namespace: 'rocky-linux' }],
  ['SUSE', { type: 'rpm', namespace: 'suse' }],
  ['openEuler', { type: 'rpm', namespace: 'openeuler' }],
  ['openSUSE', { type: 'rpm', namespace: 'opensuse' }],
])

/** Types of package URLs whose namespace is the distribution, and no part of the name. */
export const distributionTypes: ReadonlySet<string> = new Set(['alpm', 'apk', 'deb', 'rpm'])

/** Returns the ecosystem without its release, which follows a colon: `Alpine` of `Alpine:v3.20`. */
function baseOf(ecosystem: string): string {
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
