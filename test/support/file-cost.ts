import { readdirSync, readFileSync } from 'node:fs'
import { platform } from 'node:process'
import { afterAll } from 'vitest'

declare module 'vitest' {
  interface TaskMeta {
    /** Processor time that a file took, in seconds: of its worker and of the processes that it started. */
    cpuSeconds?: number
  }
}

/** Linux counts the processor time of processes in ticks of this many a second (`getconf CLK_TCK` on every system that Node runs on). */
const ticksPerSecond = 100

/** The parent of a process, and the seconds of the process and its ended children; undefined after its end. */
function readProcess(pid: string): { parent: string; seconds: number } | undefined {
  let stat: string
  try {
    stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
  } catch {
    return undefined
  }
  // After the name, which is in parentheses and may contain some: state, parent, ..., utime, stime, cutime, cstime.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  const ticks = fields.slice(11, 15).reduce((sum, field) => sum + Number(field), 0)
  return { parent: fields[1] ?? '', seconds: ticks / ticksPerSecond }
}

/** Processor time in seconds of this process and its descendants; without /proc only of this process. */
function treeCpuSeconds(): number {
  if (platform !== 'linux') {
    const { user, system } = process.cpuUsage()
    return (user + system) / 1e6
  }
  const all = new Map<string, { parent: string; seconds: number }>()
  for (const pid of readdirSync('/proc')) {
    const found = /^\d+$/.test(pid) ? readProcess(pid) : undefined
    if (found !== undefined) all.set(pid, found)
  }
  const isOurs = (pid: string | undefined): boolean => {
    for (let at = pid; at !== undefined && at !== '0'; at = all.get(at)?.parent) if (at === String(process.pid)) return true
    return false
  }
  return [...all].reduce((sum, [pid, { seconds }]) => (isOurs(pid) ? sum + seconds : sum), 0)
}

// The first file of a worker also pays for the start of the worker.
const workers = globalThis as { taprootWorkerStarted?: boolean }
const before = workers.taprootWorkerStarted === true ? treeCpuSeconds() : 0
workers.taprootWorkerStarted = true
afterAll(({}, suite) => {
  suite.file.meta.cpuSeconds = treeCpuSeconds() - before
})
