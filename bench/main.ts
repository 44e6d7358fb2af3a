/** `npm run bench`: measures performance as ratios to alternatives, in alternating rounds of one run (docs/performance.md). */
import { writeFile } from 'node:fs/promises'
import { availableParallelism, loadavg } from 'node:os'
import { ensurePart } from '../tools/parts.js'
import { Environment } from './environment.ts'
import { machine, readOptions, rowIds, usage, type Options } from './options.ts'
import { resultsJson, save } from './report/save.ts'
import { rowText, table } from './report/table.ts'
import { groups } from './rows/groups.ts'
import type { Row, RowSource } from './rows/row.ts'

const clearLine = '\r\u001b[K'

/** Shows progress: on one line of a terminal, otherwise on a line each. */
function showProgress(text: string): void {
  process.stderr.write(process.stderr.isTTY ? `${clearLine}${text} ` : `${text}\n`)
}

function print(text: string): void {
  if (process.stderr.isTTY) process.stderr.write(clearLine)
  process.stdout.write(`${text}\n`)
}

/** Measures and shows one row. If it fails, the other rows are still measured. */
async function measureRow(source: RowSource, environment: Environment, rows: Row[]): Promise<void> {
  showProgress(`measuring ${source.id}`)
  try {
    const row = await source.measure(environment)
    rows.push(row)
    print(rowText(row))
  } catch (error) {
    print(`failed  ${source.id}: ${error instanceof Error ? error.message : String(error)}`)
    process.exitCode = 1
  }
}

/** Warns if the machine is busy, since other work makes figures worse and ratios less precise. */
function warnWhereBusy(): void {
  const [load = 0] = loadavg()
  if (load > availableParallelism() / 2)
    print(`this machine is busy (load ${load.toFixed(1)}): trust the ratios by CPU time more than those by requests per second`)
}

async function run(options: Options): Promise<Row[]> {
  warnWhereBusy()
  const environment = new Environment(options.scale, showProgress)
  const rows: Row[] = []
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => void environment.stop().finally(() => process.exit(1)))
  try {
    for (const group of groups) {
      const wanted = group.rows.filter(({ id }) => options.only.has(id))
      if (wanted.length === 0) continue
      const part = group.needs === undefined ? undefined : ensurePart(group.needs)
      if (part !== undefined && !('path' in part)) {
        print(`left out: ${wanted.map(({ id }) => id).join(', ')} (${String(part.reason)})`)
        continue
      }
      for (const source of wanted) await measureRow(source, environment, rows)
    }
  } finally {
    await environment.stop()
  }
  return rows
}

function read(): Options | undefined {
  try {
    return readOptions(process.argv.slice(2))
  } catch (error) {
    process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`)
    process.exitCode = 2
    return undefined
  }
}

const options = read()
if (options?.help === true) process.stdout.write(usage())
else if (options !== undefined) {
  const rows = await run(options)
  print(`\n${table(rows)}`)
  const circumstances = { measuredAt: new Date().toISOString(), ...machine() }
  if (options.save) await save(rows, circumstances, rowIds)
  if (options.json !== undefined) await writeFile(options.json, resultsJson(rows, circumstances))
}
