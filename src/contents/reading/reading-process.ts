import { fork, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { setPriority, tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Readable, Writable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import type { Digest } from '../../base/digest.ts'
import { UpstreamError } from '../../registry/index.ts'
import type { SkippedFile } from '../layers/packages-of-layers.ts'
import { ContentError, type ContentProblem, type Distribution, type ImagePackage } from '../package.ts'
import type { DescribedProduct } from '../sbom/forms.ts'

/** What the process reads from its standard input: an SBOM, or layers one after the other. Sizes are in bytes. */
export type ReadingJob =
  | { readonly kind: 'sbom'; readonly size: number; readonly digests: readonly Digest[] }
  | { readonly kind: 'layers'; readonly layers: readonly { readonly digest: Digest; readonly size: number }[] }

/** Facts of an image besides its packages. */
export interface ReadFacts {
  readonly distribution: Distribution | undefined
  readonly described: DescribedProduct | undefined
  readonly skipped: readonly SkippedFile[]
}

/** What was read. */
export interface ReadPackages extends ReadFacts {
  readonly packages: readonly ImagePackage[]
}

/** Messages from the process. Packages come in parts, so that no turn of the event loop is long. `read` or `failed` is the last one. */
export type FromReadingProcess =
  | { readonly kind: 'packages'; readonly packages: readonly ImagePackage[] }
  | { readonly kind: 'read'; readonly facts: ReadFacts }
  | { readonly kind: 'failed'; readonly problem: ContentProblem; readonly message: string }

/** Opens the streams that the process reads, in their order. */
export type OpenStream = (signal: AbortSignal) => Promise<Readable>

/** The memory that JavaScript may use in the process, in MiB. */
const heapMegabytes = 1_536
/** The process gives way to all others. */
const lowPriority = 10

function start(folder: string): ChildProcess {
  // The process reads what strangers wrote: the only variable is the folder for its files.
  const child = fork(new URL('reading-process-main.ts', import.meta.url), [], {
    env: { TMPDIR: folder },
    execArgv: ['--disable-warning=ExperimentalWarning', `--max-old-space-size=${heapMegabytes}`],
    serialization: 'advanced',
    stdio: ['pipe', 'ignore', 'ignore', 'ipc'],
  })
  if (child.pid !== undefined) setPriority(child.pid, lowPriority)
  return child
}

function answerOf(child: ChildProcess, job: ReadingJob): Promise<ReadPackages> {
  const { promise, resolve, reject } = Promise.withResolvers<ReadPackages>()
  const packages: ImagePackage[] = []
  child.on('error', reject)
  child.on('exit', () => reject(new ContentError('TOO_LARGE', 'reading the image took more memory than allowed')))
  child.on('message', (message: FromReadingProcess) => {
    if (message.kind === 'packages') packages.push(...message.packages)
    else if (message.kind === 'read') resolve({ ...message.facts, packages })
    else reject(new ContentError(message.problem, message.message))
  })
  // If it cannot be reached, it has ended, or it ends now.
  child.send(job, (error) => void (error === null || child.kill('SIGKILL')))
  return promise
}

/** Writes the streams to the process, at its pace. Rejects with errors of the streams only: the end of the process shows elsewhere. */
async function feed(to: Writable, streams: readonly OpenStream[], signal: AbortSignal): Promise<void> {
  for (const open of streams) {
    const stream = await open(signal)
    let failure: unknown
    stream.on('error', (error) => (failure ??= error))
    try {
      await pipeline(stream, to, { end: false, signal })
    } catch {
      if (failure instanceof UpstreamError || failure instanceof ContentError) throw failure
      return
    }
  }
}

/**
 * Reads an image in a process of its own, with a memory limit and a low priority: a hostile image hurts nothing else. Rejects with ContentError, UpstreamError,
 * other errors of `streams`, or the signal's reason. Once it ends, the process and its files are gone.
 */
export async function readInProcess(job: ReadingJob, streams: readonly OpenStream[], signal: AbortSignal): Promise<ReadPackages> {
  signal.throwIfAborted()
  const folder = await mkdtemp(join(tmpdir(), 'taproot-reading-'))
  const child = start(folder)
  const kill = (): boolean => child.kill('SIGKILL')
  signal.addEventListener('abort', kill, { once: true })
  const exited = once(child, 'exit').catch(() => undefined)
  const stopping = new AbortController()
  let failure: unknown
  const answer = answerOf(child, job)
  // Always there: the input is a pipe.
  const input = child.stdin as Writable
  input.on('error', () => undefined)
  const fed = feed(input, streams, AbortSignal.any([signal, stopping.signal])).catch((error: unknown) => {
    failure = error
    kill()
  })
  try {
    return await answer
  } catch (error) {
    signal.throwIfAborted()
    throw failure ?? error
  } finally {
    signal.removeEventListener('abort', kill)
    stopping.abort()
    kill()
    await Promise.all([fed, exited])
    await rm(folder, { recursive: true, force: true })
  }
}
