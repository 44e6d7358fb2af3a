import { fork, type ChildProcess } from 'node:child_process'
import { mkdir, mkdtemp, readdir, readFile, rm, stat } from 'node:fs/promises'
import { setPriority } from 'node:os'
import { join } from 'node:path'
import { addAbortSignal, type Readable, type Writable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import type { Digest } from '../../base/digest.ts'
import type { DescribedProduct } from '../../cache/lists/contents-source.ts'
import type { ReportedVulnerability, ReportFacts } from '../../cache/lists/scanner-reports-source.ts'
import type { SkippedFile } from '../layers/packages-of-layers.ts'
import { ContentError, type ContentProblem, type ContentRetry, type Distribution, type ImagePackage } from '../package.ts'

/** What the process reads from its standard input: an SBOM, or layers one after the other. Sizes are in bytes. */
type PackagesJob =
  | { readonly kind: 'sbom'; readonly size: number; readonly digests: readonly Digest[] }
  | { readonly kind: 'layers'; readonly layers: readonly { readonly digest: Digest; readonly size: number }[] }

/** A report to read: its digest and its size in bytes, and the digests of what it may be about. */
interface ReportJob {
  readonly kind: 'report'
  readonly digest: Digest
  readonly size: number
  readonly digests: readonly Digest[]
  /** Set for a report of Harbor's form: it must be about this image. */
  readonly artifact?: Digest
}

/** What the process is to read. */
export type ReadingJob = PackagesJob | ReportJob

/** Facts of an image besides its packages. */
export interface ReadFacts {
  readonly distribution: Distribution | undefined
  readonly described: DescribedProduct | undefined
  readonly skipped: readonly SkippedFile[]
}

/** What was read: a list, and facts. */
interface ReadItems<Item, Facts> {
  readonly items: readonly Item[]
  readonly facts: Facts
}

/** What the process answers to each job. */
export interface Readings {
  readonly packages: ReadItems<ImagePackage, ReadFacts>
  readonly report: ReadItems<ReportedVulnerability, ReportFacts>
}

/** What the process answers to a job. */
type ReadingOf<Job extends ReadingJob> = Job extends ReportJob ? Readings['report'] : Readings['packages']

/** Messages from the process. Items come in parts, so that no turn of the event loop is long. `read` or `failed` is the last one. */
export type FromReadingProcess =
  | { readonly kind: 'items'; readonly items: readonly unknown[] }
  | { readonly kind: 'read'; readonly facts: unknown }
  | { readonly kind: 'failed'; readonly problem: ContentProblem; readonly message: string; readonly retry: ContentRetry; readonly isRecognised: boolean }

/** Opens the streams that the process reads, in their order. */
export type OpenStream = (signal: AbortSignal) => Promise<Readable>

/** The memory that JavaScript may use in the process, in MiB. Processes that serve the API read reports too, and have less memory than the worker. */
const heapMegabytes = { sbom: 1_536, layers: 1_536, report: 512 } as const
/** The memory that the process may use besides, for example in buffers, in MiB. */
const otherMegabytes = 512
/** How often the memory of the process is looked at, in milliseconds. */
const lookMs = 200
const folderPrefix = 'taproot-reading-'
/** The age at which the folder of a process is left over from one that was killed, in milliseconds. */
const abandonedMs = 86_400_000
/** The process gives way to all others. */
const lowPriority = 10

function start(folder: string, kind: ReadingJob['kind']): ChildProcess {
  // The process reads what strangers wrote: the only variable is the folder for its files.
  const child = fork(new URL('reading-process-main.ts', import.meta.url), [], {
    env: { TMPDIR: folder },
    execArgv: ['--disable-warning=ExperimentalWarning', `--max-old-space-size=${heapMegabytes[kind]}`],
    serialization: 'advanced',
    stdio: ['pipe', 'ignore', 'ignore', 'ipc'],
  })
  child.on('error', () => undefined)
  if (child.pid === undefined) throw new Error('the process that reads an image could not be started')
  setPriority(child.pid, lowPriority)
  return child
}

/** Returns the resident memory of the process in MiB, or 0 where the system has no `/proc`, and after its end. `VmRSS` is in KiB on every machine. */
async function residentMegabytes(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'latin1').catch(() => '')
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1] ?? 0) / 1024
}

/** Kills the process once it uses more memory than allowed: the limit of Node.js does not count buffers. Returns how to stop this. */
function watchMemory(child: ChildProcess, kind: ReadingJob['kind']): () => void {
  const { pid } = child
  if (pid === undefined) return () => undefined
  const look = async (): Promise<void> => {
    const used = await residentMegabytes(pid)
    if (used > heapMegabytes[kind] + otherMegabytes) child.kill('SIGKILL')
  }
  const timer = setInterval(() => void look(), lookMs)
  return () => {
    clearInterval(timer)
  }
}

function answerOf(child: ChildProcess, job: ReadingJob): Promise<ReadItems<unknown, unknown>> {
  const { promise, resolve, reject } = Promise.withResolvers<ReadItems<unknown, unknown>>()
  const items: unknown[] = []
  const what = job.kind === 'report' ? 'the report' : 'the image'
  child.on('error', reject)
  // Node.js itself aborts at the limit. Other signals can come from elsewhere.
  child.on('exit', (_, killed) => {
    reject(new ContentError('TOO_LARGE', `reading ${what} took more memory than allowed`, { retry: killed === 'SIGABRT' ? 'never' : 'few' }))
  })
  child.on('message', (message: FromReadingProcess) => {
    if (message.kind === 'items') items.push(...message.items)
    else if (message.kind === 'read') resolve({ items, facts: message.facts })
    else reject(new ContentError(message.problem, message.message, { retry: message.retry, isRecognised: message.isRecognised }))
  })
  // If it cannot be reached, it has ended, or it ends now.
  child.send(job, (error) => void (error === null || child.kill('SIGKILL')))
  return promise
}

/** Writes the streams to the process, at its pace. Rejects with errors of the streams only: the end of the process shows elsewhere. */
async function feed(to: Writable, streams: readonly OpenStream[], signal: AbortSignal): Promise<void> {
  let failure: { readonly error: unknown } | undefined
  async function* pieces(): AsyncGenerator<unknown, void, undefined> {
    try {
      for (const open of streams) yield* addAbortSignal(signal, await open(signal))
    } catch (error) {
      failure = { error }
      throw error
    }
  }
  try {
    // One pipeline for all: each one leaves listeners behind.
    await pipeline(pieces, to, { end: false, signal })
  } catch {
    if (failure !== undefined) throw failure.error
  }
}

/** Returns what the process answers to the job. Kills the process if a stream fails, or the signal aborts. */
async function converse(
  { child, job, streams }: { child: ChildProcess; job: ReadingJob; streams: readonly OpenStream[] },
  signal: AbortSignal,
): Promise<ReadItems<unknown, unknown>> {
  const kill = (): boolean => child.kill('SIGKILL')
  const stopping = new AbortController()
  const exited = new Promise((resolve) => child.once('exit', resolve))
  let failure: unknown
  const stopWatch = watchMemory(child, job.kind)
  signal.addEventListener('abort', kill, { once: true })
  try {
    const answer = answerOf(child, job)
    const input = child.stdin as Writable // a cast: the input is a pipe
    input.on('error', () => undefined)
    const fed = feed(input, streams, AbortSignal.any([signal, stopping.signal])).catch((error: unknown) => {
      if (stopping.signal.aborted) return
      failure = error
      kill()
    })
    return await answer.finally(() => {
      stopping.abort()
      // A process that has answered reads no more. While it lives, a write that waits for it would wait without end.
      kill()
      return fed
    })
  } catch (error) {
    signal.throwIfAborted()
    throw failure ?? error
  } finally {
    signal.removeEventListener('abort', kill)
    stopWatch()
    kill()
    await exited
  }
}
/** Creates the folder if it is missing, and removes what killed processes left in it. Ages are by the clock of the file system, which also dates the files. */
export async function prepareFolder(folder: string): Promise<void> {
  await mkdir(folder, { recursive: true, mode: 0o700 })
  const newest = await mkdtemp(join(folder, folderPrefix))
  const { mtimeMs: nowMs } = await stat(newest)
  await rm(newest, { recursive: true, force: true })
  for (const name of await readdir(folder)) {
    if (!name.startsWith(folderPrefix)) continue
    const path = join(folder, name)
    const found = await stat(path).catch(() => undefined)
    if (found !== undefined && nowMs - found.mtimeMs > abandonedMs) await rm(path, { recursive: true, force: true })
  }
}

/**
 * Reads an image or a report in a process of its own, with a memory limit and a low priority. A hostile one hurts nothing else. Rejects with ContentError, UpstreamError,
 * other errors of `streams`, or the signal's reason. Once it ends, the process and its files are gone.
 */
export async function readInProcess<Job extends ReadingJob>(
  job: Job,
  { streams, folder }: { readonly streams: readonly OpenStream[]; readonly folder: string },
  signal: AbortSignal,
): Promise<ReadingOf<Job>> {
  const own = await mkdtemp(join(folder, folderPrefix))
  try {
    signal.throwIfAborted()
    // A cast: the process answers this job.
    return (await converse({ child: start(own, job.kind), job, streams }, signal)) as ReadingOf<Job>
  } finally {
    await rm(own, { recursive: true, force: true })
  }
}
