/** How OSV names a distribution and its releases. */
interface DistributionRow {
  readonly ecosystem: string
  /** True if a release of the ecosystem is the one with this `VERSION_ID`. Without it, equal texts are. */
  readonly isRelease?: (release: string, version: string) => boolean
}

const majorOf = (version: string): string => version.split('.', 1)[0] ?? ''
const minorOf = (version: string): string => version.split('.', 2).join('.')
const isMajor = (release: string, version: string): boolean => release === majorOf(version)

/** Releases of Ubuntu are `22.04:LTS`, and `Pro:22.04:LTS` for fixes that need a subscription: only packages with `esm` in their version are of these. */
function isUbuntuRelease(release: string, version: string): boolean {
  return release.split(':', 1)[0] === minorOf(version)
}

/** Products of SUSE are `Linux Enterprise Server 15 SP5`. */
function isSuseRelease(release: string, version: string): boolean {
  const [major = '', minor = '0'] = version.split('.')
  return release.startsWith('Linux Enterprise ') && release.endsWith(` ${major}${minor === '0' ? '' : ` SP${minor}`}`)
}

const redHat: DistributionRow = { ecosystem: 'Red Hat', isRelease: (release, version) => /^enterprise_linux:(\d+)/.exec(release)?.[1] === majorOf(version) }
const rocky: DistributionRow = { ecosystem: 'Rocky Linux', isRelease: isMajor }
const suse: DistributionRow = { ecosystem: 'SUSE', isRelease: isSuseRelease }
const leap: DistributionRow = { ecosystem: 'openSUSE', isRelease: (release, version) => release === `Leap ${version}` }

/** The distributions by `ID` of os-release, and by the namespace of their package URLs. */
const distributions: ReadonlyMap<string, DistributionRow> = new Map([
  ['alpaquita', { ecosystem: 'Alpaquita' }],
  ['alpine', { ecosystem: 'Alpine', isRelease: (release: string, version: string) => release === `v${minorOf(version)}` }],
  ['chainguard', { ecosystem: 'Chainguard' }],
  ['minimos', { ecosystem: 'MinimOS' }],
  ['wolfi', { ecosystem: 'Wolfi' }],
  ['debian', { ecosystem: 'Debian', isRelease: isMajor }],
  ['ubuntu', { ecosystem: 'Ubuntu', isRelease: isUbuntuRelease }],
  ['almalinux', { ecosystem: 'AlmaLinux', isRelease: isMajor }],
  ['mageia', { ecosystem: 'Mageia' }],
  ['redhat', redHat],
  ['rhel', redHat],
  ['rocky', rocky],
  ['rocky-linux', rocky],
  ['sles', suse],
  ['suse', suse],
  ['opensuse', leap],
  ['opensuse-leap', leap],
  ['opensuse-tumbleweed', { ecosystem: 'openSUSE', isRelease: (release: string) => release === 'Tumbleweed' }],
  ['openeuler', { ecosystem: 'openEuler', isRelease: (release: string, version: string) => release.replace(/-LTS$/, '') === version }],
])

/** Codenames that package URLs may have instead of a version. */
const codenames: ReadonlyMap<string, string> = new Map([
  ['bullseye', '11'],
  ['bookworm', '12'],
  ['trixie', '13'],
  ['focal', '20.04'],
  ['jammy', '22.04'],
  ['noble', '24.04'],
])

/** Ecosystems of OSV whose advisories name source packages only. */
export const sourceEcosystems: ReadonlySet<string> = new Set(['Alpaquita', 'Alpine', 'Debian', 'Ubuntu', 'openEuler'])

/** Returns the ecosystem of a distribution, by `ID`. That of a distribution that OSV does not know is its id. */
export function ecosystemOfDistribution(id: string): string {
  return distributions.get(id.toLowerCase())?.ecosystem ?? id
}

/** True if a release of a distribution's ecosystem is the one with this `VERSION_ID`. */
export function isReleaseOf({ id, version }: { readonly id: string; readonly version: string }, release: string): boolean {
  const { isRelease } = distributions.get(id.toLowerCase()) ?? {}
  return isRelease === undefined ? release === version : isRelease(release, version)
}

/** Returns what the qualifier `distro` of a package URL says, for example `debian-12`, `opensuse-leap-15.6` or `bookworm`. */
export function parseDistro(text: string): { readonly id?: string; readonly version: string } {
  const codename = codenames.get(text)
  if (codename !== undefined) return { version: codename }
  const [, id, version] = /^([^\d]+)-(\d[\w.]*)$/.exec(text) ?? []
  return id === undefined || version === undefined ? { version: '' } : { id, version }
}
