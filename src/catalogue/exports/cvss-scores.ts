import calculators from 'ae-cvss-calculator'
import { Severity_Type, type Severity } from '../../gen/taproot/vulnerabilities/v2/advisories_pb.ts'

/** A score of CVSS 3.0 or 3.1, in the form of CSAF. */
export interface CvssV3 {
  readonly version: '3.0' | '3.1'
  readonly vectorString: string
  /** From 0 to 10, with one decimal place. */
  readonly baseScore: number
  readonly baseSeverity: 'NONE' | 'LOW' | 'MEDIUM' | 'HIGH' | 'CRITICAL'
}

/** The versions, newest first. */
const versions = [
  { version: '3.1', Calculator: calculators.Cvss3P1 },
  { version: '3.0', Calculator: calculators.Cvss3P0 },
] as const

/** The lowest score of each severity, highest first (https://www.first.org/cvss/v3.1/specification-document, section 5). */
const severities = [
  { least: 9, name: 'CRITICAL' },
  { least: 7, name: 'HIGH' },
  { least: 4, name: 'MEDIUM' },
  { least: 0.1, name: 'LOW' },
] as const

/** Returns the score of a vector. Undefined if it is no whole vector of the version. */
function scoreOf(vector: string, { version, Calculator }: (typeof versions)[number]): CvssV3 | undefined {
  if (!vector.startsWith(`CVSS:${version}/`)) return undefined
  try {
    const { base, vector: vectorString } = new Calculator(vector).calculateScores()
    if (base === undefined) return undefined
    return { version, vectorString, baseScore: base, baseSeverity: severities.find(({ least }) => base >= least)?.name ?? 'NONE' }
  } catch {
    // The package throws errors of the class Error for unknown metrics and values.
    return undefined
  }
}

/** The types of scores in OSV: their names, and the vectors of their versions. */
const osvTypes: Readonly<
  Record<number, { readonly name: string; readonly vectors: readonly (readonly [start: RegExp, new (vector: string) => CvssVector])[] }>
> = {
  [Severity_Type.CVSS_V2]: { name: 'CVSS_V2', vectors: [[/^(?!CVSS)/, calculators.Cvss2]] },
  [Severity_Type.CVSS_V3]: {
    name: 'CVSS_V3',
    vectors: [
      [/^CVSS:3\.1\//, calculators.Cvss3P1],
      [/^CVSS:3\.0\//, calculators.Cvss3P0],
    ],
  },
  // The package accepts a value of three metrics that only their modified forms have.
  [Severity_Type.CVSS_V4]: { name: 'CVSS_V4', vectors: [[/^CVSS:4\.0\/(?!(?:.*\/)?S[CIA]:S)/, calculators.Cvss4P0]] },
}

/** What is used of a vector of any version. */
interface CvssVector {
  isBaseFullyDefined(): boolean
  calculateScores(): { readonly base?: number | undefined; readonly overall?: number | undefined }
  toString(): string
}

/** Returns a score in the form of OSV: its vector, with the metrics in their order. Undefined if it is no whole vector of the type. */
export function osvSeverityOf({ type, score }: Pick<Severity, 'type' | 'score'>): { readonly type: string; readonly score: string } | undefined {
  const { name, vectors } = osvTypes[type] ?? { name: '', vectors: [] }
  const Calculator = vectors.find(([start]) => start.test(score))?.[1]
  if (Calculator === undefined) return undefined
  try {
    const vector = new Calculator(score)
    return vector.isBaseFullyDefined() ? { type: name, score: vector.toString() } : undefined
  } catch {
    // The package throws errors of the class Error for unknown metrics and values.
    return undefined
  }
}

/** Returns the score of a vector of any version. Undefined if it is not valid. */
function baseScoreOf({ type, score }: Pick<Severity, 'type' | 'score'>): number | undefined {
  const Calculator = osvTypes[type]?.vectors.find(([start]) => start.test(score))?.[1]
  if (Calculator === undefined) return undefined
  try {
    const { base, overall } = new Calculator(score).calculateScores()
    return base ?? overall
  } catch {
    // The package throws errors of the class Error for unknown metrics and values.
    return undefined
  }
}

/** A valid vector of any version of CVSS. */
export interface ReadVector {
  /** For example `3.1`. */
  readonly version: string
  /** From 0 to 10. */
  readonly score: number
  readonly vector: string
}

/** Returns the valid vectors, the newest version of CVSS first. */
export function readVectors(scores: readonly Pick<Severity, 'type' | 'score'>[]): readonly ReadVector[] {
  const found = scores.flatMap((one) => {
    const score = baseScoreOf(one)
    return score === undefined ? [] : [{ version: /^CVSS:(\d\.\d)\//.exec(one.score)?.[1] ?? '2.0', score, vector: one.score }]
  })
  return found.sort((one, other) => (one.version > other.version ? -1 : one.version < other.version ? 1 : 0))
}

/** Returns the level of the first valid vector of the newest version of CVSS. Undefined if there is none. */
export function severityOf(scores: readonly Pick<Severity, 'type' | 'score'>[]): CvssV3['baseSeverity'] | undefined {
  for (const type of [Severity_Type.CVSS_V4, Severity_Type.CVSS_V3, Severity_Type.CVSS_V2]) {
    for (const score of scores.filter((one) => one.type === type)) {
      const base = baseScoreOf(score)
      if (base !== undefined) return severities.find(({ least }) => base >= least)?.name ?? 'NONE'
    }
  }
  return undefined
}

/** Returns the first score of the newest version of CVSS 3 that has a valid vector. Undefined if there is none. */
export function cvssV3Of(scores: readonly Pick<Severity, 'type' | 'score'>[]): CvssV3 | undefined {
  const vectors = scores.filter(({ type }) => type === Severity_Type.CVSS_V3)
  for (const version of versions) {
    for (const { score } of vectors) {
      const found = scoreOf(score, version)
      if (found !== undefined) return found
    }
  }
  return undefined
}
