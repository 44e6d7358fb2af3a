import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { isReached, type Row } from '../rows/row.ts'
import { chart } from './chart.ts'
import { figure, goalText, mark } from './table.ts'

const root = join(import.meta.dirname, '..', '..')
const start = '<!-- figures: npm run bench -- --save -->'
const end = '<!-- end of figures -->'

/** What the figures depend on. */
export interface Circumstances {
  readonly measuredAt: string
  readonly cores: number
  readonly node: string
  readonly platform: string
  readonly records: number
}

function rounded(value: number): number | null {
  return Number.isFinite(value) ? Number(value.toPrecision(4)) : null
}

/** Every figure as JSON text. */
export function resultsJson(rows: readonly Row[], circumstances: Circumstances): string {
  const shown = rows.map((row) => ({ ...row, reached: isReached(row) ?? null }))
  return `${JSON.stringify({ ...circumstances, rows: shown }, (_, value: unknown) => (typeof value === 'number' ? rounded(value) : value), 2)}\n`
}

/** A Markdown table, aligned as the formatter wants it. */
function markdown(rows: readonly Row[]): string {
  const cells = [
    ['what', 'measured', 'by CPU time', 'goal', ''],
    ...rows.map((row) => [
      row.title,
      `${figure(row.value)} ${row.unit}`,
      row.cpu === undefined ? '' : `${figure(row.cpu)} ${row.unit}`,
      goalText(row.goal, row.unit),
      mark(row),
    ]),
  ]
  const widths = [0, 1, 2, 3, 4].map((column) => Math.max(3, ...cells.map((line) => line[column]?.length ?? 0)))
  const lines = cells.map((line) => `| ${line.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join(' | ')} |`)
  return [lines[0], `| ${widths.map((size) => '-'.repeat(size)).join(' | ')} |`, ...lines.slice(1)].join('\n')
}

/** Writes bench/results/latest.json, docs/performance.svg and the figures in docs/performance.md. */
export async function save(rows: readonly Row[], circumstances: Circumstances): Promise<void> {
  await mkdir(join(root, 'bench', 'results'), { recursive: true })
  await writeFile(join(root, 'bench', 'results', 'latest.json'), resultsJson(rows, circumstances))
  const { measuredAt, cores, node, platform, records } = circumstances
  const subtitle = `${measuredAt.slice(0, 10)}, ${cores} cores, Node ${node}, ${platform}, up to ${records.toLocaleString('en')} records; right of the line is better than the goal`
  await writeFile(join(root, 'docs', 'performance.svg'), chart(rows, subtitle))
  const page = join(root, 'docs', 'performance.md')
  const text = await readFile(page, 'utf8')
  const [before, after] = [text.split(start)[0], text.split(end)[1]]
  if (before === undefined || after === undefined) throw new Error(`docs/performance.md lacks ${start} and ${end}`)
  const caption = `Measured on ${measuredAt.slice(0, 10)} with ${cores} cores, Node ${node}, ${platform}, up to ${records.toLocaleString('en')} records.`
  await writeFile(page, `${before}${start}\n\n${caption}\n\n${markdown(rows)}\n\n${end}${after}`)
}
