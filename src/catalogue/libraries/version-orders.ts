import { parse as parsePep440 } from '@renovatebot/pep440'
import { SemVer } from 'semver'
import { Ecosystem } from '../../gen/taproot/libraries/v2/artifacts_pb.ts'
import { compareMaven, isMavenPrerelease, parseMaven } from './maven-version.ts'

/** An ecosystem whose artifacts are imported. */
export type KnownEcosystem = Exclude<(typeof Ecosystem)[keyof typeof Ecosystem], typeof Ecosystem.UNSPECIFIED>

/** How an ecosystem reads and compares its versions. */
interface VersionScheme<Parsed> {
  /** Returns undefined for a text that is no version of the ecosystem. */
  readonly parse: (text: string) => Parsed | undefined
  readonly compare: (a: Parsed, b: Parsed) => number
  readonly isPrerelease: (parsed: Parsed) => boolean
}

/** A version with its place: 1 for the oldest. Equal versions share a rank. A text that is no version has rank 0. */
export interface RankedVersion {
  readonly version: string
  readonly rank: number
  /** True for a version that is neither a prerelease nor unreadable. */
  readonly isFinal: boolean
}

/** The order of versions of an ecosystem. */
export interface VersionOrder {
  /** Returns the versions with their ranks, oldest first. */
  ranked(versions: readonly string[]): RankedVersion[]
  /** Compares two versions: below 0 if `a` is older. A text that is no version is older than all, and equal to others of its kind. */
  compare(a: string, b: string): number
}

function orderBy<Parsed>({ parse, compare, isPrerelease }: VersionScheme<Parsed>): VersionOrder {
  const compareParsed = (a: Parsed | undefined, b: Parsed | undefined): number => {
    if (a === undefined || b === undefined) return (a === undefined ? 0 : 1) - (b === undefined ? 0 : 1)
    return compare(a, b)
  }
  return {
    compare: (a, b) => compareParsed(parse(a), parse(b)),
    ranked: (versions) => {
      const all = versions.map((version) => ({ version, parsed: parse(version) })).sort((a, b) => compareParsed(a.parsed, b.parsed))
      let rank = 0
      return all.map(({ version, parsed }, at) => {
        const before = all[at - 1]
        if (parsed !== undefined && (before === undefined || compareParsed(before.parsed, parsed) !== 0)) rank += 1
        return { version, rank, isFinal: parsed !== undefined && !isPrerelease(parsed) }
      })
    },
  }
}

/** A version of PEP 440 as a list that compares part by part. */
type Pep440Key = readonly (readonly (number | string)[])[]

/** The member of the library's result that its types describe as text. */
type LocalParts = readonly (number | string)[] | null

function withoutZeros(release: readonly number[]): readonly number[] {
  return release.slice(0, release.findLastIndex((part) => part !== 0) + 1)
}

const preRanks: Readonly<Record<string, number>> = { a: 1, b: 2, rc: 3 }

/** Returns the version, and whether it comes before its release. */
function pep440(text: string): { readonly key: Pep440Key; readonly isPrerelease: boolean } | undefined {
  const parsed = parsePep440(text)
  if (parsed === null) return undefined
  // The library's types do not say that parts may be missing.
  const { epoch, release, pre, post, dev } = parsed as { [name in keyof typeof parsed]: (typeof parsed)[name] | null } & { epoch: number; release: number[] }
  const local = parsed.local as LocalParts
  const numberOf = (part: readonly (string | number)[] | null): number => Number(part?.[1] ?? 0)
  // A development release without `pre` and `post` comes before all prereleases: 0. A release comes after them: 4.
  const preRank = pre === null ? (post === null && dev !== null ? 0 : 4) : (preRanks[String(pre[0])] ?? 0)
  return {
    key: [
      [epoch],
      withoutZeros(release),
      [preRank, numberOf(pre)],
      [post === null ? -1 : numberOf(post)],
      [dev === null ? Infinity : numberOf(dev)],
      // Numbers are greater than words, and a longer label is greater.
      (local ?? []).flatMap((part) => (typeof part === 'number' ? [1, part, ''] : [0, 0, part])),
    ],
    isPrerelease: pre !== null || dev !== null,
  }
}

function comparePep440({ key: a }: { readonly key: Pep440Key }, { key: b }: { readonly key: Pep440Key }): number {
  for (const [at, part] of a.entries()) {
    const other = b[at] ?? []
    for (let inner = 0; inner < Math.max(part.length, other.length); inner++) {
      const [x, y] = [part[inner], other[inner]]
      if (x === y) continue
      if (x === undefined || y === undefined) return x === undefined ? -1 : 1
      return x < y ? -1 : 1
    }
  }
  return 0
}

function semver(text: string): SemVer | undefined {
  try {
    return new SemVer(text)
  } catch {
    return undefined
  }
}

/** The order of each ecosystem (docs/spec/libraries.md#version-order). */
export const versionOrders: Readonly<Record<KnownEcosystem, VersionOrder>> = {
  [Ecosystem.JAVA]: orderBy({ parse: parseMaven, compare: compareMaven, isPrerelease: isMavenPrerelease }),
  [Ecosystem.PYTHON]: orderBy({ parse: pep440, compare: comparePep440, isPrerelease: ({ isPrerelease }) => isPrerelease }),
  [Ecosystem.NPM]: orderBy({ parse: semver, compare: (a, b) => a.compare(b) || a.compareBuild(b), isPrerelease: ({ prerelease }) => prerelease.length > 0 }),
}
