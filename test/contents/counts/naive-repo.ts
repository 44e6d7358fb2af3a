import fc from 'fast-check'

export const levels = ['CRITICAL', 'LOW', 'UNKNOWN'] as const
export const tags = ['one', 'two'] as const
const names = ['musl', 'busybox'] as const
/** The versions of the packages in the images that tags move between. */
export const images = [
  { musl: 1, busybox: 3 },
  { musl: 2, busybox: 2 },
  { musl: 3, busybox: 1 },
] as const

/** The times of statements. Determinations of the API lie between them. */
export const statementTimes = ['2020-01-01T00:00:00Z', '2020-01-02T00:00:00Z', '2090-01-01T00:00:00Z'] as const

/** Mostly one vulnerability of one package, so that documents contradict each other. */
const advisory = fc.constantFrom(0, 0, 0, 0, 0, 1, 2)
const name = fc.constantFrom(...names, 'musl' as const, 'musl' as const, 'musl' as const)
const version = fc.integer({ min: 1, max: 4 })

const statementOf = fc.record({
  advisory,
  name,
  /** The version of the product's package URL. It names none if undefined. */
  version: fc.option(version, { nil: undefined, freq: 2 }),
  /** The image that has the package. Undefined for all images. */
  image: fc.oneof({ weight: 2, arbitrary: fc.constant(undefined) }, { weight: 1, arbitrary: fc.nat({ max: images.length - 1 }) }),
  /** The digest that the image has when the statement is made. */
  digest: fc.constant<string | undefined>(undefined),
  status: fc.constantFrom('not_affected', 'affected', 'fixed', 'under_investigation'),
  time: fc.constantFrom(...statementTimes),
})
const osvOf = fc.record({ form: fc.constant('osv' as const), advisory, name, fixed: version, severity: fc.nat({ max: 2 }), isWithdrawn: fc.boolean() })
const vexOf = fc.record({
  form: fc.constant('vex' as const),
  author: fc.constantFrom('Maker', 'Distributor'),
  statements: fc.array(statementOf, { minLength: 1, maxLength: 3 }),
})
/** Two documents of one import about the same pair would be refused. */
const documentsOf = fc.uniqueArray(fc.oneof({ weight: 1, arbitrary: osvOf }, { weight: 2, arbitrary: vexOf }), {
  minLength: 1,
  maxLength: 3,
  selector: (document) => (document.form === 'osv' ? document.advisory : document.author),
})

export const stepOf = fc.oneof(
  { weight: 3, arbitrary: fc.record({ kind: fc.constant('push' as const), tag: fc.constantFrom(...tags), image: fc.nat({ max: images.length - 1 }) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('deleteTag' as const), tag: fc.constantFrom(...tags) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('deleteManifest' as const), image: fc.nat({ max: images.length - 1 }) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('deleteRepo' as const) }) },
  { weight: 5, arbitrary: fc.record({ kind: fc.constant('import' as const), documents: documentsOf, replace: fc.boolean() }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('importAgain' as const), replace: fc.boolean() }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('bringBack' as const) }) },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant('determine' as const),
      advisory,
      name,
      finding: fc.constantFrom('not_affected', 'affected', 'fixed', 'under_investigation'),
      fixed: version,
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('retract' as const), advisory, name }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('wait' as const), days: fc.constantFrom(1, 2, 35) }) },
)

/** A change of the repo, its images or what is said about their packages. */
export type CountStep = typeof stepOf extends fc.Arbitrary<infer T> ? T : never
/** A document in the form of OSV. */
export type NaiveOsv = typeof osvOf extends fc.Arbitrary<infer T> ? T : never
/** A document in OSV or OpenVEX. */
export type NaiveDocument = (typeof documentsOf extends fc.Arbitrary<infer T> ? T : never)[number]
type NaiveStatement = typeof statementOf extends fc.Arbitrary<infer T> ? T : never
/** A determination of the API. */
interface NaiveDetermination {
  readonly uid: string
  readonly finding: string
  readonly fixed: number
  readonly ms: number
}
/** The ids by level, of a tag that exists. */
export type NaiveCounts = Readonly<Record<string, readonly string[]>>

/** One voice about a package. The highest rank wins, then the newest, then the worst. */
interface Voice {
  readonly rank: number
  readonly ms: number
  readonly state: string
}

/** A package in an image with a digest. */
interface FoundPackage {
  readonly name: string
  readonly version: number
  readonly digest: string | undefined
}

const isOpen = (state: string): boolean => state === 'affected' || state === 'under_investigation'

/** What is said at a time about a version. `fixed` is the version with the fix, undefined for all of them. */
function voiceOf(said: { state: string; ms: number; fixed: number | undefined; isOnlyThis: boolean }, found: number): Voice {
  const { state, ms, fixed, isOnlyThis } = said
  if (state === 'under_investigation') return { rank: 1, ms: 0, state }
  if (state === 'fixed' && fixed !== undefined && found < fixed) return { rank: 2, ms: 0, state: 'affected' }
  return { rank: isOnlyThis ? 5 : 4, ms, state }
}

/** What the records must say: documents and tags as they are, and the counts of each day as they were at its end. */
export class NaiveRepo {
  readonly #ids: readonly string[]
  readonly #osv = new Map<string, NaiveOsv>()
  readonly #statements = new Map<string, readonly NaiveStatement[]>()
  readonly determinations = new Map<string, NaiveDetermination>()
  readonly tags = new Map<string, number>()
  /** The digests of images. */
  readonly digests = new Map<number, string>()
  readonly days = new Map<number, ReadonlyMap<string, NaiveCounts>>()

  constructor(ids: readonly string[]) {
    this.#ids = ids
  }

  import(documents: readonly NaiveDocument[], replace: boolean): void {
    if (replace) {
      this.#osv.clear()
      this.#statements.clear()
    }
    for (const document of documents) {
      if (document.form === 'osv') this.#osv.set(`${document.advisory} ${document.name}`, document)
      else {
        // All that one document says about a pair replaces what its author said.
        const pairs = Map.groupBy(document.statements, (one) => `${document.author} ${one.advisory} ${one.name} ${one.version} ${one.digest}`)
        for (const [pair, statements] of pairs) this.#statements.set(pair, statements)
      }
    }
  }

  /** Returns a withdrawn advisory, as it is without that. */
  restored(): NaiveOsv | undefined {
    const found = [...this.#osv.values()].find(({ isWithdrawn }) => isWithdrawn)
    return found && { ...found, isWithdrawn: false }
  }

  now(): ReadonlyMap<string, NaiveCounts> {
    return new Map([...this.tags].map(([tag, image]) => [tag, this.#countsOf(image)]))
  }

  /** What each tag had on any day until then, with the last severity. */
  sums(): Map<number, ReadonlyMap<string, NaiveCounts>> {
    const known = new Map<string, Map<string, string>>()
    return new Map(
      [...this.days].map(([day, counts]) => {
        const sums = [...counts].map(([tag, byLevel]): [string, NaiveCounts] => {
          const all = known.get(tag) ?? new Map<string, string>()
          known.set(tag, all)
          for (const [level, ids] of Object.entries(byLevel)) for (const id of ids) all.set(id, level)
          const sorted = [...all].sort(([one], [other]) => (one < other ? -1 : 1))
          return [tag, Object.fromEntries([...Map.groupBy(sorted, ([, level]) => level)].map(([level, ids]) => [level, ids.map(([id]) => id)]))]
        })
        return [day, new Map(sums)]
      }),
    )
  }

  #countsOf(image: number): NaiveCounts {
    const counts: Record<string, string[]> = {}
    for (const [at, id] of this.#ids.entries()) {
      const found = names.flatMap((one) => this.#levelOf(at, { name: one, version: images[image]?.[one] ?? 0, digest: this.digests.get(image) }))
      const worst = levels.find((level) => found.includes(level))
      if (worst !== undefined) (counts[worst] ??= []).push(id)
    }
    return Object.fromEntries(Object.entries(counts).map(([level, ids]) => [level, ids.sort()]))
  }

  /** Returns the level of a vulnerability in a package; nothing if it is not open. */
  #levelOf(at: number, there: FoundPackage): string[] {
    const { name: of, version: found } = there
    const osv = this.#osv.get(`${at} ${of}`)
    const voices: Voice[] = this.#stated(at, there)
    if (osv?.isWithdrawn === false) voices.push({ rank: 3, ms: 0, state: found < osv.fixed ? 'affected' : 'fixed' })
    const own = this.determinations.get(`${at} ${of}`)
    if (own !== undefined) voices.push(voiceOf({ state: own.finding, ms: own.ms, fixed: own.fixed, isOnlyThis: false }, found))
    const highest = Math.max(...voices.map(({ rank }) => rank))
    const high = voices.filter(({ rank }) => rank === highest)
    const newest = Math.max(...high.map(({ ms }) => ms))
    if (!high.some(({ ms, state }) => ms === newest && isOpen(state))) return []
    return [osv?.isWithdrawn === false ? (levels[osv.severity] ?? '') : 'UNKNOWN']
  }

  /** Returns what the statements of all authors say about a package. */
  #stated(at: number, { name: of, version: found, digest }: FoundPackage): Voice[] {
    return [...this.#statements.values()].flatMap((statements) => {
      const newest = Math.max(...statements.map(({ time }) => Date.parse(time)))
      const last = statements.findLast(({ time }) => Date.parse(time) === newest)
      if (last?.advisory !== at || last.name !== of) return []
      if (last.digest !== undefined && last.digest !== digest) return []
      const isOther = last.version !== undefined && last.version !== found
      // A fix in one version says something of the others.
      if (isOther && last.status !== 'fixed') return []
      return [voiceOf({ state: last.status, ms: newest, fixed: last.version, isOnlyThis: last.version === found || last.digest !== undefined }, found)]
    })
  }
}
