import type { DatabaseSync, StatementSync } from 'node:sqlite'
import type { CycleAnswer, FoundCycle, FoundProduct, LifecycleCycle, ProductVersion } from '../../cache/lists/lifecycle-source.ts'
import { openForReading } from '../../store/sqlite/catalogue-file.ts'
import { lifecycleTables } from './lifecycle-tables.ts'

/** Returns a version without a `v` before its first digit. */
function plainVersion(text: string): string {
  return text.replace(/^v(?=\d)/i, '').toLowerCase()
}

/** True if the version begins with the cycle, and its last number does not go on. 3.1 is not the cycle of 3.12, and 1.1.1 is that of 1.1.1w. */
function isOfCycle(version: string, cycle: string): boolean {
  if (cycle === '' || !version.startsWith(cycle)) return false
  const next = version[cycle.length] ?? ''
  return /\d$/.test(cycle) ? !/\d/.test(next) : !/[\da-z]/.test(next)
}

/** True if the text is a codename, or its first word: `jammy` is Jammy Jellyfish. */
function isCodename(text: string, codename: string): boolean {
  const name = codename.toLowerCase()
  return text !== '' && (name === text || name.startsWith(`${text} `))
}

/** Returns the key of a product: a name, or a package URL without version, qualifiers and subpath. */
function keyOf(product: string): string {
  return product.startsWith('pkg:') ? product.replace(/[@?#].*$/s, '') : product.toLowerCase()
}

const byNumbers = new Intl.Collator('en', { numeric: true })

/** Orders cycles from the newest to the oldest. Those without a day of release come last. */
function newestFirst(one: LifecycleCycle, other: LifecycleCycle): number {
  const [day = '', otherDay = ''] = [one.releaseDay, other.releaseDay]
  if (day !== otherDay) return day > otherDay ? -1 : 1
  return byNumbers.compare(other.cycle, one.cycle)
}

/** A catalogue of life cycles: one file, open for reading. It never changes. Synchronous: LifecycleThread reads it in a thread. */
export class LifecycleReader {
  readonly #database: DatabaseSync
  readonly #product: StatementSync
  readonly #cycles: StatementSync
  readonly #importedMs: number

  /** Throws CatalogueError if the file is no catalogue of this version. */
  constructor(path: string) {
    this.#database = openForReading(path, lifecycleTables)
    this.#product = this.#database.prepare('SELECT product FROM key WHERE key = ? ORDER BY rank, product LIMIT 1')
    this.#cycles = this.#database.prepare('SELECT body FROM cycle WHERE product = ? ORDER BY length(cycle) DESC, cycle')
    this.#importedMs = Number(this.#database.prepare('SELECT coalesce(max(imported_ms), 0) AS ms FROM source').get()?.['ms'])
  }

  /** Returns the cycle of each version, in the order of `versions`: see LifecycleSource. */
  cyclesOf(versions: readonly ProductVersion[]): CycleAnswer[] {
    const known = new Map<string, readonly FoundCycle[]>()
    return versions.map(({ product, version }) => {
      const key = keyOf(product)
      const cycles = known.get(key) ?? this.#cyclesFor(key)
      known.set(key, cycles)
      if (cycles.length === 0) return undefined
      const text = plainVersion(version)
      const found = cycles.find(({ cycle }) => isOfCycle(text, plainVersion(cycle))) ?? cycles.find(({ codename }) => isCodename(text, codename))
      return found ?? 'unknown version'
    })
  }

  /** Returns the product that a name means, and its cycles: see LifecycleSource. */
  productNamed(name: string): FoundProduct | undefined {
    const cycles = this.#cyclesFor(keyOf(name))
    const [first] = cycles
    return first === undefined ? undefined : { product: first.product, cycles: cycles.toSorted(newestFirst), importedMs: this.#importedMs }
  }

  /** Closes the file. */
  close(): void {
    this.#database.close()
  }

  /** Returns the cycles of a product, the longest names first. */
  #cyclesFor(key: string): readonly FoundCycle[] {
    const found = this.#product.get(key)
    if (found === undefined) return []
    const product = String(found['product'])
    return this.#cycles.all(product).map(({ body }) => ({ ...(JSON.parse(String(body)) as LifecycleCycle), product })) // of LifecycleBuilder
  }
}
