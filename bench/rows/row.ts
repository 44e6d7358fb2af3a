import type { Comparison, Measured } from '../measure.ts'
import type { Environment } from '../environment.ts'

/** The goal of a row. */
export interface Goal {
  readonly atLeast?: number
  readonly atMost?: number
}

/** One row of the results. */
export interface Row {
  readonly id: string
  readonly title: string
  /** Unit of `value`: `x`, `ms`, `s`, `B`, `%`, ... */
  readonly unit: string
  readonly value: number
  /** The same ratio by the servers' processor time per request, if measured. */
  readonly cpu?: number
  readonly goal?: Goal
  /** The underlying measurements, for the screen and the file. */
  readonly measured: readonly Measured[]
  readonly note?: string
}

/** A function that measures one row, and the row's id. */
export interface RowSource {
  readonly id: string
  measure(environment: Environment): Promise<Row>
}

/** A group of related rows. */
export interface RowGroup {
  readonly name: string
  /** Description for `--help`. */
  readonly about: string
  /** The program that the rows need; absent if none. Without it, they are skipped. */
  readonly needs?: 'etcd' | 'kube-apiserver' | 'registry'
  readonly rows: readonly RowSource[]
}

/** Returns true if the goal is reached; undefined without a goal. */
export function isReached(row: Row): boolean | undefined {
  if (row.goal === undefined) return undefined
  const { atLeast = -Infinity, atMost = Infinity } = row.goal
  return row.value >= atLeast && row.value <= atMost
}

/** Returns the row of a comparison: how many times faster the first candidate is than the second. */
export function ratioRow(row: Pick<Row, 'id' | 'title' | 'goal' | 'note'>, comparison: Comparison): Row {
  return { ...row, unit: 'x', value: comparison.throughput, cpu: comparison.cpu, measured: comparison.measured }
}

/** Returns the row of a cost: how many times more processor time the first candidate takes than the second. */
export function costRow(row: Pick<Row, 'id' | 'title' | 'goal' | 'note'>, comparison: Comparison): Row {
  return { ...row, unit: 'x', value: 1 / comparison.throughput, cpu: 1 / comparison.cpu, measured: comparison.measured }
}
