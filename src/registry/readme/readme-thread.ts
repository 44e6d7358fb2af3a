import { Worker } from 'node:worker_threads'
import type { ReadmeAnswer } from './readme-worker.ts'

/** How long an idle thread stays alive, in milliseconds. */
const idleMs = 30_000
/** Interval at which the processor time of a readme is checked, in milliseconds. */
const lookEveryMs = 50
/** Maximum duration of a rendering if the thread's processor time cannot be read, in milliseconds. After that, the thread is stopped. */
const maxWallMs = 60_000

const tooExpensive = 'takes too long to render: make it shorter or simpler'

/** The result of rendering one readme. */
export interface RenderedReadme {
  /** What is wrong with the readme; undefined if it is valid. */
  readonly error: string | undefined
  /** The processor time that it took, in milliseconds; `maxCpuMs` if the thread was stopped. */
  readonly cpuMs: number
}

/**
 * The thread that renders readmes, one at a time. It starts with the first readme, ends when it is idle, and keeps no process alive. A readme that costs more
 * than `maxCpuMs` of processor time, or too much memory, ends the thread; the next readme gets a new one.
 */
export class ReadmeThread {
  readonly #maxCpuMs: number
  #worker: Worker | undefined
  #idle: NodeJS.Timeout | undefined

  constructor(maxCpuMs: number) {
    this.#maxCpuMs = maxCpuMs
  }

  /** Renders one readme. Call it only after the previous call has settled. Rejects if the thread fails. */
  render(content: string): Promise<RenderedReadme> {
    const { promise, resolve, reject } = Promise.withResolvers<RenderedReadme>()
    const worker = this.#take()
    let beganAtMs: number | undefined
    let isSettled = false
    const stop = (isGood: boolean): void => {
      isSettled = true
      clearInterval(looks)
      clearTimeout(deadline)
      worker.off('message', onMessage).off('error', onError).off('exit', onExit)
      if (isGood) this.#release(worker)
      else this.#terminate(worker)
    }
    const refuse = (error: string): void => {
      stop(false)
      resolve({ error, cpuMs: this.#maxCpuMs })
    }
    const onMessage = (answer: ReadmeAnswer): void => {
      if ('beganAtMs' in answer) {
        beganAtMs = answer.beganAtMs
        return
      }
      const cpuMs = answer.endedAtMs - (beganAtMs ?? answer.endedAtMs)
      stop(true)
      resolve({ error: cpuMs > this.#maxCpuMs ? tooExpensive : answer.error, cpuMs })
    }
    const onError = (error: Error & { code?: string }): void => {
      if (error.code === 'ERR_WORKER_OUT_OF_MEMORY') refuse('takes too much memory to render: make it shorter or simpler')
      else {
        stop(false)
        reject(error)
      }
    }
    const onExit = (code: number): void => {
      stop(false)
      reject(new Error(`the thread that renders readmes ended with code ${code}`))
    }
    worker.on('message', onMessage).on('error', onError).on('exit', onExit)
    const look = async (): Promise<void> => {
      const spentMs = await cpuTimeOf(worker)
      // The thread may render the next readme by now.
      if (isSettled) return
      if (spentMs !== undefined && beganAtMs !== undefined && spentMs - beganAtMs > this.#maxCpuMs) refuse(tooExpensive)
    }
    const looks = setInterval(() => void look(), lookEveryMs)
    const deadline = setTimeout(() => refuse(tooExpensive), maxWallMs)
    worker.postMessage(content)
    return promise
  }

  #take(): Worker {
    clearTimeout(this.#idle)
    this.#worker ??= this.#create()
    this.#worker.ref()
    return this.#worker
  }

  #create(): Worker {
    const worker = new Worker(new URL('readme-worker.ts', import.meta.url), { resourceLimits: { maxOldGenerationSizeMb: 512 } })
    // The thread may fail at any time, even while it is idle or being stopped. The next readme gets a new one.
    return worker.on('error', () => this.#terminate(worker))
  }

  #release(worker: Worker): void {
    if (this.#worker !== worker) return
    worker.unref()
    this.#idle = setTimeout(() => this.#terminate(worker), idleMs).unref()
  }

  #terminate(worker: Worker): void {
    if (this.#worker === worker) {
      clearTimeout(this.#idle)
      this.#worker = undefined
    }
    void worker.terminate()
  }
}

/** The thread's processor time so far, in milliseconds; undefined once it has ended. */
async function cpuTimeOf(worker: Worker): Promise<number | undefined> {
  try {
    const { user, system } = await worker.cpuUsage()
    return (user + system) / 1000
  } catch {
    // The thread ended meanwhile. Its `exit` event handles that.
    return undefined
  }
}
