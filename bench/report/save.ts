import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { isReached, type Row } from '../rows/row.ts'
import { chart } from './chart.ts'
import { goalText, mark, quantity } from './table.ts'

const root = join(import.meta.dirname, '..', '..')
const resultsFile = join(root, 'bench', 'results', 'latest.json')
const start = '<!-- figures: npm run bench -- --save -->'
const end = '<!-- end of figures -->'

/** The conditions of a measurement. */
export interface Circumstances {
  readonly measuredAt: string
  readonly cores: number
  readonly node: string
  readonly platform: string
}

function rounded(value: number): number | null {
  return Number.isFinite(value) ? Number(value.toPrecision(4)) : null
}

/** Returns all figures as JSON text. */
export function resultsJson(rows: readonly Row[], circumstances: Circumstances): string {
  const shown = rows.map((row) => ({ ...row, reached: isReached(row) ?? null }))
  return `${JSON.stringify({ ...circumstances, rows: shown }, (_, value: unknown) => (typeof value === 'number' ? rounded(value) : value), 2)}\n`
}

/** Returns a Markdown table, aligned like the formatter does. */
function markdownTable(cells: readonly (readonly string[])[]): string {
  const widths = (cells[0] ?? []).map((_, column) => Math.max(3, ...cells.map((line) => line[column]?.length ?? 0)))
  const lines = cells.map((line) => `| ${line.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join(' | ')} |`)
  return [lines[0], `| ${widths.map((size) => '-'.repeat(size)).join(' | ')} |`, ...lines.slice(1)].join('\n')
}

function goalsTable(rows: readonly Row[]): string {
  const cells = rows.map((row) => {
    const cpu = row.cpu === undefined ? '' : quantity(row.cpu, row.unit)
    return [row.title, quantity(row.value, row.unit), cpu, goalText(row.goal, row.unit), mark(row)]
  })
  return markdownTable([['what', 'measured', 'by CPU time', 'goal', ''], ...cells])
}

/** Returns the rows of the last saved run, updated by the rows of this run, without rows that no longer exist. */
async function merged(rows: readonly Row[], ids: readonly string[]): Promise<Row[]> {
  let saved: readonly Row[] = []
  try {
    // a cast: an earlier run wrote the file; figures that were NaN are null
    saved = (JSON.parse(await readFile(resultsFile, 'utf8')) as { rows: readonly Row[] }).rows
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'ENOENT')) throw error
  }
  const byId = new Map([...saved, ...rows].map((row) => [row.id, row]))
  return ids.map((id) => byId.get(id)).filter((row) => row !== undefined)
}

/** Writes bench/results/latest.json, docs/performance.svg and the figures in docs/performance.md. `ids` are the ids of all rows, in order. */
export async function save(measured: readonly Row[], circumstances: Circumstances, ids: readonly string[]): Promise<void> {
  const rows = await merged(measured, ids)
  await mkdir(dirname(resultsFile), { recursive: true })
  await writeFile(resultsFile, resultsJson(rows, circumstances))
  const { measuredAt, cores, node, platform } = circumstances
  const conditions = `${measuredAt.slice(0, 10)}, ${cores} cores, Node ${node}, ${platform}`
  await writeFile(join(root, 'docs', 'performance.svg'), chart(rows, `${conditions}; right of the line is better than the goal`))
  const page = join(root, 'docs', 'performance.md')
  const text = await readFile(page, 'utf8')
  const [before, after] = [text.split(start)[0], text.split(end)[1]]
  if (before === undefined || after === undefined) throw new Error(`docs/performance.md lacks ${start} and ${end}`)
  await writeFile(page, `${before}${start}\n\nMeasured on ${conditions}.\n\n${goalsTable(rows)}\n\n${end}${after}`)
}
