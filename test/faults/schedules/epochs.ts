import { setTimeout as delay } from 'node:timers/promises'
import { cascadePrefix } from '../../../src/store/keys.ts'
import type { Store } from '../../../src/store/store.ts'
import type { Installation } from '../cluster/installation.ts'
import { checkHistory } from '../history/check-history.ts'
import { finalAudit } from '../history/audit/final-audit.ts'
import { History } from '../history/history.ts'
import { startWorkload, type Workload } from '../history/workload.ts'

/** The installation and options of a workload. */
export interface EpochsOptions {
  readonly installation: Installation
  readonly seed: number
  readonly clients: number
  /** True if temporary data may expire early: then no create is repeated, and missing events are not reported. */
  readonly isExpired: boolean
  /** Tokens may end at any time. */
  readonly clocksJump: boolean
  /** Reports a violation. */
  readonly violation: (text: string) => void
}

/** Maximum time in milliseconds for an embedded store to sweep dependents of deleted records. */
const cascadeMs = 30_000

/** The workload in epochs: each has its own history, which is checked at its end. */
export class Epochs {
  readonly histories: History[] = []
  /** Number of operations that the checker explained. */
  checked = 0
  /** Number of operations with an unknown outcome, caused by faults. */
  unknown = 0
  longestGapMs = 0
  readonly #options: EpochsOptions
  #workload: Workload | undefined
  #endedOperations = 0
  #endedAcknowledged = 0

  constructor(options: EpochsOptions) {
    this.#options = options
  }

  get operations(): number {
    return this.#endedOperations + (this.#workload?.ended ?? 0)
  }

  /** Number of acknowledged writes. */
  get acknowledged(): number {
    return this.#endedAcknowledged + (this.#workload?.acknowledged ?? 0)
  }

  /** Starts the workload with a new history. */
  begin(): void {
    const { installation, seed, clients, isExpired, clocksJump } = this.#options
    const history = new History()
    this.histories.push(history)
    this.#workload = startWorkload({
      endpoints: installation.apis.map((api) => api.url),
      token: () => installation.token(),
      seed: seed + 1_000_003 * (this.histories.length - 1),
      clients,
      history,
      repeatsCreations: !isExpired,
      hasGuest: !clocksJump,
    })
  }

  /** Ends an epoch, checks it, and starts the next one. `between` runs between the two. */
  async next(between: () => Promise<void> = () => Promise.resolve()): Promise<void> {
    await this.end()
    await between()
    // Opening an embedded store required to kill its process.
    await Promise.all(this.#options.installation.apis.filter((api) => !api.running).map((api) => api.restart()))
    this.begin()
  }

  /** Stops a running workload, and checks its history and the store. All processes must be ready, and no fault may be active. */
  async end(): Promise<void> {
    const workload = this.#workload
    const history = this.histories.at(-1)
    if (workload === undefined || history === undefined) return
    await this.#attempt('workload', async () => {
      const { longestGapMs, outcomes } = await workload.stop()
      this.unknown += outcomes.unknown
      this.longestGapMs = Math.max(this.longestGapMs, longestGapMs)
      await workload.settle()
    })
    this.#endedOperations += workload.ended
    this.#endedAcknowledged += workload.acknowledged
    this.#workload = undefined
    await this.#attempt('audit', async () => {
      const { errors: faults } = await this.#withStore((store) => finalAudit({ store, history, isExpired: this.#options.isExpired }))
      for (const fault of faults) this.#options.violation(`audit: ${fault}`)
    })
    await this.#attempt('checker', async () => {
      const conditionStatus = await checkHistory(history)
      this.checked += conditionStatus.checked
      for (const { partition, info } of conditionStatus.failures) this.#options.violation(`history: ${partition}: ${info}`)
      for (const partition of conditionStatus.unknown) this.#options.violation(`history: ${partition}: could not be decided in time`)
    })
  }

  /** Stops a running workload without a check, for an interrupted run. */
  async abandon(): Promise<void> {
    const workload = this.#workload
    this.#workload = undefined
    // Its observations no longer matter.
    await workload?.stop().catch(() => undefined)
  }

  async #attempt(name: string, work: () => Promise<void>): Promise<void> {
    try {
      await work()
    } catch (error) {
      this.#options.violation(`${name}: ${error instanceof Error ? error.message : String(error)}`)
    }
  }

  async #withStore<T>(work: (store: Store) => Promise<T>): Promise<T> {
    const store = await this.#openSwept()
    try {
      return await work(store)
    } finally {
      await store.close()
    }
  }

  /** Opens an embedded store, which only one process can use: kills that process, and restarts it while sweeps are pending. */
  async #openSwept(): Promise<Store> {
    const { installation } = this.#options
    const deadline = performance.now() + cascadeMs
    for (;;) {
      if (installation.kind === 'embedded') await Promise.all(installation.apis.map((api) => api.kill()))
      const store = installation.openStore()
      if (installation.kind !== 'embedded' || performance.now() > deadline) return store
      const { entries } = await store.range({ prefix: cascadePrefix, limit: 1 }, AbortSignal.timeout(5_000))
      if (entries.length === 0) return store
      await store.close()
      await Promise.all(installation.apis.map((api) => api.restart()))
      await delay(500)
    }
  }
}
