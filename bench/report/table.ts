import { isReached, type Goal, type Row } from '../rows/row.ts'
import type { Measured } from '../measure.ts'

/** Formats a figure with three significant digits, without an exponent. */
export function figure(value: number): string {
  if (!Number.isFinite(value)) return '-'
  if (Math.abs(value) >= 100) return Math.round(value).toLocaleString('en')
  return String(Number(value.toPrecision(3)))
}

/** Formats a value with its unit, as `0.6 x`. The unit may be empty. */
export function quantity(value: number, unit: string): string {
  return unit === '' ? figure(value) : `${figure(value)} ${unit}`
}

/** Formats a goal, as `at least 0.6 x`. */
export function goalText(goal: Goal | undefined, unit: string): string {
  if (goal?.atLeast !== undefined) return `at least ${quantity(goal.atLeast, unit)}`
  return goal?.atMost === undefined ? '' : `at most ${quantity(goal.atMost, unit)}`
}

/** Returns the word that says whether a row reaches its goal. */
export function mark(row: Row): string {
  const reached = isReached(row)
  return reached === undefined ? '' : reached ? 'reached' : 'missed'
}

function measuredLine({ name, perSecond, cpuMicros, p50, p99, classes, generatorBusy }: Measured): string {
  const byClass = Object.entries(classes).map(([requestClass, at]) => `${requestClass} ${figure(at.p50)}/${figure(at.p99)}`)
  const latencies = `p50/p99 ${figure(p50)}/${figure(p99)} ms${byClass.length === 0 ? '' : ` (${byClass.join(', ')})`}`
  return `    ${name.padEnd(28)}${figure(perSecond).padStart(8)}/s ${figure(cpuMicros).padStart(8)} us CPU  ${latencies}, generator ${figure(generatorBusy * 100)} %`
}

/** Returns the text of one row for the screen, followed by its measurements. */
export function rowText(row: Row): string {
  const cpu = row.cpu === undefined ? '' : `  (by CPU ${quantity(row.cpu, row.unit)})`
  const head = `${mark(row).padEnd(8)}${row.title}: ${quantity(row.value, row.unit)}${cpu}`
  const goal = goalText(row.goal, row.unit)
  return [head + (goal === '' ? '' : `, goal ${goal}`), ...row.measured.map(measuredLine), ...(row.note === undefined ? [] : [`    ${row.note}`])].join('\n')
}

/** Returns the table that is printed at the end. */
export function table(rows: readonly Row[]): string {
  const cells = rows.map((row) => [
    row.title,
    quantity(row.value, row.unit),
    row.cpu === undefined ? '' : quantity(row.cpu, row.unit),
    goalText(row.goal, row.unit),
    mark(row),
  ])
  const all = [['', 'measured', 'by CPU time', 'goal', ''], ...cells]
  const widths = [0, 1, 2, 3, 4].map((column) => Math.max(...all.map((line) => line[column]?.length ?? 0)))
  const lines = all.map((line) => line.map((cell, column) => (column === 0 ? cell.padEnd(widths[0] ?? 0) : cell.padStart(widths[column] ?? 0))).join('  '))
  return lines.map((line) => line.trimEnd()).join('\n')
}
