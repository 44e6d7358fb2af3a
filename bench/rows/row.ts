import type { Comparison, Measured } from '../measure.ts'
import type { Environment } from '../environment.ts'

/** What a row is to reach. */
export interface Goal {
  readonly atLeast?: number
  readonly atMost?: number
}

/** One line of the table. */
export interface Row {
  readonly id: string
  readonly title: string
  /** What `value` counts: `x`, `ms`, `s`, `B`, `%`, ... */
  readonly unit: string
  readonly value: number
  /** The same ratio by processor time of the servers per request, where there is one. */
  readonly cpu?: number
  readonly goal?: Goal
  /** What was measured, for the screen and the file. */
  readonly measured: readonly Measured[]
  readonly note?: string
}

/** Measures one row. */
export interface RowSource {
  readonly id: string
  measure(environment: Environment): Promise<Row>
}

/** Rows that belong together. */
export interface RowGroup {
  readonly name: string
  /** What `--help` says of it. */
  readonly about: string
  /** The part without which it is left out. */
  readonly needs: 'etcd' | 'kube-apiserver' | 'registry'
  readonly rows: readonly RowSource[]
}

/** True where the goal is met. */
export function isReached(row: Row): boolean | undefined {
  if (row.goal === undefined) return undefined
  const { atLeast = -Infinity, atMost = Infinity } = row.goal
  return row.value >= atLeast && row.value <= atMost
}

/** A row of a comparison: how many times faster the first is. */
export function ratioRow(row: Pick<Row, 'id' | 'title' | 'goal' | 'note'>, comparison: Comparison): Row {
  return { ...row, unit: 'x', value: comparison.throughput, cpu: comparison.cpu, measured: comparison.measured }
}

/** A row of cost: how many times more the first takes than the second. */
export function costRow(row: Pick<Row, 'id' | 'title' | 'goal' | 'note'>, comparison: Comparison): Row {
  return { ...row, unit: 'x', value: 1 / comparison.throughput, cpu: 1 / comparison.cpu, measured: comparison.measured }
}
