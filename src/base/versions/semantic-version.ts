import { SemVer } from 'semver'
import { compareDigits, compareLists, compareTexts, orderBy, type VersionOrder } from './version-order.ts'

/** A semantic version, also with fewer or more than three numbers. */
interface SemanticVersion {
  /** Digits, without zeros at the end. */
  readonly numbers: readonly string[]
  /** The identifiers before a release; empty for a release. */
  readonly prerelease: readonly string[]
  readonly build: string
}

const pattern = /^[v=]?(\d+(?:\.\d+)*)(?:-([\dA-Za-z.-]+)|([A-Za-z][\dA-Za-z.-]*))?(?:\+([\dA-Za-z.-]+))?$/

function parse(text: string): SemanticVersion | undefined {
  const [, numbers, written, attached, build = ''] = pattern.exec(text) ?? []
  if (numbers === undefined) return undefined
  const all = numbers.split('.')
  const prerelease = written?.split('.') ?? attached?.split('.') ?? []
  if (prerelease.includes('')) return undefined
  return { numbers: all.slice(0, all.findLastIndex((part) => /[1-9]/.test(part)) + 1), prerelease, build }
}

function compareIdentifiers(a: string, b: string): number {
  const [one, other] = [/^\d+$/.test(a), /^\d+$/.test(b)]
  if (one && other) return compareDigits(a, b)
  return one === other ? compareTexts(a, b) : one ? -1 : 1
}

function compare(a: SemanticVersion, b: SemanticVersion): number {
  const found = compareLists(a.numbers, b.numbers, { compare: compareDigits })
  if (found !== 0) return found
  if (a.prerelease.length === 0 || b.prerelease.length === 0) return Math.min(b.prerelease.length, 1) - Math.min(a.prerelease.length, 1)
  return compareLists(a.prerelease, b.prerelease, { compare: compareIdentifiers })
}

const isPrerelease = ({ prerelease }: SemanticVersion): boolean => prerelease.length > 0

/**
 * The order of semantic versions (https://semver.org), with the spellings that registries accept: a `v`, fewer or more numbers, a prerelease without a hyphen.
 * Build metadata has no place in the order.
 */
export const semanticOrder: VersionOrder = orderBy({ parse, compare, isPrerelease, differ: (a, b) => a.build !== b.build })

/** Versions of Go's toolchain, as binaries name them. */
const toolchainPattern = /^go(\d+(?:\.\d+)*)(?:(beta|rc)(\d+))?(?:[-+ ].*)?$/s

function parseGo(text: string): SemanticVersion | undefined {
  const [, numbers, word, number] = toolchainPattern.exec(text) ?? []
  if (numbers !== undefined) return parse(word === undefined || number === undefined ? numbers : `${numbers}-${word}.${number}`)
  const parsed = parse(text)
  return parsed === undefined ? undefined : { ...parsed, build: parsed.build === 'incompatible' ? '' : parsed.build }
}

/** The order of Go modules (https://go.dev/ref/mod#versions), with pseudo-versions, and of Go itself, such as `go1.22rc1`. */
export const goOrder: VersionOrder = orderBy({ parse: parseGo, compare, isPrerelease, differ: (a, b) => a.build !== b.build })

/** The order of NuGet: that of semantic versions without regard to case and build metadata. */
export const nugetOrder: VersionOrder = orderBy({ parse: (text) => parse(text.toLowerCase()), compare, isPrerelease })

function parseNpm(text: string): SemVer | undefined {
  try {
    return new SemVer(text)
  } catch {
    return undefined
  }
}

/** The order in which versions of an npm package are listed. Builds of one version follow each other. */
export const npmBuildOrder: VersionOrder = orderBy({
  parse: parseNpm,
  compare: (a, b) => a.compare(b) || a.compareBuild(b),
  isPrerelease: ({ prerelease }) => prerelease.length > 0,
})
