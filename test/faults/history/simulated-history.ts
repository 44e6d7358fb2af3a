import type { SeededRandom } from '../schedules/random.ts'
import type { HistoryKind, Operation, Outcome, Seen } from './history.ts'

/** A record of the simulated server. */
interface Stored {
  readonly kind: HistoryKind
  readonly seen: Seen
  readonly name: string
}

const group = 'g'
const names = ['north', 'south', 'east']

/**
 * A server that executes each operation at one moment, and its clients: their observations are linearizable by construction. Some operations get no answer;
 * some of those took effect.
 */
export class SimulatedHistory {
  readonly operations: Operation[] = []
  readonly #random: SeededRandom
  readonly #stored = new Map<string, Stored>()
  readonly #gone: Stored[] = []
  /** The uids that clients know from answers. */
  readonly #reported = new Set<string>()
  /** Increases with every operation: the moment at which the server executes it. */
  #now = 0
  #made = 0

  constructor(random: SeededRandom, count: number) {
    this.#random = random
    for (let step = 0; step < count; step += 1) this.#step()
  }

  #step(): void {
    this.#now += 10
    const record = this.#known()
    const roll = this.#random.fraction()
    if (record === undefined || roll < 0.25) this.#create()
    else if (roll < 0.45) this.#update(record)
    else if (roll < 0.65) this.#read(record)
    else if (roll < 0.9) this.#list(this.#random.pick(['Identity', 'Role', 'RoleBinding']))
    else this.#remove(record)
  }

  /** Returns an existing record, sometimes a deleted one. Clients must know it from an answer. */
  #known(): Stored | undefined {
    const all = (this.#random.fraction() < 0.1 ? this.#gone : [...this.#stored.values()]).filter(({ seen }) => this.#reported.has(seen.uid))
    return all.length === 0 ? undefined : this.#random.pick(all)
  }

  #happens(fields: Omit<Operation, 'client' | 'call' | 'return' | 'parent'>): void {
    const lost = fields.outcome === 'unknown'
    const call = this.#now - this.#random.between(0, 25)
    if (!lost) for (const { uid } of [...(fields.members ?? []), fields]) if (uid !== undefined) this.#reported.add(uid)
    const ended = lost ? null : this.#now + this.#random.between(0, 25)
    this.operations.push({ client: this.#random.between(0, 7), call, return: ended, parent: group, ...fields })
  }

  /** Decides whether the answer is lost, and whether the server executed the operation. */
  #fate(): { outcome: Outcome; done: boolean } {
    const isLost = this.#random.fraction() < 0.08
    return { outcome: isLost ? 'unknown' : 'ok', done: !isLost || this.#random.fraction() < 0.5 }
  }

  #holder(kind: HistoryKind, name: string): Stored | undefined {
    return [...this.#stored.values()].find((stored) => stored.kind === kind && stored.name === name)
  }

  #create(): void {
    this.#made += 1
    const identities = [...this.#stored.values()].filter(({ kind, seen }) => kind === 'Identity' && this.#reported.has(seen.uid))
    const kind = this.#random.pick<HistoryKind>(identities.length === 0 ? ['Identity', 'Role'] : ['Identity', 'Role', 'RoleBinding'])
    const identity = kind === 'RoleBinding' ? this.#random.pick(identities).seen.uid : undefined
    const value = kind === 'RoleBinding' ? this.#random.pick(['viewer', 'editor']) : `v${this.#made}`
    const name = kind === 'Role' ? this.#random.pick(names) : kind === 'RoleBinding' ? `${identity} ${value}` : ''
    const marks = { ...(identity === undefined ? { tag: `t${this.#made}` } : { identity }), ...(name === '' ? {} : { name }) }
    if (name !== '' && this.#holder(kind, name) !== undefined) return this.#happens({ action: 'create', kind, value, outcome: 'taken', ...marks })
    const { outcome, done } = this.#fate()
    const { name: _, ...shown } = marks
    const seen: Seen = { uid: `u${this.#made}`, value, etag: `e${this.#made}`, ...shown }
    if (done) this.#stored.set(seen.uid, { kind, seen, name })
    const answer = outcome === 'unknown' ? { value, ...marks } : { ...seen, ...marks }
    this.#happens({ action: 'create', kind, outcome, ...answer })
  }

  #update({ kind, seen, name }: Stored): void {
    this.#made += 1
    const current = this.#stored.get(seen.uid)
    const { uid } = seen
    if (kind === 'RoleBinding') return this.#read({ kind, seen, name })
    const guard = this.#random.fraction() < 0.6 ? { guard: seen.etag, guardValue: seen.value } : {}
    const value = `v${this.#made}`
    if (current === undefined) return this.#happens({ action: 'update', kind, uid, value, outcome: 'absent', ...guard })
    if (guard.guard !== undefined && this.#random.fraction() < 0.2) {
      const old = { guard: `old ${seen.etag}`, guardValue: 'old' }
      return this.#happens({ action: 'update', kind, uid, value, outcome: 'stale', ...old })
    }
    const { outcome, done } = this.#fate()
    const next = { ...current.seen, value, etag: `e${this.#made}` }
    if (done) this.#stored.set(uid, { ...current, seen: next })
    this.#happens({ action: 'update', kind, outcome, ...(outcome === 'ok' ? next : { uid, value }), ...guard })
  }

  #read({ kind, seen }: Stored): void {
    const current = this.#stored.get(seen.uid)
    if (current === undefined) this.#happens({ action: 'read', kind, uid: seen.uid, outcome: 'absent' })
    else this.#happens({ action: 'read', kind, outcome: 'ok', ...current.seen })
  }

  #list(kind: HistoryKind): void {
    const members = [...this.#stored.values()].filter((stored) => stored.kind === kind).map((stored) => stored.seen)
    this.#happens({ action: 'list', kind, outcome: 'ok', members })
  }

  #remove({ kind, seen }: Stored): void {
    if (!this.#stored.has(seen.uid)) return this.#happens({ action: 'delete', kind, uid: seen.uid, outcome: 'absent' })
    const { outcome, done } = this.#fate()
    const goes = [...this.#stored.values()].filter((stored) => stored.seen.uid === seen.uid || stored.seen.identity === seen.uid)
    for (const stored of done ? goes : []) {
      this.#stored.delete(stored.seen.uid)
      this.#gone.push(stored)
    }
    this.#happens({ action: 'delete', kind, uid: seen.uid, outcome })
  }
}
