import { parse as parsePep440 } from '@renovatebot/pep440'
import { orderBy } from './version-order.ts'

/** A version of PEP 440 as a list that compares part by part. */
type Pep440Key = readonly (readonly (number | string)[])[]

/** The member of the library's result that its types describe as text. */
type LocalParts = readonly (number | string)[] | null

function withoutZeros(release: readonly number[]): readonly number[] {
  return release.slice(0, release.findLastIndex((part) => part !== 0) + 1)
}

const preRanks: Readonly<Record<string, number>> = { a: 1, b: 2, rc: 3 }

/** A version of PEP 440. */
interface Pep440Version {
  readonly key: Pep440Key
  readonly isPrerelease: boolean
}

/** Returns the version, and whether it comes before its release. */
function parse(text: string): Pep440Version | undefined {
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

function compare({ key: a }: Pep440Version, { key: b }: Pep440Version): number {
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

/** The order of PEP 440 (https://peps.python.org/pep-0440/). */
export const pep440Order = orderBy({ parse, compare, isPrerelease: ({ isPrerelease }) => isPrerelease })
