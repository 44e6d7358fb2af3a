import { isReached, type Row } from '../rows/row.ts'
import { Svg } from './svg.ts'
import { goalText, mark, quantity } from './table.ts'

const width = 980
const margin = 24
const labelWidth = 410
const valueWidth = 190
const barHeight = 16
const lineHeight = 30
const headHeight = 84
/** The scale of the chart: from a tenth of the goal to ten times the goal. */
const decades = 1
const ticks = [0.1, 0.2, 0.5, 1, 2, 5, 10]

const styles = [
  '.page { fill: #ffffff; stroke: #d0d7de; }',
  '.reached { fill: #0969da; }',
  '.missed { fill: #bc4c00; }',
  '.grid { stroke: #d0d7de; }',
  '.goal { stroke: #1f2328; stroke-width: 2; }',
  'text { fill: #1f2328; }',
  '.small { font-size: 11.5px; fill: #57606a; }',
  '.head { font-size: 16px; font-weight: 600; }',
]
const darkStyles = [
  '.page { fill: #0d1117; stroke: #30363d; }',
  '.reached { fill: #58a6ff; }',
  '.missed { fill: #f0883e; }',
  '.grid { stroke: #30363d; }',
  '.goal { stroke: #e6edf3; }',
  'text { fill: #e6edf3; }',
  '.small { fill: #9198a1; }',
]

/** Returns the value of a row in relation to its goal: 1 means that the goal is just reached. */
function score({ value, goal }: Row): number {
  if (goal?.atLeast !== undefined) return value / goal.atLeast
  return goal?.atMost === undefined ? NaN : goal.atMost / value
}

function shortened(text: string): string {
  const longest = 62
  return text.length <= longest ? text : `${text.slice(0, longest - 1)}…`
}

/** Returns an SVG chart of all rows with a goal: bars on one logarithmic scale, with the goal in the middle. */
export function chart(rows: readonly Row[], subtitle: string): string {
  const shown = rows.filter((row) => row.goal !== undefined)
  const left = margin + labelWidth
  const plotWidth = width - left - valueWidth - margin
  const height = headHeight + shown.length * lineHeight + 44
  const bottom = height - 40
  const placeOf = (times: number): number => {
    const clamped = Math.min(10 ** decades, Math.max(10 ** -decades, times))
    return left + (plotWidth * (Math.log10(clamped) + decades)) / (2 * decades)
  }
  const svg = new Svg()
  svg.rect({ x: 0.5, y: 0.5, width: width - 1, height: height - 1, class: 'page', rx: 6 })
  svg.text('Measured, in terms of the goal', { x: margin, y: 34, class: 'head' })
  svg.text(subtitle, { x: margin, y: 56, class: 'small' })
  for (const tick of ticks) {
    svg.line({ x1: placeOf(tick), y1: headHeight - 8, x2: placeOf(tick), y2: bottom, class: tick === 1 ? 'goal' : 'grid' })
    svg.text(tick === 1 ? 'goal' : `${tick}x`, { x: placeOf(tick), y: bottom + 18, class: 'small', anchor: 'middle' })
  }
  for (const [at, row] of shown.entries()) {
    const y = headHeight + at * lineHeight
    const end = placeOf(score(row))
    const goal = placeOf(1)
    svg.text(shortened(row.title), { x: left - 12, y: y + barHeight - 3, anchor: 'end', class: 'label' })
    svg.rect({ x: Math.min(end, goal), y, width: Math.max(1, Math.abs(end - goal)), height: barHeight, class: isReached(row) === true ? 'reached' : 'missed' })
    svg.text(`${quantity(row.value, row.unit)}, ${mark(row)}`, { x: width - margin - valueWidth + 8, y: y + 7 })
    svg.text(`goal ${goalText(row.goal, row.unit)}`, { x: width - margin - valueWidth + 8, y: y + 20, class: 'small' })
  }
  const description = shown.map((row) => `${row.title}: ${quantity(row.value, row.unit)}, goal ${goalText(row.goal, row.unit)}, ${mark(row)}.`).join(' ')
  return svg.document({
    width,
    height,
    title: 'Measured performance in terms of the goals',
    description,
    styles: [...styles, '.label { font-size: 12px; }'],
    darkStyles,
  })
}
