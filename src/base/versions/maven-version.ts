import { compareDigits, compareTexts, orderBy } from './version-order.ts'

/** A part of a version. `place` says which part is greater if the kinds differ: a qualifier, a number after a hyphen, a number after a dot. */
type Token = { readonly place: typeof places.qualifier; readonly rank: number; readonly word: string } | { readonly place: 1 | 2; readonly digits: string }

/** A parsed version, without the parts that mean nothing. */
type MavenVersion = readonly Token[]

const places = { qualifier: 0, afterHyphen: 1, afterDot: 2 } as const

/** Qualifiers with a place of their own, lowest first. The empty one is the release. Other words come after them. */
const qualifiers = ['alpha', 'beta', 'milestone', 'rc', 'snapshot', '', 'sp']
const releaseRank = qualifiers.indexOf('')
const synonyms = new Map(Object.entries({ ga: '', final: '', release: '', cr: 'rc' }))
/** The meaning of one letter that a digit follows. */
const letters = new Map(Object.entries({ a: 'alpha', b: 'beta', m: 'milestone' }))

function qualifierToken(text: string, hasDigitAfter: boolean): Token {
  const word = (hasDigitAfter ? letters.get(text) : undefined) ?? text
  const name = synonyms.get(word) ?? word
  const rank = qualifiers.indexOf(name)
  return { place: places.qualifier, rank: rank < 0 ? qualifiers.length : rank, word: rank < 0 ? name : '' }
}

function isNull(token: Token): boolean {
  return token.place === places.qualifier ? token.rank === releaseRank : token.digits === '0'
}

/**
 * Parses a version as Maven's version order specification says (https://maven.apache.org/pom.html#version-order-specification). Every text is a version. A change
 * between digits and letters counts as a hyphen, and so does a dot before a qualifier.
 */
function parse(text: string): MavenVersion {
  const sections: Token[][] = [[]]
  const add = (token: Token): void => {
    if (token.place === places.afterDot) sections.at(-1)?.push(token)
    else sections.push([token])
  }
  const parts = [...text.toLowerCase().matchAll(/([.-])|(\d+)|([^\d.-]+)/g)]
  let separator = '.'
  for (const [at, [, found, digits, word]] of parts.entries()) {
    const place = separator === '.' ? places.afterDot : places.afterHyphen
    if (found !== undefined) {
      // Nothing between two separators is a zero.
      if (separator !== '') add({ place, digits: '0' })
      separator = found
      continue
    }
    if (digits === undefined) add(qualifierToken(word ?? '', parts[at + 1]?.[2] !== undefined))
    else add({ place, digits: digits.replace(/^0+(?=\d)/, '') })
    separator = ''
  }
  // At the end and before each hyphen, parts that mean nothing are left out, such as `.0` and `-ga`.
  return sections.flatMap((section) => section.slice(0, section.findLastIndex((token) => !isNull(token)) + 1))
}

function compareTokens(a: Token, b: Token): number {
  if (a.place === places.qualifier) return b.place === places.qualifier ? a.rank - b.rank || compareTexts(a.word, b.word) : -1
  if (b.place === places.qualifier) return 1
  return a.place - b.place || compareDigits(a.digits, b.digits)
}

/** Compares a part with the end of a version, which counts as the release. After zeros comes a part that is greater. */
function compareToEnd(token: Token): number {
  return token.place === places.qualifier ? token.rank - releaseRank : 1
}

/** Compares two versions: below 0 if `a` is older. */
function compare(a: MavenVersion, b: MavenVersion): number {
  for (let at = 0; ; at++) {
    const [one, other] = [a[at], b[at]]
    if (one === undefined) return other === undefined ? 0 : -compareToEnd(other) || -1
    if (other === undefined) return compareToEnd(one) || 1
    const found = compareTokens(one, other)
    if (found !== 0) return found
  }
}

/** True if a part says that the version comes before its release, such as `rc` or `SNAPSHOT`. */
function isPrerelease(version: MavenVersion): boolean {
  return version.some((token) => token.place === places.qualifier && token.rank < releaseRank)
}

/** The order of Maven. */
export const mavenOrder = orderBy({ parse, compare, isPrerelease })
