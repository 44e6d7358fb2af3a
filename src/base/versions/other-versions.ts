import { compareDigits, compareLists, compareTexts, orderBy, type VersionOrder } from './version-order.ts'

const isDigits = (part: string): boolean => /^\d+$/.test(part)

function withoutZeros(parts: readonly string[]): readonly string[] {
  return parts.slice(0, parts.findLastIndex((part) => /[^0]/.test(part)) + 1)
}

const gemPattern = /^\d+(?:\.[\da-zA-Z]+)*(?:-[\da-zA-Z-]+(?:\.[\da-zA-Z-]+)*)?$/

/** Returns the segments. Zeros before the first word and at the end mean nothing. A hyphen begins a prerelease. */
function parseGem(text: string): readonly string[] | undefined {
  const trimmed = text.trim()
  if (!gemPattern.test(trimmed)) return undefined
  const segments = trimmed.replaceAll('-', '.pre.').match(/\d+|[a-zA-Z]+/g) ?? []
  const word = segments.findIndex((segment) => !isDigits(segment))
  return word < 0 ? withoutZeros(segments) : [...withoutZeros(segments.slice(0, word)), ...withoutZeros(segments.slice(word))]
}

/** Words come before numbers. */
function compareGemSegments(a: string, b: string): number {
  const [one, other] = [isDigits(a), isDigits(b)]
  if (one && other) return compareDigits(a, b)
  return one === other ? compareTexts(a, b) : one ? 1 : -1
}

/** The order of RubyGems (`Gem::Version`). */
export const gemOrder: VersionOrder = orderBy({
  parse: parseGem,
  compare: (a, b) => compareLists(a, b, { compare: compareGemSegments, missing: (segment) => compareGemSegments(segment, '0') }),
  isPrerelease: (segments) => segments.some((segment) => !isDigits(segment)),
})

/** The stabilities of Composer, lowest first. */
const stabilities = ['dev', 'alpha', 'beta', 'rc', 'stable', 'patch'] as const
const shortStabilities: ReadonlyMap<string, (typeof stabilities)[number]> = new Map([
  ['a', 'alpha'],
  ['b', 'beta'],
  ['p', 'patch'],
  ['pl', 'patch'],
])

interface ComposerVersion {
  readonly numbers: readonly string[]
  readonly stability: number
  /** The numbers after the stability. */
  readonly step: readonly string[]
  /** True for what comes before that step. */
  readonly isDev: boolean
}

const composerPattern = /^v?(\d+(?:[.:-]\d+)*)(?:[._-]?(stable|beta|b|rc|alpha|a|patch|pl|p)((?:[.-]?\d+)*))?(?:[.-]?(dev))?(?:\+\S*)?$/

function parseComposer(text: string): ComposerVersion | undefined {
  const [, numbers, word, step = '', dev] = composerPattern.exec(text.trim().toLowerCase()) ?? []
  if (numbers === undefined) return undefined
  const isDev = dev !== undefined
  const name = shortStabilities.get(word ?? '') ?? word ?? (isDev ? 'dev' : 'stable')
  return {
    numbers: withoutZeros(numbers.split(/[.:-]/)),
    stability: stabilities.findIndex((stability) => stability === name),
    step: name === 'stable' ? [] : (step.match(/\d+/g) ?? []),
    isDev,
  }
}

/** The order of Composer, for packages of Packagist. Branches such as `dev-main` are no versions. */
export const composerOrder: VersionOrder = orderBy({
  parse: parseComposer,
  compare: (a, b) =>
    compareLists(a.numbers, b.numbers, { compare: compareDigits }) ||
    a.stability - b.stability ||
    compareLists(a.step, b.step, { compare: compareDigits }) ||
    Number(b.isDev) - Number(a.isDev),
  isPrerelease: ({ stability }) => stability < stabilities.indexOf('stable'),
})

/** The order of versions that are numbers with dots or hyphens: of Hackage and CRAN. */
export const numbersOrder: VersionOrder = orderBy({
  parse: (text) => (/^\d+(?:[.-]\d+)*$/.test(text) ? text.split(/[.-]/) : undefined),
  compare: (a, b) => compareLists(a, b, { compare: compareDigits }),
})
