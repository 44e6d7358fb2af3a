/** How OSV names a distribution and its releases. */
interface DistributionRow {
  readonly ecosystem: string
  /** Returns the version in the name of a release. Undefined if the name is that of another product. Without it, the name is the version. */
  readonly versionOf?: (release: string) => string | undefined
  /** Returns the part of `VERSION_ID` that tells the releases apart; empty if the version is. Without it, all of it does. */
  readonly partOf?: (version: string) => string
}

const same = (text: string): string => text
const majorOf = (version: string): string => version.split('.', 1)[0] ?? ''
const minorOf = (version: string): string => version.split('.', 2).join('.')

/** Products of SUSE are `Linux Enterprise Server 15 SP5`. */
function suseVersionOf(release: string): string | undefined {
  const [, major, pack = '0'] = /^Linux Enterprise (?:.* )?(\d+)(?: SP(\d+))?$/.exec(release) ?? []
  return major === undefined ? undefined : `${major}.${pack}`
}

function suseVersion(version: string): string {
  const [major = '', pack = '0'] = version.split('.')
  return major === '' ? '' : `${major}.${pack}`
}

const redHat: DistributionRow = { ecosystem: 'Red Hat', versionOf: (release) => /^enterprise_linux:(\d+)/.exec(release)?.[1], partOf: majorOf }
const rocky: DistributionRow = { ecosystem: 'Rocky Linux', partOf: majorOf }
const suse: DistributionRow = { ecosystem: 'SUSE', versionOf: suseVersionOf, partOf: suseVersion }
const leap: DistributionRow = { ecosystem: 'openSUSE', versionOf: (release) => /^Leap (.+)$/.exec(release)?.[1] }

/** The distributions by `ID` of os-release, and by the namespace of their package URLs. */
const distributions: ReadonlyMap<string, DistributionRow> = new Map([
  ['alpaquita', { ecosystem: 'Alpaquita' }],
  ['alpine', { ecosystem: 'Alpine', versionOf: (release: string) => /^v(.+)$/.exec(release)?.[1], partOf: minorOf }],
  ['chainguard', { ecosystem: 'Chainguard' }],
  ['minimos', { ecosystem: 'MinimOS' }],
  ['wolfi', { ecosystem: 'Wolfi' }],
  ['debian', { ecosystem: 'Debian', partOf: majorOf }],
  // Releases are `22.04:LTS`.
  ['ubuntu', { ecosystem: 'Ubuntu', versionOf: (release: string) => /^([\d.]+)(?:$|:)/.exec(release)?.[1], partOf: minorOf }],
  ['almalinux', { ecosystem: 'AlmaLinux', partOf: majorOf }],
  ['mageia', { ecosystem: 'Mageia' }],
  ['redhat', redHat],
  ['rhel', redHat],
  ['rocky', rocky],
  ['rocky-linux', rocky],
  ['sles', suse],
  ['suse', suse],
  ['opensuse', leap],
  ['opensuse-leap', leap],
  [
    'opensuse-tumbleweed',
    { ecosystem: 'openSUSE', versionOf: (release: string) => (release === 'Tumbleweed' ? release : undefined), partOf: () => 'Tumbleweed' },
  ],
  ['openeuler', { ecosystem: 'openEuler', versionOf: (release: string) => release.replace(/-LTS$/, '') }],
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

/** Returns true if a release of a distribution's ecosystem is the one with this `VERSION_ID`. Undefined if it may be: the version is empty. */
export function isReleaseOf({ id, version }: { readonly id: string; readonly version: string }, release: string): boolean | undefined {
  const { versionOf = same, partOf = same } = distributions.get(id.toLowerCase()) ?? {}
  const [named, part] = [versionOf(release), partOf(version)]
  if (named === undefined) return false
  return part === '' ? undefined : named === part
}

/** True if two ids are known, and those of different distributions. */
export function areDifferent(id: string, other: string): boolean {
  const [one, two] = [distributions.get(id.toLowerCase()), distributions.get(other.toLowerCase())]
  return one !== undefined && two !== undefined && one.ecosystem !== two.ecosystem
}

/** Returns what the qualifier `distro` of a package URL says, for example `debian-12`, `opensuse-leap-15.6` or `bookworm`. */
export function parseDistro(text: string): { readonly id?: string; readonly version: string } {
  const codename = codenames.get(text)
  if (codename !== undefined) return { version: codename }
  const [, id, version] = /^([^\d]+)-(\d[\w.]*)$/.exec(text) ?? []
  return id === undefined || version === undefined ? { version: '' } : { id, version }
}
