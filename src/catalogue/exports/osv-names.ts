// Names that the schema of OSV lists (https://ossf.github.io/osv-schema/, version 1.9.0).

/** The databases: what their ids begin with, without the `-` that follows. */
const databases: ReadonlySet<string> = new Set([
  ...['ALBA', 'ALEA', 'ALPINE', 'ALSA', 'ASB-A', 'AZL', 'BELL', 'BIT', 'BREW', 'CGA', 'CLEANSTART', 'CLSA', 'CURL', 'CVE', 'DEBIAN', 'DHI', 'DLA', 'DRUPAL'],
  ...['DSA', 'DTSA', 'ECHO', 'EEF', 'ELA', 'FreeBSD', 'GHSA', 'GO', 'GSD', 'HSEC', 'JLSEC', 'KUBE', 'LBSEC', 'LSN', 'MAL', 'MGASA', 'MINI', 'OESA', 'OSEC'],
  ...['OSV', 'PHSA', 'PSF', 'PUB-A', 'PYSEC', 'RHBA', 'RHEA', 'RHSA', 'RLSA', 'ROOT', 'RSEC', 'RUSTSEC', 'RXSA', 'SUSE-FU', 'SUSE-OU', 'SUSE-RU', 'SUSE-SU'],
  ...['UBUNTU', 'USN', 'V8', 'VCPKG', 'openSUSE-SU'],
])

/** Ecosystems that have no package URLs of their own here. */
const furtherEcosystems: ReadonlySet<string> = new Set([
  ...['Android', 'Azure Linux', 'BellSoft Hardened Containers', 'Bioconductor', 'Bitnami', 'CleanStart', 'ConanCenter', 'Docker Hardened Images', 'Echo'],
  ...['FreeBSD', 'GHC', 'GIT', 'GitHub Actions', 'Homebrew', 'Julia', 'Kubernetes', 'Linux', 'OSS-Fuzz', 'Photon OS', 'Root', 'SwiftURL', 'TuxCare', 'VSCode'],
  ...['WordPress', 'opam', 'vcpkg'],
])

/** Returns the id in a document of OSV. `x_` marks the ids of databases that the schema does not list. */
export function osvIdOf(id: string): string {
  const [first = '', second, third] = id.split('-', 3)
  const isListed = (second !== undefined && databases.has(first)) || (third !== undefined && databases.has(`${first}-${second ?? ''}`))
  return isListed || id.startsWith('x_') ? id : `x_${id}`
}

/** True for an ecosystem, with or without a release, that has no package URLs of its own. */
export function isFurtherEcosystem(ecosystem: string): boolean {
  const [base = ''] = ecosystem.split(':', 1)
  return furtherEcosystems.has(base)
}
