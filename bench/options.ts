import { parseArgs } from 'node:util'
import { availableParallelism } from 'node:os'
import type { Scale } from './environment.ts'
import { groups } from './rows/groups.ts'

/** Options of the command line. */
export interface Options {
  readonly help: boolean
  /** Ids of the rows to measure. */
  readonly only: ReadonlySet<string>
  readonly scale: Scale
  /** If true, writes results and chart into the checkout. */
  readonly save: boolean
  /** Path of a file for the results. */
  readonly json: string | undefined
}

/** Ids of all rows, in the order of measurement. */
export const rowIds: readonly string[] = groups.flatMap((group) => group.rows.map(({ id }) => id))

const fullRecords = 1_000_000
const shortRecords = 100_000

/** Returns the text of `--help`. */
export function usage(): string {
  const rows = groups.map(({ name, about, rows: sources }) => `  ${name.padEnd(8)}${about}\n          ${sources.map(({ id }) => id).join(', ')}`).join('\n')
  return `npm run bench -- [options]
  --only get,kube-list   only these groups or rows
  --records N       the larger size of rows that compare two sizes (default ${shortRecords}; --full: ${fullRecords})
  --full            ${fullRecords} records, more and longer rounds
  --seconds S       length of a round (default 0.5; --full: 0.8)
  --rounds N        rounds of each, in turns (default 15; --full: 25)
  --save            put the figures into bench/results/latest.json, docs/performance.md and docs/performance.svg
  --json FILE       write the results to a file
  --help
Rows:
${rows}
`
}

function positive(text: string, name: string): number {
  const value = Number(text)
  if (!(value > 0)) throw new TypeError(`--${name} needs a positive number`)
  return value
}

/** Returns the ids of the rows that are selected by names of groups or rows. */
function idsOf(text: string): Set<string> {
  const found = text.split(',').flatMap((name) => {
    const wanted = name.trim()
    const ids = groups.flatMap((group) => group.rows.map(({ id }) => id).filter((id) => group.name === wanted || id === wanted))
    if (ids.length === 0) throw new TypeError(`--only: no rows are named ${wanted}; npm run bench -- --help lists them`)
    return ids
  })
  return new Set(found)
}

/** Parses the command line. Throws TypeError with one line that says what is wrong. */
export function readOptions(args: readonly string[]): Options {
  const { values } = parseArgs({
    args: [...args],
    options: {
      help: { type: 'boolean', default: false },
      only: { type: 'string' },
      records: { type: 'string' },
      full: { type: 'boolean', default: false },
      seconds: { type: 'string' },
      rounds: { type: 'string' },
      save: { type: 'boolean', default: false },
      json: { type: 'string' },
    },
  })
  const { full } = values
  const largeRecords = values.records === undefined ? (full ? fullRecords : shortRecords) : positive(values.records, 'records')
  return {
    help: values.help,
    only: values.only === undefined ? new Set(rowIds) : idsOf(values.only),
    save: values.save,
    json: values.json,
    scale: {
      baseRecords: Math.min(10_000, largeRecords),
      smallRecords: Math.min(1_000, largeRecords),
      largeRecords,
      connections: 64,
      rounds: {
        rounds: values.rounds === undefined ? (full ? 25 : 15) : positive(values.rounds, 'rounds'),
        milliseconds: 1000 * (values.seconds === undefined ? (full ? 0.8 : 0.5) : positive(values.seconds, 'seconds')),
      },
    },
  }
}

/** Returns the properties of the machine that affect results, without its name. */
export function machine(): { cores: number; node: string; platform: string } {
  return { cores: availableParallelism(), node: process.version, platform: `${process.platform} ${process.arch}` }
}
