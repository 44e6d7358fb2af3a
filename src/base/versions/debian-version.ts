import { compareDigits, compareLists, orderBy, type VersionOrder } from './version-order.ts'

/** A part: characters that are no digits, and the number after them. */
type Part = readonly [characters: string, digits: string]

interface DebianVersion {
  readonly epoch: string
  readonly upstream: readonly Part[]
  readonly revision: readonly Part[]
}

const pattern = /^(?:(\d+):([\w.+~:^-]*[\w.+~:^])|([\w.+~^-]*[\w.+~^]))$/

function partsOf(text: string): Part[] {
  return [...text.matchAll(/(\D*)(\d*)/g)].flatMap(([whole, characters = '', digits = '']) => (whole === '' ? [] : [[characters, digits] as const]))
}

function parse(text: string): DebianVersion | undefined {
  const [, epoch = '0', afterEpoch, rest = afterEpoch] = pattern.exec(text) ?? []
  if (rest === undefined) return undefined
  const hyphen = rest.lastIndexOf('-')
  const [upstream, revision] = hyphen < 0 ? [rest, ''] : [rest.slice(0, hyphen), rest.slice(hyphen + 1)]
  return upstream === '' ? undefined : { epoch, upstream: partsOf(upstream), revision: partsOf(revision) }
}

/** Returns the place of a character: `~` before the end, letters after it, then all others. */
function weightOf(character: string | undefined): number {
  if (character === '~') return -1
  if (character === undefined) return 0
  return /[a-zA-Z]/.test(character) ? character.charCodeAt(0) : character.charCodeAt(0) + 0x100
}

function compareParts([characters, digits]: Part, [otherCharacters, otherDigits]: Part): number {
  for (let at = 0; at < Math.max(characters.length, otherCharacters.length); at++) {
    const found = weightOf(characters[at]) - weightOf(otherCharacters[at])
    if (found !== 0) return found
  }
  return compareDigits(digits, otherDigits)
}

/** Compares two lists of parts. One that ends has empty parts: `0` and nothing are the same. */
function compareAll(a: readonly Part[], b: readonly Part[]): number {
  return compareLists(a, b, { compare: compareParts, missing: (part) => compareParts(part, ['', '']) })
}

/** The order of packages of Debian, Ubuntu and others that dpkg installs (deb-version(7)). */
export const debianOrder: VersionOrder = orderBy({
  parse,
  compare: (a, b) => compareDigits(a.epoch, b.epoch) || compareAll(a.upstream, b.upstream) || compareAll(a.revision, b.revision),
})
