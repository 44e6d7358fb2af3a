import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { startInstallation, type Installation } from '../cluster/installation.ts'
import { until } from '../cluster/until.ts'
import { allLocks, type ActionContext, type Heal, type Victim } from './action.ts'
import { actions, type ActionName } from './actions.ts'
import { Epochs } from './epochs.ts'
import { FaultOrder } from './fault-order.ts'
import { Locks } from './locks.ts'
import { seededRandom, type SeededRandom } from './random.ts'
import { namesIn, type Schedule, type Weights } from './schedule.ts'

/** Maximum time in milliseconds for which all faults of a lane together may block the workload's writes. */
const progressMs = 120_000
/** Maximum time in milliseconds until everything works after the last fault. */
const recoveryMs = 60_000

/** Time in milliseconds after which answers are checked and a new history begins. */
const roundMs = 120_000

/** Options of a run. */
export interface RunOptions {
  readonly schedule: Schedule
  readonly seed: number
  readonly durationMs: number
  /** Ends the run early after this many kills. */
  readonly stopAfterKills?: number | undefined
  /** Ends the run early after each kind of fault was made. */
  readonly stopAfterEachKind?: boolean
  /** Keeps data and logs also if everything went well. */
  readonly keep?: boolean
  readonly signal: AbortSignal
  /** Called every few seconds. */
  readonly onProgress?: (progress: Progress) => void
}

/** The progress of a run. */
export interface Progress {
  readonly seconds: number
  readonly operations: number
  /** Number of acknowledged writes. */
  readonly acknowledged: number
  readonly faults: number
  readonly kills: number
}

/** The result of a run. */
export interface RunReport extends Progress {
  /** Violations; empty if everything went well. */
  readonly violations: readonly string[]
  readonly killsOf: Readonly<Record<Victim, number>>
  readonly faultsOf: Readonly<Partial<Record<ActionName, number>>>
  /** Kinds of faults in the schedule that the run did not make. */
  readonly notMade: readonly ActionName[]
  /** Number of operations that the checker explained. */
  readonly checked: number
  /** Number of operations with an unknown outcome. */
  readonly unknown: number
  /** Longest time without an acknowledged write. */
  readonly longestGapMs: number
  /** Faults that this machine can't make, with the reason. */
  readonly leftOut: readonly string[]
  /** Folder of data, logs and histories; absent if it was removed. */
  readonly directory: string | undefined
}

/**
 * Starts an installation, runs a workload while faults are made and healed, and checks all answers. Stops everything that it started. Rejects if it can't be
 * started, and with the signal's reason.
 */
export async function runSchedule(asked: RunOptions): Promise<RunReport> {
  const { schedule, leftOut } = await withoutMissing(asked.schedule)
  const options = { ...asked, schedule }
  const installation = await startInstallation({ kind: schedule.kind, roomBytes: schedule.roomBytes })
  let keep = true
  try {
    const report = await new Run(options, installation).run()
    keep = report.violations.length > 0 || options.keep === true
    return { ...report, leftOut, directory: keep ? installation.directory : undefined }
  } catch (error) {
    keep = !options.signal.aborted || options.keep === true
    throw keep ? new Error(`the run broke off, see ${installation.directory}`, { cause: error }) : error
  } finally {
    await installation.stop({ keep })
  }
}

/** Returns the schedule without the faults that this machine can't make. */
async function withoutMissing(schedule: Schedule): Promise<{ schedule: Schedule; leftOut: readonly string[] }> {
  const leftOut = new Map<string, string>()
  for (const name of namesIn(schedule.lanes)) {
    const reason = await actions[name].missing?.()
    if (reason !== undefined) leftOut.set(name, reason)
  }
  const lanes = schedule.lanes.map((lane) => Object.fromEntries(Object.entries(lane).filter(([name]) => !leftOut.has(name))))
  const { roomBytes, ...rest } = schedule
  const isSmall = roomBytes !== undefined && namesIn(lanes).some((name) => actions[name].littleRoom)
  return {
    schedule: { ...rest, ...(isSmall ? { roomBytes } : {}), lanes: lanes.filter((lane) => Object.keys(lane).length > 0) },
    leftOut: [...leftOut].map(([name, reason]) => `${name}: ${reason}`),
  }
}

class Run {
  readonly #options: RunOptions
  readonly #installation: Installation
  readonly #epochs: Epochs
  readonly #locks = new Locks()
  readonly #violations: string[] = []
  readonly #killsOf: Record<Victim, number> = { member: 0, leader: 0, process: 0 }
  readonly #faultsOf: Partial<Record<ActionName, number>> = {}
  readonly #startedAt = performance.now()
  readonly #dead = new Set<string>()
  /** True when no more faults are made, so that the watch for exits can stop. */
  #over = false

  constructor(options: RunOptions, installation: Installation) {
    this.#options = options
    this.#installation = installation
    const { clients, lanes } = options.schedule
    const isExpired = namesIn(lanes).some((name) => actions[name].expires)
    const clocksJump = namesIn(lanes).some((name) => actions[name].jumps)
    this.#epochs = new Epochs({ installation, seed: options.seed, clients, isExpired, clocksJump, violation: (text) => this.#violate(text) })
  }

  async run(): Promise<Omit<RunReport, 'directory' | 'leftOut'>> {
    const { schedule, onProgress, signal } = this.#options
    const ticker = setInterval(() => onProgress?.(this.#progress()), 5_000)
    try {
      this.#epochs.begin()
      await this.#progressed(1)
      const lanes = schedule.lanes.map((weights, index) => this.#lane(weights, index))
      const watching = this.#watchDeaths()
      await Promise.all([...lanes, this.#checkNowAndThen()])
      this.#over = true
      await watching
      signal.throwIfAborted()
      await this.#recover()
      await this.#epochs.end()
      this.#noteDeaths()
      if (this.#violations.length > 0) await this.#keepHistories()
      return this.#report()
    } finally {
      this.#over = true
      clearInterval(ticker)
      await this.#epochs.abandon()
    }
  }

  get #kills(): number {
    return Object.values(this.#killsOf).reduce((sum, count) => sum + count, 0)
  }

  #progress(): Progress {
    const { operations, acknowledged } = this.#epochs
    const faults = Object.values(this.#faultsOf).reduce((sum, count) => sum + count, 0)
    return { seconds: (performance.now() - this.#startedAt) / 1000, operations, acknowledged, faults, kills: this.#kills }
  }

  #report(): Omit<RunReport, 'directory' | 'leftOut'> {
    const { checked, unknown, longestGapMs } = this.#epochs
    const found = { violations: this.#violations, checked, unknown, longestGapMs }
    return { ...this.#progress(), ...found, killsOf: this.#killsOf, faultsOf: this.#faultsOf, notMade: this.#notMade() }
  }

  #notMade(): ActionName[] {
    return namesIn(this.#options.schedule.lanes).filter((name) => this.#faultsOf[name] === undefined)
  }

  #violate(text: string): void {
    this.#violations.push(`${((performance.now() - this.#startedAt) / 1000).toFixed(1)} s: ${text}`)
  }

  /** Returns whether no more faults are to be made. */
  #ended(): boolean {
    const { durationMs, stopAfterKills = Infinity, stopAfterEachKind = false, signal } = this.#options
    if (signal.aborted || this.#violations.length > 0 || performance.now() - this.#startedAt >= durationMs) return true
    return this.#kills >= stopAfterKills || (stopAfterEachKind && this.#notMade().length === 0)
  }

  /** Makes one fault after the other. A fault that can't be healed, or a workload that stops writing, is a violation. */
  async #lane(weights: Weights, index: number): Promise<void> {
    const random = seededRandom(`${this.#options.seed}/${index}`)
    const order = new FaultOrder(weights, random)
    while (!this.#ended()) {
      const name = order.next()
      try {
        if (await this.#fault(name, random)) order.made(name)
      } catch (error) {
        if (this.#options.signal.aborted) return
        this.#violate(`${name}: ${describe(error)}`)
      }
    }
  }

  /** Checks long runs in parts, each while no fault is active. */
  async #checkNowAndThen(): Promise<void> {
    const { signal } = this.#options
    while (!this.#ended()) {
      const dueAt = performance.now() + roundMs
      while (!this.#ended() && performance.now() < dueAt) await delay(200)
      if (this.#ended()) return
      const release = await this.#locks.acquire(allLocks)
      try {
        if (!this.#ended()) await this.#epochs.next()
      } catch (error) {
        if (!signal.aborted) this.#violate(`between two rounds: ${describe(error)}`)
      } finally {
        release()
      }
    }
  }

  /** Makes a fault and ends it. Returns false if it could not be made. */
  async #fault(name: ActionName, random: SeededRandom): Promise<boolean> {
    const { schedule, signal } = this.#options
    const { locks, holdMs, apply } = actions[name]
    const release = await this.#locks.acquire(locks)
    let heal: Heal | undefined
    try {
      if (this.#ended()) return false
      heal = await apply(this.#context(random))
      if (heal !== undefined) {
        this.#faultsOf[name] = (this.#faultsOf[name] ?? 0) + 1
        await delay(random.between(...holdMs), undefined, { signal })
        await heal()
      }
    } finally {
      release()
    }
    await this.#progressed(schedule.progressWrites)
    return heal !== undefined
  }

  #context(random: SeededRandom): ActionContext {
    return {
      installation: this.#installation,
      random,
      signal: this.#options.signal,
      killed: (victim) => (this.#killsOf[victim] += 1),
      progress: (writes) => this.#progressed(writes),
      violation: (text) => this.#violate(text),
      betweenHistories: (work) => this.#epochs.next(work),
    }
  }

  async #progressed(writes: number): Promise<void> {
    const goal = this.#epochs.acknowledged + writes
    const reached = (): boolean => this.#epochs.acknowledged >= goal || this.#violations.length > 0
    await until(reached, { withinMs: progressMs, what: `${writes} writes are acknowledged`, signal: this.#options.signal })
  }

  /** Reports a process that ends without being killed as a violation. */
  async #watchDeaths(): Promise<void> {
    while (!this.#over && !this.#noteDeaths()) await delay(100)
  }

  /** Returns whether a process has ended by itself. */
  #noteDeaths(): boolean {
    const { apis, etcd } = this.#installation
    const dead = [...apis, ...(etcd?.members ?? [])].filter((each) => each.died && !this.#dead.has(each.name))
    for (const { name } of dead) {
      this.#dead.add(name)
      this.#violate(`${name} has ended by itself`)
    }
    return this.#dead.size > 0
  }

  /** Expects that everything serves again without help after the last fault. */
  async #recover(): Promise<void> {
    const { network, apis, etcd } = this.#installation
    network.heal()
    try {
      const looks = [...apis.map((api) => () => api.isReady()), ...(etcd?.members ?? []).map((member) => () => member.isHealthy())]
      const well = async (): Promise<boolean> => (await Promise.all(looks.map((look) => look()))).every((answer) => answer)
      await until(well, { withinMs: recoveryMs, what: 'everything is well again', everyMs: 100 })
    } catch (error) {
      this.#violate(describe(error))
    }
  }

  async #keepHistories(): Promise<void> {
    for (const [index, history] of this.#epochs.histories.entries()) {
      await writeFile(join(this.#installation.directory, `history-${index}.jsonl`), history.toJsonLines())
    }
  }
}

/** Returns an error and its causes in one line. */
export function describe(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  return error.cause === undefined ? error.message : `${error.message}: ${describe(error.cause)}`
}
