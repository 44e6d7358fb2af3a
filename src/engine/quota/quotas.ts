import { DomainError } from '../../base/errors.ts'
import type { Uid } from '../../base/uid.ts'
import type { RecordCache } from '../../cache/record-cache.ts'
import type { RecordTables } from '../../cache/record-tables.ts'
import { limitKey, quotaKey, recordKey } from '../../store/keys.ts'
import { StoreError, type Entry, type Guard, type Store, type Write } from '../../store/store.ts'
import { Lanes, type Lane, type LaneOutcome } from './lane.ts'
import { limitsOf, mebibyte, recordBytesLimit, recordLimits, recordUse, unitOf, type Growth } from './limits.ts'

/** The dependencies and parameters of quotas. */
export interface QuotaOptions {
  readonly store: Store
  readonly cache: RecordCache
  /** Maximum number of processes that write to the store at once. Processes that died with unanswered transactions count. */
  readonly processes?: number
  /** Maximum amount that one process may have under way at once for one limit of one organisation. */
  readonly share?: { readonly records: number; readonly bytes: number }
}

/** A transaction under construction to which limits apply. ChangeSet implements it. */
export interface Metered {
  /** False if no limits apply to the transaction. */
  readonly isMetered: boolean
  readonly growth: readonly Growth[]
  guard(guard: Guard): void
  write(write: Write): void
}

/** A limit to which a transaction adds `amount`, which is greater than 0. */
interface Need {
  readonly root: Uid
  readonly limit: string
  readonly amount: number
  /** The usage in the snapshot. */
  readonly use: number
  readonly max: number
  readonly key: string
  readonly state: Entry | undefined
}

/**
 * How a transaction may proceed with regard to a limit:
 * - `together`: now, in parallel with others
 * - `alone`: now, because the caller has the turn
 * - `turn`: after a wait for its turn
 * - `room`: after other transactions of this process have ended
 * - `narrow`: after the limit was marked as near
 */
type Way = 'together' | 'alone' | 'turn' | 'room' | 'narrow'

interface QuotaStep {
  readonly need: Need
  readonly way: Way
}

const near = 'near'
const far = 'far'

/** Returns code 8 for a limit that would be exceeded. Its metadata contains the limit and its usage. A retry does not help. */
export function quotaExceeded(root: Uid, found: { limit: string; max: number; use: number; amount: number }): DomainError {
  const { limit, max, use, amount } = found
  return new DomainError(8, `Limit "${limit}" reached: ${use} of ${max} used, ${amount} requested. Delete records, or ask an operator for more`, {
    reason: 'QUOTA_EXCEEDED',
    details: { metadata: { limit, max: String(max), use: String(use), requested: String(amount), scope: root } },
  })
}

/**
 * Enforces the record limits of organisations, exactly and across all replicas (docs/adr/0024). While a limit is farther away than all processes together
 * could add at once, creates only guard the limit's key. Nearer to the limit they write the key, so that they run one at a time.
 */
export class Quotas {
  readonly #options: Required<QuotaOptions>
  readonly #lanes = new Lanes()

  constructor(options: QuotaOptions) {
    this.#options = { processes: 32, share: { records: 64, bytes: 2 * mebibyte }, ...options }
  }

  /** Starts the admission of one mutation, which covers its planning and its commit. Always call `end` afterwards. */
  begin(signal: AbortSignal): Admission {
    return new Admission(this.#options, this.#lanes, signal)
  }
}

/** The check of one mutation against the limits, until it is committed. */
export class Admission {
  readonly #options: Required<QuotaOptions>
  readonly #lanes: Lanes
  readonly #signal: AbortSignal
  readonly #admissions = new Map<string, () => void>()
  #flights: ReturnType<Lane['start']>[] = []
  /** The store keys of the limits whose Lanes were used so far. */
  readonly #used = new Set<string>()
  /** True if the snapshot contained all acknowledged commits when a limit first seemed to be exceeded. */
  #isCaughtUp = false

  constructor(options: Required<QuotaOptions>, lanes: Lanes, signal: AbortSignal) {
    this.#options = options
    this.#lanes = lanes
    this.#signal = signal
  }

  /**
   * Adds guards and writes for the limits to `changes`, which were planned with the current snapshot. Returns undefined if they may be committed: then call
   * `settle` with the outcome. Otherwise returns a function that waits; call it and plan again. Throws code 8 QUOTA_EXCEEDED. For a dry run, adds nothing.
   */
  admit(changes: Metered, isDryRun: boolean): (() => Promise<void>) | undefined {
    const { tables } = this.#options.cache
    const needs = this.#needs(tables, changes)
    const reached = needs.find(({ use, amount, max }) => use + amount > max)
    if (reached !== undefined) {
      if (!this.#isCaughtUp) return () => this.#catchUp()
      throw quotaExceeded(reached.root, inUnits(reached))
    }
    this.#isCaughtUp = false
    if (isDryRun) return undefined
    const ways = needs.map((need) => ({ need, way: this.#wayOf(need) }))
    const blocker = ways.find(({ way }) => way !== 'together' && way !== 'alone')
    if (blocker !== undefined) return () => this.#overcome(blocker, ways)
    for (const { need, way } of ways) {
      changes.guard(guardOf(need.key, need.state))
      if (way === 'together') {
        this.#flights.push(this.#lane(need.key).start(need.amount))
        this.#leaveLane(need.key)
      } else changes.write({ kind: 'put', key: need.key, value: Buffer.from(this.#isFar(need, 2) ? far : near) })
    }
    return undefined
  }

  /** Reports the outcome of the last admitted transaction. */
  settle(outcome: LaneOutcome): void {
    for (const land of this.#flights) land(outcome, this.#options.cache.revision)
    this.#flights = []
  }

  /** Ends all turns. An admitted transaction without a reported outcome counts as `unknown`. */
  end(): void {
    this.settle('unknown')
    for (const key of [...this.#admissions.keys()]) this.#leaveLane(key)
    this.#lanes.tidy(this.#used, this.#options.cache.revision)
  }

  /** Returns the limits that are set and to which the transaction adds usage. Adds guards that each organisation's limits do not change. */
  #needs(tables: RecordTables, changes: Metered): Need[] {
    const needs: Need[] = []
    if (!changes.isMetered) return needs
    for (const [root, amounts] of amountsOf(changes.growth)) {
      const limits = limitsOf(tables, root)
      if (limits === undefined) continue
      changes.guard(guardOf(quotaKey(root), tables.entry(quotaKey(root))))
      for (const [limit, amount] of amounts) {
        const max = limits[limit]
        if (max === undefined) continue
        const key = limitKey(root, limit)
        needs.push({ root, limit, amount, use: recordUse(tables, root, limit), max: max * unitOf(limit), key, state: tables.entry(key) })
      }
    }
    return needs
  }

  #wayOf(need: Need): Way {
    const { key, limit, amount, state } = need
    const holds = this.#admissions.has(key)
    const share = this.#share(limit)
    const isOpen = !isNear(state)
    if (isOpen && amount <= share && this.#isFar(need, 1)) {
      const lane = this.#lanes.find(key)
      if (lane === undefined) return 'together'
      if (!holds && lane.isTaken) return 'turn'
      if (lane.flying(this.#options.cache.revision) + amount <= share) return 'together'
      return holds ? 'room' : 'turn'
    }
    if (!holds) return 'turn'
    return isOpen ? 'narrow' : 'alone'
  }

  #share(limit: string): number {
    const { records, bytes } = this.#options.share
    return limit === recordBytesLimit ? bytes : records
  }

  /** True if the usage stays below the limit by `times` the amount that all processes can have under way. */
  #isFar({ use, amount, max, limit }: Need, times: number): boolean {
    return use + amount <= max - times * this.#options.processes * this.#share(limit)
  }

  async #overcome({ need, way }: QuotaStep, steps: readonly QuotaStep[]): Promise<void> {
    if (way === 'turn') return await this.#enterLanes(steps.filter((step) => step.way !== 'together').map((step) => step.need.key))
    if (way === 'narrow') return await this.#markNear(need)
    const lane = this.#lane(need.key)
    const forgetUnknown = lane.settleUnknown()
    if (forgetUnknown !== undefined) {
      // After the fence none of the transactions can commit any more. After the barrier the snapshot contains those that did.
      await this.#options.store.fence(this.#signal)
      await this.#options.cache.barrier(this.#signal)
      forgetUnknown()
    } else if (lane.hasLanded) await this.#options.cache.barrier(this.#signal)
    else await lane.changed(this.#signal)
  }

  /** Waits for these turns and no others. All callers take turns in the same order, so no two callers wait for each other. */
  async #enterLanes(keys: readonly string[]): Promise<void> {
    for (const key of [...this.#admissions.keys()]) this.#leaveLane(key)
    for (const key of [...keys].sort()) this.#admissions.set(key, await this.#lane(key).enter(this.#signal))
  }

  /** Marks the limit as near. From that commit on, each create that counts towards it writes its key. */
  async #markNear({ root, key, state }: Need): Promise<void> {
    const { store, cache } = this.#options
    const guards: Guard[] = [guardOf(key, state), { kind: 'exists', key: recordKey('Group', root) }]
    try {
      const outcome = await store.transact({ guards, writes: [{ kind: 'put', key, value: Buffer.from(near) }] }, this.#signal)
      if (outcome.committed) await cache.reached(outcome.revision, this.#signal)
      else await cache.barrier(this.#signal)
    } catch (error) {
      // The write may still commit at any time. That is harmless, because the next plan reads the current state.
      if (!(error instanceof StoreError && error.kind === 'indeterminate')) throw error
      await cache.barrier(this.#signal)
    }
  }

  async #catchUp(): Promise<void> {
    await this.#options.cache.barrier(this.#signal)
    this.#isCaughtUp = true
  }

  #lane(key: string): Lane {
    this.#used.add(key)
    return this.#lanes.of(key)
  }

  #leaveLane(key: string): void {
    this.#admissions.get(key)?.()
    this.#admissions.delete(key)
  }
}

function isNear(state: Entry | undefined): boolean {
  return state !== undefined && Buffer.from(state.value).toString() === near
}

function guardOf(key: string, entry: Entry | undefined): Guard {
  return entry === undefined ? { kind: 'absent', key } : { kind: 'unchanged', key, revision: entry.revision }
}

/** Returns the positive amounts that changes add, by organisation and limit. */
function amountsOf(growth: readonly Growth[]): Map<Uid, Map<string, number>> {
  const sums = new Map<Uid, Map<string, number>>()
  for (const { root, kind, records, bytes } of growth) {
    let amounts = sums.get(root)
    if (amounts === undefined) sums.set(root, (amounts = new Map<string, number>()))
    const own = recordLimits[kind]
    if (own !== undefined) amounts.set(own, (amounts.get(own) ?? 0) + records)
    amounts.set(recordBytesLimit, (amounts.get(recordBytesLimit) ?? 0) + bytes)
  }
  for (const [root, amounts] of sums) {
    for (const [limit, amount] of amounts) if (amount <= 0) amounts.delete(limit)
    if (amounts.size === 0) sums.delete(root)
  }
  return sums
}

/** Returns the numbers in units of the limit, rounded up. */
function inUnits({ limit, max, use, amount }: Need): { limit: string; max: number; use: number; amount: number } {
  const unit = unitOf(limit)
  return { limit, max: max / unit, use: Math.ceil(use / unit), amount: Math.ceil(amount / unit) }
}
