import type { Victim } from './action.ts'
import type { RunReport } from './run.ts'
import type { ScheduleName } from './schedule.ts'

/** One run of a schedule, among others. */
export interface RunOrder {
  readonly name: ScheduleName
  /** Another one in each turn. */
  readonly seed: number
  /** How many kills are left of those that all runs share; undefined where none are asked for. */
  readonly stopAfterKills: number | undefined
}

/** What counts of a run here; undefined where it broke off. */
export type RunResult = Pick<RunReport, 'kills' | 'killsOf' | 'checked' | 'violations'> | undefined

/** How schedules are run one after the other. */
export interface TurnsOptions {
  readonly names: readonly ScheduleName[]
  readonly seed: number
  /** All schedules are run in turn, again and again, until they made so many kills together; once, where this is absent. */
  readonly stopAfterKills?: number | undefined
  /** Aborts when no further run is to be begun. */
  readonly signal: AbortSignal
  run(order: RunOrder): Promise<RunResult>
  /** Called after each run. */
  ended?(tally: Tally): void
}

/** What runs have come to together. */
export interface Tally {
  readonly runs: number
  /** Where something was wrong, or which broke off: none where all is well. */
  readonly failed: readonly RunOrder[]
  readonly kills: number
  readonly killsOf: Readonly<Record<Victim, number>>
  /** Kills by schedule, in the order of the first turn. */
  readonly killsIn: ReadonlyMap<ScheduleName, number>
  /** Operations that the checker explained. */
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
 * Runs schedules one after the other. A failed one has no further turn, and a turn without a kill is the last one.
 * Then there were fewer kills than requested. Rejects as `run` does.
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
