import type { BreachKind } from './judge-http.ts'

/** A detected fault, and the request that caused it. */
export interface Breach {
  readonly kind: BreachKind
  /** 0 if no single request is known. */
  readonly request: number
  readonly mutations: readonly string[]
  readonly text: string
  /** The complete request: a curl command, or bytes. */
  readonly dump: string
}

/** Counts requests and their answers. */
export class Tally {
  #answers = new Map<string, number>()
  #mutations = new Map<string, number>()

  add(apiClient: string, status: string, mutations: readonly string[]): void {
    const key = `${apiClient} ${status}`
    this.#answers.set(key, (this.#answers.get(key) ?? 0) + 1)
    for (const mutation of mutations) this.#mutations.set(mutation, (this.#mutations.get(mutation) ?? 0) + 1)
  }

  /** By transport and status, then by mutation. */
  lines(): string[] {
    return [...linesOf(this.#answers), '', ...linesOf(this.#mutations)]
  }

  /** The number of answers of an endpoint, by status. */
  of(apiClient: string): Readonly<Record<string, number>> {
    const mine = [...this.#answers].filter(([key]) => key.startsWith(`${apiClient} `))
    return Object.fromEntries(mine.map(([key, count]) => [key.slice(apiClient.length + 1), count]))
  }

  /** The number of times each mutation was applied. */
  get mutations(): ReadonlyMap<string, number> {
    return this.#mutations
  }
}

function linesOf(counts: ReadonlyMap<string, number>): string[] {
  return [...counts].sort(([a], [b]) => (a < b ? -1 : 1)).map(([key, count]) => `${String(count).padStart(8)}  ${key}`)
}

/** Returns the printed lines of a breach: the fault, and the command that repeats it. */
export function breachLines(breach: Breach, again: string): string {
  const by = breach.mutations.length === 0 ? '' : ` [${breach.mutations.join('; ')}]`
  return `BREACH ${breach.kind}: request ${breach.request}${by}: ${breach.text}\n  again: ${again}\n  ${breach.dump}\n`
}
