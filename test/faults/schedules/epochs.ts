import { setTimeout as delay } from 'node:timers/promises'
import { cascadePrefix } from '../../../src/store/keys.ts'
import type { Store } from '../../../src/store/store.ts'
import type { Installation } from '../cluster/installation.ts'
import { checkHistory } from '../history/check-history.ts'
import { finalAudit } from '../history/audit/final-audit.ts'
import { History } from '../history/history.ts'
import { startWorkload, type Workload } from '../history/workload.ts'

/** What is worked on, and how. */
export interface EpochsOptions {
  readonly installation: Installation
  readonly seed: number
  readonly clients: number
  /** What is kept for some time only may be gone early: no creation is repeated then, and missing events are no fault. */
  readonly isExpired: boolean
  /** Tokens may end at any time. */
  readonly clocksJump: boolean
  /** Something that must never be so. */
  readonly violation: (text: string) => void
}

/** How long an embedded store may take to sweep what hangs on deleted records. */
const cascadeMs = 30_000

/** The workload, in epochs: each has a history of its own, which is checked when it ends. */
export class Epochs {
  readonly histories: History[] = []
  /** Operations that the checker explained. */
  checked = 0
  /** Operations with an unknown outcome: these are what faults cause. */
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

  /** Writes that were acknowledged. */
  get acknowledged(): number {
    return this.#endedAcknowledged + (this.#workload?.acknowledged ?? 0)
  }

  /** Starts the workload with a fresh history. */
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

  /** Ends an epoch, which checks it, and starts the next one; `between` is done between the two. */
  async next(between: () => Promise<void> = () => Promise.resolve()): Promise<void> {
    await this.end()
    await between()
    // The look at an embedded store ended its process.
    await Promise.all(this.#options.installation.apis.filter((api) => !api.running).map((api) => api.restart()))
    this.begin()
  }

  /** Stops the workload, where one runs, and checks its history and the store. All processes must be ready, and no fault may stand. */
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

  /** Stops a workload that still runs, unchecked: for a run that breaks off. */
  async abandon(): Promise<void> {
    const workload = this.#workload
    this.#workload = undefined
    // What it has seen is of no interest any more.
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

  /** An embedded store is its process's alone: that is killed for a look, and started again while sweeps are left. */
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
