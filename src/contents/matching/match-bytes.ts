import type { PackageVulnerability } from '../../cache/lists/contents-source.ts'

/** About what a vulnerability in a package takes without its texts, and what a text takes besides its characters, in bytes. */
const matchBytes = 250
const textBytes = 40

/** A vulnerability in a package, whichever image has the package. */
export type PackageMatch = Omit<PackageVulnerability, 'found'>

/** Returns the bytes that texts take in memory at most. */
export function bytesOf(texts: readonly string[]): number {
  // A text takes one or two bytes for each character.
  return texts.reduce((sum, { length }) => sum + textBytes + 2 * length, 0)
}

/** Returns the bytes that vulnerabilities take in memory at most. An advisory of a user may have long texts and many aliases. */
export function bytesOfMatches(found: readonly PackageMatch[]): number {
  return found.reduce((sum, { id, aliases, severities, fixedVersion, rule, advisory, author, note }) => {
    const scores = severities.map(({ score }) => score)
    return sum + matchBytes + bytesOf([id, ...aliases, ...scores, fixedVersion, rule, advisory, author, note])
  }, 0)
}

/** Returns the bytes that vulnerabilities take in memory at most, with their packages. */
export function bytesOfAnswer(found: readonly PackageVulnerability[]): number {
  const packages = new Set(found.map((one) => one.found))
  const bytes = [...packages].reduce((sum, one) => sum + matchBytes + bytesOf([JSON.stringify(one)]), 0)
  return bytes + bytesOfMatches(found)
}
