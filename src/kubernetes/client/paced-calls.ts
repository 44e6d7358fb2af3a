import { TokenBucket, type Rate } from '../../base/token-bucket.ts'

/** Limits the rate at which calls start. Calls that must wait start in order of arrival. */
export class PacedCalls {
  readonly #bucket: TokenBucket
  readonly #waiting: (() => void)[] = []
  #timer: NodeJS.Timeout | undefined

  constructor(rate: Rate) {
    this.#bucket = new TokenBucket(rate, () => performance.now())
  }

  /** Resolves when the call may start. Rejects with the signal's reason. */
  async take(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted()
    if (this.#waiting.length === 0 && this.#bucket.waitMs(1) === 0) {
      this.#bucket.spend(1)
      return
    }
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    const leave = (): void => {
      this.#waiting.splice(this.#waiting.indexOf(resolve), 1)
      reject(signal.reason)
    }
    this.#waiting.push(resolve)
    signal.addEventListener('abort', leave, { once: true })
    this.#schedule()
    await promise.finally(() => signal.removeEventListener('abort', leave))
  }

  #schedule(): void {
    if (this.#timer !== undefined || this.#waiting.length === 0) return
    this.#timer = setTimeout(
      () => {
        this.#timer = undefined
        for (; this.#waiting.length > 0 && this.#bucket.waitMs(1) === 0; this.#bucket.spend(1)) this.#waiting.shift()?.()
        this.#schedule()
      },
      Math.max(1, this.#bucket.waitMs(1)),
    )
  }
}
