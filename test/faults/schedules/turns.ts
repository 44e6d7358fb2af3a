import type { Victim } from './action.ts'
import type { RunReport } from './run.ts'
import type { ScheduleName } from './schedule.ts'

/** One run of a schedule. */
export interface RunOrder {
  readonly name: ScheduleName
  /** A different seed in each turn. */
  readonly seed: number
  /** Number of remaining kills that all runs share; undefined if none are requested. */
  readonly stopAfterKills: number | undefined
}

/** The counted parts of a run; undefined if it was interrupted. */
export type RunResult = Pick<RunReport, 'kills' | 'killsOf' | 'checked' | 'violations'> | undefined

/** Options of sequential runs. */
export interface TurnsOptions {
  readonly names: readonly ScheduleName[]
  readonly seed: number
  /** If set, all schedules take turns until they made this many kills together. If absent, each runs once. */
  readonly stopAfterKills?: number | undefined
  /** Aborts when no further run is to start. */
  readonly signal: AbortSignal
  run(order: RunOrder): Promise<RunResult>
  /** Called after each run. */
  ended?(tally: Tally): void
}

/** The totals of several runs. */
export interface Tally {
  readonly runs: number
  /** Runs that found a violation or were interrupted. */
  readonly failed: readonly RunOrder[]
  readonly kills: number
  readonly killsOf: Readonly<Record<Victim, number>>
  /** Kills by schedule, in the order of the first turn. */
  readonly killsIn: ReadonlyMap<ScheduleName, number>
  /** Number of operations that the checker explained. */
  readonly checked: number
}

const nothing: Tally = { runs: 0, failed: [], kills: 0, killsOf: { member: 0, leader: 0, process: 0 }, killsIn: new Map(), checked: 0 }

function added(tally: Tally, order: RunOrder, result: RunResult): Tally {
  const { kills = 0, killsOf = nothing.killsOf, checked = 0, violations = ['it broke off'] } = result ?? {}
  return {
    runs: tally.runs + 1,
    failed: violations.length > 0 ? [...tally.failed, order] : tally.failed,
    kills: tally.kills + kills,
    killsOf: {
      member: tally.killsOf.member + killsOf.member,
      leader: tally.killsOf.leader + killsOf.leader,
      process: tally.killsOf.process + killsOf.process,
    },
    killsIn: new Map([...tally.killsIn, [order.name, (tally.killsIn.get(order.name) ?? 0) + kills]]),
    checked: tally.checked + checked,
  }
}

/**
 * Runs schedules one after the other. A failed one has no further turn. A turn without a kill is the last one; then there were fewer kills than requested.
 * Rejects like `run`.
 */
export async function runInTurn({ names, seed, stopAfterKills, signal, run, ended }: TurnsOptions): Promise<Tally> {
  let tally = nothing
  const isOver = (): boolean => signal.aborted || tally.kills >= (stopAfterKills ?? Infinity)
  for (let turn = 0; ; turn += 1) {
    const before = tally.kills
    const failed = new Set(tally.failed.map(({ name }) => name))
    for (const name of names.filter((each) => !failed.has(each))) {
      const order = { name, seed: seed + turn, stopAfterKills: stopAfterKills === undefined ? undefined : stopAfterKills - tally.kills }
      tally = added(tally, order, await run(order))
      ended?.(tally)
      if (isOver()) return tally
    }
    if (stopAfterKills === undefined || tally.kills === before) return tally
  }
}
