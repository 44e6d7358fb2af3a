import { TenantSlots, type SlotLimits } from '../../auth/oidc/tenant-slots.ts'
import type { Uid } from '../../base/uid.ts'

/**
 * A limited number of slots, for which callers wait. Organisations take turns to get a freed slot. Within an organisation, callers are
 * served in order.
 */
export class WaitingSlots {
  readonly #slots: TenantSlots
  readonly #waiting = new Map<Uid, Set<(free: () => void) => void>>()

  constructor(limits: SlotLimits) {
    this.#slots = new TenantSlots(limits)
  }

  /** Resolves with a function that frees the slot, to be called once. Rejects with the signal's reason. */
  async take(root: Uid, signal: AbortSignal): Promise<() => void> {
    signal.throwIfAborted()
    const free = this.#slots.take([root])
    return free === undefined ? this.#wait(root, signal) : this.#handingOver(free)
  }

  #wait(root: Uid, signal: AbortSignal): Promise<() => void> {
    const { promise, resolve, reject } = Promise.withResolvers<() => void>()
    const onAbort = (): void => {
      this.#leave(root, take)
      reject(signal.reason as Error)
    }
    const take = (free: () => void): void => {
      signal.removeEventListener('abort', onAbort)
      resolve(free)
    }
    signal.addEventListener('abort', onAbort, { once: true })
    const callers = this.#waiting.get(root) ?? new Set()
    this.#waiting.set(root, callers.add(take))
    return promise
  }

  #leave(root: Uid, take: (free: () => void) => void): void {
    const callers = this.#waiting.get(root)
    if (callers?.delete(take) === true && callers.size === 0) this.#waiting.delete(root)
  }

  #handingOver(free: () => void): () => void {
    return () => {
      free()
      this.#handOver()
    }
  }

  #handOver(): void {
    for (const [root, callers] of this.#waiting) {
      const free = this.#slots.take([root])
      if (free === undefined) continue
      const [take] = callers
      this.#waiting.delete(root)
      if (take === undefined) return
      callers.delete(take)
      // Moves the organisation to the end, so that others come first.
      if (callers.size > 0) this.#waiting.set(root, callers)
      take(this.#handingOver(free))
      return
    }
  }
}
