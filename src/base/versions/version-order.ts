/** How an ecosystem reads and compares its versions. */
export interface VersionScheme<Parsed> {
  /** Returns undefined for a text that is no version of the ecosystem. Takes time in proportion to the text. */
  readonly parse: (text: string) => Parsed | undefined
  readonly compare: (a: Parsed, b: Parsed) => number
  /** True for a version that comes before its release. Without it, none does. */
  readonly isPrerelease?: (parsed: Parsed) => boolean
  /** True for two versions of one place that are still not the same, such as two builds. Without it, none are. */
  readonly differ?: (a: Parsed, b: Parsed) => boolean
}

/** A version with its place: 1 for the oldest. Equal versions share a rank. A text that is no version has rank 0. */
export interface RankedVersion {
  readonly version: string
  readonly rank: number
  /** True for a version that is neither a prerelease nor unreadable. */
  readonly isFinal: boolean
}

/** A version that was read, to be compared with others of its order. */
export interface ReadVersion {
  readonly text: string
  /** Returns below 0 if this version is older. */
  compareTo(other: ReadVersion): number
  /** True for the same version, whatever its spelling. */
  isSameAs(other: ReadVersion): boolean
}

/** The order of versions of an ecosystem. */
export interface VersionOrder {
  /** Returns the versions with their ranks, oldest first. */
  ranked(versions: readonly string[]): RankedVersion[]
  /** Compares two versions: below 0 if `a` is older. A text that is no version is older than all, and equal to others of its kind. */
  compare(a: string, b: string): number
  /** Returns the version to compare it many times. Undefined for a text that is no version. */
  read(text: string): ReadVersion | undefined
}

/** Returns the order of a scheme. */
export function orderBy<Parsed>({ parse, compare, isPrerelease = () => false, differ = () => false }: VersionScheme<Parsed>): VersionOrder {
  class Read implements ReadVersion {
    readonly text: string
    readonly parsed: Parsed
    constructor(text: string, parsed: Parsed) {
      this.text = text
      this.parsed = parsed
    }
    compareTo(other: ReadVersion): number {
      if (!(other instanceof Read)) throw new TypeError('versions of two orders do not compare')
      return compare(this.parsed, other.parsed)
    }
    isSameAs(other: ReadVersion): boolean {
      return this.compareTo(other) === 0 && other instanceof Read && !differ(this.parsed, other.parsed)
    }
  }
  const compareParsed = (a: Parsed | undefined, b: Parsed | undefined): number => {
    if (a === undefined || b === undefined) return (a === undefined ? 0 : 1) - (b === undefined ? 0 : 1)
    return compare(a, b)
  }
  return {
    compare: (a, b) => compareParsed(parse(a), parse(b)),
    read: (text) => {
      const parsed = parse(text)
      return parsed === undefined ? undefined : new Read(text, parsed)
    },
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

/** Compares two texts by their code units. */
export function compareTexts(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0
}

/** Compares two texts of digits as numbers of any size. */
export function compareDigits(a: string, b: string): number {
  const [one, other] = [a.replace(/^0+/, ''), b.replace(/^0+/, '')]
  return one.length - other.length || compareTexts(one, other)
}

/** Compares two lists part by part. `missing` compares a part with the end of the other list; without it, a part is greater. */
export function compareLists<Part>(
  a: readonly Part[],
  b: readonly Part[],
  { compare, missing = () => 1 }: { readonly compare: (a: Part, b: Part) => number; readonly missing?: (part: Part) => number },
): number {
  for (let at = 0; at < Math.max(a.length, b.length); at++) {
    const [one, other] = [a[at], b[at]]
    const found = one === undefined ? (other === undefined ? 0 : -missing(other)) : other === undefined ? missing(one) : compare(one, other)
    if (found !== 0) return found
  }
  return 0
}
