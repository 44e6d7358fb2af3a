import { randomInt } from 'node:crypto'
import { rm } from 'node:fs/promises'
import { parseArgs } from 'node:util'
import { extractVersion } from './cluster/previous-version.ts'
import { runInOwnNetwork } from './cluster/own-network.ts'
import { describe, runSchedule, type Progress, type RunReport } from './schedules/run.ts'
import { schedules, type Schedule, type ScheduleName } from './schedules/schedule.ts'
import { runInTurn, type RunOrder, type Tally } from './schedules/turns.ts'

const options = {
  schedule: { type: 'string', multiple: true },
  seed: { type: 'string' },
  minutes: { type: 'string' },
  'stop-after-kills': { type: 'string' },
  previous: { type: 'string' },
  keep: { type: 'boolean', default: false },
  help: { type: 'boolean', default: false },
} as const

const usage = `Usage: npm run faults -- [options]

Starts real processes (two API processes on three etcd members, or one on SQLite), works on them while they are killed, suspended and cut off from one
another, and checks that every answer was right. Without --schedule all schedules run, one after the other. The last line counts kills and operations of all.

  --schedule <name>       run this schedule; may be repeated
  --seed <number>         what is done, and in which order; a new one by default, which is printed
  --minutes <number>      how long each schedule runs in a turn; by default as long as is said below
  --stop-after-kills <n>  run the schedules in turn, again and again, each turn with the next seed, until they made so many kills together
  --previous <revision>   the earlier version for the schedule versions, as a Git revision: a tag, a branch or a commit
  --keep                  keep data and logs also where all went well
  --help                  print this

Schedules:
${Object.entries(schedules)
  .map(([name, { summary, briefSeconds }]) => `  ${name.padEnd(12)}${summary} (${briefSeconds} s)`)
  .join('\n')}

The exit code is 0 where nothing is wrong, 1 where something is or the run could not be made, 130 after Ctrl-C. docs/faults.md says more.
`

interface Order {
  readonly names: readonly ScheduleName[]
  readonly seed: number
  readonly minutes: number | undefined
  readonly stopAfterKills: number | undefined
  readonly previous: string | undefined
  readonly keep: boolean
}

/** Parses the command line; undefined for help. Throws an explanation of a mistake. */
function parseOrder(args: readonly string[]): Order | undefined {
  const { values } = parseArgs({ args: [...args], options })
  if (values.help) return undefined
  const names = values.schedule ?? Object.keys(schedules)
  const unknown = names.filter((name) => !Object.hasOwn(schedules, name))
  if (unknown.length > 0) throw new Error(`there is no schedule ${unknown.join(', ')}; there are: ${Object.keys(schedules).join(', ')}`)
  return {
    // Each name was looked up above.
    names: names as ScheduleName[],
    seed: positive('seed', values.seed) ?? randomInt(1, 1_000_000),
    minutes: positive('minutes', values.minutes),
    stopAfterKills: positive('stop-after-kills', values['stop-after-kills']),
    previous: values.previous,
    keep: values.keep,
  }
}

function positive(name: string, text: string | undefined): number | undefined {
  if (text === undefined) return undefined
  const value = Number(text)
  if (!(value > 0)) throw new Error(`--${name} takes a number above 0, not "${text}"`)
  return value
}

function print(line: string): void {
  process.stdout.write(`${line}\n`)
}

function progressLine(name: string, { seconds, operations, acknowledged, faults, kills }: Progress): string {
  return `${name}: ${seconds.toFixed(0).padStart(5)} s  ${operations} operations  ${acknowledged} writes acknowledged  ${faults} faults  ${kills} kills`
}

function printReport(name: string, report: RunReport): void {
  const { violations, killsOf, faultsOf, checked, unknown, longestGapMs, directory, seconds, kills } = report
  print(progressLine(name, report))
  const faults = Object.entries(faultsOf).map(([fault, count]) => `${fault} ${count}`)
  print(`  faults: ${faults.join(', ')}`)
  const perMinute = ((kills * 60) / seconds).toFixed(0)
  print(`  kills: ${killsOf.member} members, ${killsOf.leader} leaders, ${killsOf.process} processes (${perMinute} a minute)`)
  print(
    `  ${checked} operations explained, ${unknown} of them without an answer; longest time without an acknowledged write ${(longestGapMs / 1000).toFixed(1)} s`,
  )
  for (const line of report.leftOut) print(`  left out: ${line}`)
  if (report.notMade.length > 0) print(`  not made: ${report.notMade.join(', ')}`)
  for (const violation of violations.slice(0, 20)) print(`  WRONG ${violation}`)
  if (violations.length > 20) print(`  and ${violations.length - 20} more`)
  if (directory !== undefined) print(`  data, logs and histories: ${directory}`)
  print(`  ${violations.length === 0 ? 'ok' : 'FAILED'}: ${name}`)
}

/** Runs one schedule and prints its report; undefined if it was interrupted. */
async function runOne({ name, seed, stopAfterKills }: RunOrder, { minutes, keep }: Order, signal: AbortSignal): Promise<RunReport | undefined> {
  const schedule: Schedule = schedules[name]
  const durationMs = minutes === undefined ? schedule.briefSeconds * 1000 : minutes * 60_000
  print(`${name}: ${schedule.summary}; seed ${seed}`)
  try {
    const onProgress = (progress: Progress): void => print(progressLine(name, progress))
    const report = await runSchedule({ schedule, seed, durationMs, stopAfterKills, keep, signal, onProgress })
    printReport(name, report)
    return report
  } catch (error) {
    print(signal.aborted ? `  stopped: ${name}` : `  FAILED: ${name}: ${describe(error)}`)
    return undefined
  }
}

/** Returns the command that repeats the run. */
function repeatLine({ name, seed }: RunOrder, { minutes, previous }: Order): string {
  const more = [...(minutes === undefined ? [] : [`--minutes ${minutes}`]), ...(previous === undefined ? [] : [`--previous ${previous}`])]
  return ['npm run faults --', `--schedule ${name} --seed ${seed}`, ...more].join(' ')
}

/** Prints the summary of all runs: commands that repeat failures, then one line of numbers. Returns the exit code. */
function printEnd(tally: Tally, order: Order): number {
  const { runs, failed, kills, killsOf, killsIn, checked } = tally
  const isShort = kills < (order.stopAfterKills ?? 0)
  for (const each of failed) print(`repeat: ${repeatLine(each, order)}`)
  if (isShort) print(`FAILED: ${kills} kills were made, ${order.stopAfterKills} were asked for`)
  const byVictim = `${killsOf.member} members, ${killsOf.leader} leaders, ${killsOf.process} processes`
  const bySchedule = [...killsIn].map(([name, count]) => `${name} ${count}`).join(', ')
  print(
    `${runs - failed.length} of ${runs} runs ok; ${kills} kills: ${byVictim}; by schedule: ${bySchedule}; ${checked} operations checked; seed ${order.seed}`,
  )
  return failed.length === 0 && !isShort ? 0 : 1
}

async function main(args: readonly string[]): Promise<number> {
  let order: Order | undefined
  try {
    order = parseOrder(args)
  } catch (error) {
    process.stderr.write(`faults: ${describe(error)}\n`)
    return 1
  }
  if (order === undefined) {
    process.stdout.write(usage)
    return 0
  }
  const asked = order
  const stopping = new AbortController()
  const { signal } = stopping
  const stop = (): void => {
    if (!signal.aborted) print('stopping all processes ...')
    stopping.abort(new Error('stopped'))
  }
  process.on('SIGINT', stop)
  process.on('SIGTERM', stop)
  const ended = ({ kills, runs }: Tally): void => {
    if (asked.stopAfterKills !== undefined) print(`together: ${kills} of ${asked.stopAfterKills} kills in ${runs} runs`)
  }
  const earlier = asked.previous === undefined ? undefined : await extractVersion(asked.previous)
  const tally = await runInTurn({ ...asked, signal, run: (run) => runOne(run, asked, signal), ended })
  if (earlier !== undefined) await rm(earlier, { recursive: true, force: true })
  return signal.aborted ? 130 : printEnd(tally, asked)
}

process.exit((await runInOwnNetwork()) ?? (await main(process.argv.slice(2))))
