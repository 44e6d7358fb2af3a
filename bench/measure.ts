import { readFile } from 'node:fs/promises'
import { Histogram } from './load/histogram.ts'
import type { RoundCounts } from './load/load.ts'
import type { GeneratorProcess } from './load/start-generator.ts'

/** A server or store under load: the generator, and the processes whose processor time counts. */
export interface Candidate {
  readonly name: string
  readonly generator: GeneratorProcess
  /** Process ids of the server and its store. Empty if the generator itself does the work. */
  readonly pids: readonly number[]
  /** Names of these processes, if their processor time is shown separately. */
  readonly processes?: readonly string[]
  /** True if the generator's processor time counts as the server's, as for a bare client of a store. */
  readonly generatorWorks?: boolean
}

/** Results of one candidate: medians over all rounds. */
export interface Measured {
  readonly name: string
  readonly perSecond: number
  /** Processor time of all server processes per request, in microseconds; NaN if the system does not report it. */
  readonly cpuMicros: number
  /** The same for each process with a name. */
  readonly cpuMicrosOf: Readonly<Record<string, number>>
  /** Median latency over all rounds, in milliseconds. */
  readonly p50: number
  readonly p99: number
  /** Percentiles by class of request, in milliseconds; empty without classes. */
  readonly classes: Readonly<Record<string, { readonly p50: number; readonly p99: number }>>
  /** Share of one core that the generator used. Near 1, the generator limits the result. */
  readonly generatorBusy: number
  readonly bytesPerAnswer: number
}

/** Results of two candidates in alternating rounds, and the medians of the rounds' ratios (first to second). */
export interface Comparison {
  readonly measured: readonly [Measured, Measured]
  /** Ratio of requests per second. */
  readonly throughput: number
  /** Ratio of processor time per request, second to first: 2 means that the first needs half. */
  readonly cpu: number
}

/** Length and number of rounds. */
export interface Rounds {
  readonly rounds: number
  readonly milliseconds: number
}

interface Round {
  readonly perSecond: number
  readonly cpuMicros: number
  readonly cpuMicrosOfEach: readonly number[]
  readonly generatorBusy: number
  readonly bytesPerAnswer: number
  readonly counts: RoundCounts
}

/** Number of uncounted rounds at the start, in which the code of a new server is compiled. */
const warmUpRounds = 4
/** Unit in which Linux reports processor time: a hundredth of a second, in microseconds. */
const microsPerTick = 10_000

export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b)
  const middle = sorted.length >> 1
  return sorted.length % 2 === 1 ? (sorted[middle] ?? NaN) : ((sorted[middle - 1] ?? NaN) + (sorted[middle] ?? NaN)) / 2
}

/** Returns the processor time that a process has used, in microseconds; NaN if the system does not report it. */
export async function cpuTimeOf(pid: number): Promise<number> {
  try {
    const text = await readFile(`/proc/${pid}/stat`, 'latin1')
    // The name in parentheses may contain any character. After it come the state, then fields 4 to 52.
    const fields = text.slice(text.lastIndexOf(')') + 2).split(' ')
    return (Number(fields[11]) + Number(fields[12])) * microsPerTick
  } catch {
    return NaN
  }
}

function cpuTimes(pids: readonly number[]): Promise<number[]> {
  return Promise.all(pids.map(cpuTimeOf))
}

async function runRound(candidate: Candidate, milliseconds: number): Promise<Round> {
  const before = await cpuTimes(candidate.pids)
  const counts = await candidate.generator.round(milliseconds)
  const after = await cpuTimes(candidate.pids)
  if (counts.requests === 0 || counts.errors > counts.requests / 100)
    throw new Error(`${candidate.name}: ${counts.errors} of ${counts.errors + counts.requests} requests failed: ${counts.firstError ?? ''}`)
  const each = after.map((time, at) => time - (before[at] ?? NaN))
  const server = each.reduce((sum, time) => sum + time, candidate.generatorWorks === true ? counts.cpuMicros : 0)
  return {
    perSecond: counts.requests / counts.seconds,
    cpuMicros: server / counts.requests,
    cpuMicrosOfEach: each.map((time) => time / counts.requests),
    generatorBusy: counts.cpuMicros / 1e6 / counts.seconds,
    bytesPerAnswer: counts.bodyBytes / counts.requests,
    counts,
  }
}

function summary({ name, processes = [] }: Candidate, rounds: readonly Round[]): Measured {
  const classes = new Map<string, Histogram>()
  const all = new Histogram()
  for (const { counts } of rounds) {
    for (const [requestClass, latencies] of Object.entries(counts.latencies)) {
      const histogram = new Histogram(latencies)
      all.merge(histogram)
      const held = classes.get(requestClass)
      if (held === undefined) classes.set(requestClass, new Histogram([...latencies]))
      else held.merge(histogram)
    }
  }
  const named = [...classes].filter(([requestClass]) => requestClass !== '')
  return {
    name,
    perSecond: median(rounds.map((round) => round.perSecond)),
    cpuMicros: median(rounds.map((round) => round.cpuMicros)),
    cpuMicrosOf: Object.fromEntries(processes.map((process, at) => [process, median(rounds.map((round) => round.cpuMicrosOfEach[at] ?? NaN))])),
    p50: all.at(0.5),
    p99: all.at(0.99),
    classes: Object.fromEntries(named.map(([requestClass, histogram]) => [requestClass, { p50: histogram.at(0.5), p99: histogram.at(0.99) }])),
    generatorBusy: median(rounds.map((round) => round.generatorBusy)),
    bytesPerAnswer: median(rounds.map((round) => round.bytesPerAnswer)),
  }
}

/** Warms up, then measures a single candidate. */
export async function measure(candidate: Candidate, { rounds, milliseconds }: Rounds): Promise<Measured> {
  await candidate.generator.round(warmUpRounds * milliseconds)
  const done: Round[] = []
  for (let round = 0; round < rounds; round++) done.push(await runRound(candidate, milliseconds))
  return summary(candidate, done)
}

/** Warms both up, then measures them in alternating rounds, so that other work on the machine affects both equally. */
export async function compare(first: Candidate, second: Candidate, rounds: Rounds): Promise<Comparison> {
  const [comparison] = await compareAll(first, [second], rounds)
  if (comparison === undefined) throw new Error('nothing was compared')
  return comparison
}

/** Compares a candidate with each of the others, in rounds that all of them share. Another one begins each round. */
export async function compareAll(first: Candidate, others: readonly Candidate[], { rounds, milliseconds }: Rounds): Promise<Comparison[]> {
  const all = [first, ...others].map((candidate) => ({ candidate, done: [] as Round[] }))
  for (const { candidate } of all) await candidate.generator.round(warmUpRounds * milliseconds)
  for (let round = 0; round < rounds; round++) {
    const start = round % all.length
    for (const { candidate, done } of [...all.slice(start), ...all.slice(0, start)]) done.push(await runRound(candidate, milliseconds))
  }
  const [reference, ...compared] = all
  return compared.map(({ candidate, done }) => {
    const ones = reference?.done ?? []
    const ratios = (of: (one: Round, other: Round) => number): number => median(ones.map((one, at) => of(one, done[at] ?? one)))
    return {
      measured: [summary(first, ones), summary(candidate, done)],
      throughput: ratios((one, other) => one.perSecond / other.perSecond),
      cpu: ratios((one, other) => other.cpuMicros / one.cpuMicros),
    }
  })
}
