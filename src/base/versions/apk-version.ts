import { compareDigits, compareLists, compareTexts, orderBy, type VersionOrder } from './version-order.ts'

/** The kinds of parts. If two versions have the same parts so far, the one whose next part has the greater kind is greater. */
const kinds = { before: 0, end: 1, revision: 2, commit: 3, suffixNumber: 4, after: 5, letter: 6, number: 7 } as const

interface Part {
  readonly kind: (typeof kinds)[keyof typeof kinds]
  readonly text: string
  /** The place of a suffix among those of its kind. */
  readonly rank: number
}

/** Suffixes that come before the version, and those that come after it, lowest first. */
const suffixesBefore = ['alpha', 'beta', 'pre', 'rc']
const suffixesAfter = ['cvs', 'svn', 'git', 'hg', 'p']
const pattern = /^(\d+(?:\.\d+)*)([a-z]?)((?:_[a-z]+\d*)*)(?:~([\da-f]+))?(?:-r(\d+))?$/

function part(kind: keyof typeof kinds, text: string, rank = 0): Part {
  return { kind: kinds[kind], text, rank }
}

/** Returns the parts of the suffixes. Undefined if one of them is unknown. */
function suffixParts(text: string): Part[] | undefined {
  const parts: Part[] = []
  for (const [, word = '', number = ''] of text.matchAll(/_([a-z]+)(\d*)/g)) {
    const [before, after] = [suffixesBefore.indexOf(word), suffixesAfter.indexOf(word)]
    if (before < 0 && after < 0) return undefined
    parts.push(before < 0 ? part('after', '', after) : part('before', '', before))
    if (number !== '') parts.push(part('suffixNumber', number))
  }
  return parts
}

function parse(text: string): readonly Part[] | undefined {
  const [, numbers, letter, written = '', commit, revision] = pattern.exec(text) ?? []
  const suffixes = suffixParts(written)
  if (numbers === undefined || suffixes === undefined) return undefined
  return [
    // After a dot, a zero at the beginning makes a fraction: 1.05 is older than 1.1.
    ...numbers.split('.').map((number, at) => part('number', at === 0 ? number.replace(/^0+(?=\d)/, '') : number)),
    ...(letter ? [part('letter', letter)] : []),
    ...suffixes,
    ...(commit === undefined ? [] : [part('commit', commit)]),
    ...(revision === undefined ? [] : [part('revision', revision)]),
  ]
}

function compareParts(a: Part, b: Part): number {
  if (a.kind !== b.kind || a.rank !== b.rank) return a.kind - b.kind || a.rank - b.rank
  const isText = a.kind === kinds.letter || a.kind === kinds.commit || (a.kind === kinds.number && (a.text.startsWith('0') || b.text.startsWith('0')))
  return isText ? compareTexts(a.text, b.text) : compareDigits(a.text, b.text)
}

/** The order of packages of Alpine, Wolfi and others that apk installs (apk-package(5)). */
export const apkOrder: VersionOrder = orderBy({
  parse,
  compare: (a, b) => compareLists(a, b, { compare: compareParts, missing: ({ kind }) => kind - kinds.end }),
  isPrerelease: (parts) => parts.some(({ kind }) => kind === kinds.before),
})
