import { Worker } from 'node:worker_threads'
import { untilAborted } from '../../core/until-aborted.ts'

/** How long a readme may take to be rendered, in milliseconds; an ordinary one takes milliseconds, the worst of the largest size a few seconds. */
const maxRenderMs = 10_000
/** How long the thread stays when there is nothing to do, in milliseconds. */
const idleMs = 30_000

/** The thread, where there is one, and the end of its idle time. It keeps no process alive. */
let thread: { readonly worker: Worker; idle?: NodeJS.Timeout } | undefined

function discard(worker: Worker): void {
  if (thread?.worker === worker) {
    clearTimeout(thread.idle)
    thread = undefined
  }
  void worker.terminate()
}

function takeThread(): Worker {
  clearTimeout(thread?.idle)
  thread ??= { worker: new Worker(new URL('readme-worker.ts', import.meta.url), { resourceLimits: { maxOldGenerationSizeMb: 512 } }) }
  thread.worker.ref()
  return thread.worker
}

function release(worker: Worker): void {
  if (thread?.worker !== worker) return
  worker.unref()
  thread.idle = setTimeout(() => discard(worker), idleMs).unref()
}

function check(content: string): Promise<string | undefined> {
  const { promise, resolve, reject } = Promise.withResolvers<string | undefined>()
  const worker = takeThread()
  const end = (isGood: boolean): void => {
    clearTimeout(timer)
    worker.off('message', onMessage)
    if (isGood) {
      worker.off('error', onError)
      release(worker)
    } else {
      // Its listener for errors stays: a thread that is stopped may fail once more.
      discard(worker)
    }
  }
  const onMessage = (fault: string | undefined): void => {
    end(true)
    resolve(fault)
  }
  const onError = (error: Error & { code?: string }): void => {
    end(false)
    if (error.code === 'ERR_WORKER_OUT_OF_MEMORY') resolve('takes too much memory to be rendered')
    else reject(error)
  }
  worker.on('message', onMessage).on('error', onError)
  const timer = setTimeout(() => {
    end(false)
    resolve('takes too long to be rendered')
  }, maxRenderMs)
  worker.postMessage(content)
  return promise
}

let last: Promise<unknown> = Promise.resolve()

/**
 * What is wrong with a readme, or undefined. Readmes are rendered one after the other in a thread of their own: text that somebody made to be slow to render, or to
 * fill the memory, holds up other readmes for a moment and nothing else. Rejects with the signal's reason.
 */
export function checkReadme(content: string, signal: AbortSignal): Promise<string | undefined> {
  const turn = last.then(() => (signal.aborted ? undefined : check(content)))
  last = turn.catch(() => undefined)
  return untilAborted(turn, signal)
}
