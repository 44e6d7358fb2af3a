import { Worker } from 'node:worker_threads'
import { untilAborted } from '../../core/until-aborted.ts'

/** How long a readme may take to be rendered, in milliseconds; one of the largest size takes two seconds on a slow machine. */
const maxRenderMs = 10_000

/**
 * Checks readmes, one after the other, each in a thread of its own: text that somebody made to be slow to render, or to fill the memory, holds up other readmes for a
 * moment and nothing else.
 */
function check(content: string, signal: AbortSignal): Promise<string | undefined> {
  const { promise, resolve, reject } = Promise.withResolvers<string | undefined>()
  const worker = new Worker(new URL('readme-worker.ts', import.meta.url), { workerData: content, resourceLimits: { maxOldGenerationSizeMb: 512 } })
  const timer = setTimeout(() => resolve('takes too long to be rendered'), maxRenderMs)
  const stop = (): void => reject(signal.reason as Error)
  signal.addEventListener('abort', stop)
  worker.on('message', resolve)
  worker.on('error', (error: Error & { code?: string }) =>
    error.code === 'ERR_WORKER_OUT_OF_MEMORY' ? resolve('takes too much memory to be rendered') : reject(error),
  )
  return promise.finally(async () => {
    clearTimeout(timer)
    signal.removeEventListener('abort', stop)
    await worker.terminate()
  })
}

let last: Promise<unknown> = Promise.resolve()

/** What is wrong with a readme, or undefined. Rejects with the signal's reason. */
export async function checkReadme(content: string, signal: AbortSignal): Promise<string | undefined> {
  signal.throwIfAborted()
  const turn = last.then(() => (signal.aborted ? undefined : check(content, signal)))
  last = turn.catch(() => undefined)
  return untilAborted(turn, signal)
}
