import { DomainError } from '../../base/errors.ts'
import { untilAborted } from '../../base/timing.ts'
import { ReadmeThread } from './readme-thread.ts'

/** Processor time that one readme may cost, in milliseconds: ordinary ones of the largest size cost a fifth of it. */
const maxCpuMs = 2_000
/** Readmes of one tenant that wait at most. */
const maxWaiting = 16
/** When a refused caller may try again, in milliseconds. */
const retryAfterMs = 1_000
/** In this time half of what a tenant has used is forgotten, in milliseconds. */
const halfLifeMs = 60_000

/** A readme to check, and the tenants that answer for what it costs: the organisation of its repo and that of its caller. */
export interface ReadmeToCheck {
  readonly content: string
  readonly tenants: readonly string[]
}

interface WaitingReadme extends ReadmeToCheck {
  readonly signal: AbortSignal
  readonly done: PromiseWithResolvers<string | undefined>
}

interface TenantUse {
  readonly ms: number
  readonly atMs: number
}

/**
 * One thread that tenants share by the processor time that they used lately. Next is the readme whose tenants used least, of equals the one that waits longest.
 * The use of a readme counts for each of its tenants, so neither more organisations nor more identities give anyone a larger share.
 */
class ReadmeScheduler {
  readonly #thread = new ReadmeThread(maxCpuMs)
  readonly #used = new Map<string, TenantUse>()
  #waiting: WaitingReadme[] = []
  #running = false

  check(readme: ReadmeToCheck, signal: AbortSignal): Promise<string | undefined> {
    signal.throwIfAborted()
    this.#waiting = this.#waiting.filter((waiting) => !waiting.signal.aborted)
    for (const tenant of readme.tenants) {
      if (this.#waiting.filter(({ tenants }) => tenants.includes(tenant)).length < maxWaiting) continue
      throw new DomainError(8, '16 readmes of this organisation are already waiting; try again later', {
        reason: 'TOO_MANY_WAITING',
        details: { retryAfterMs },
      })
    }
    const waiting: WaitingReadme = { ...readme, signal, done: Promise.withResolvers() }
    this.#waiting.push(waiting)
    if (!this.#running) void this.#run()
    return untilAborted(waiting.done.promise, signal)
  }

  /** Renders until nothing waits. Never rejects. */
  async #run(): Promise<void> {
    this.#running = true
    for (let next = this.#take(); next !== undefined; next = this.#take()) {
      try {
        const { error, cpuMs } = await this.#thread.render(next.content)
        for (const tenant of next.tenants) this.#used.set(tenant, { ms: this.#usedBy(tenant) + cpuMs, atMs: performance.now() })
        next.done.resolve(error)
      } catch (error) {
        next.done.reject(error)
      }
    }
    this.#running = false
  }

  #take(): WaitingReadme | undefined {
    for (const tenant of this.#used.keys()) if (this.#usedBy(tenant) < 1) this.#used.delete(tenant)
    const waiting = this.#waiting.filter(({ signal }) => !signal.aborted)
    const costs = waiting.map(({ tenants }) => Math.max(...tenants.map((tenant) => this.#usedBy(tenant))))
    const [next] = waiting.splice(costs.indexOf(Math.min(...costs)), 1)
    this.#waiting = waiting
    return next
  }

  #usedBy(tenant: string): number {
    const used = this.#used.get(tenant)
    return used === undefined ? 0 : used.ms * 2 ** ((used.atMs - performance.now()) / halfLifeMs)
  }
}

const scheduler = new ReadmeScheduler()

/**
 * Returns the fault of a readme, or undefined. Readmes are rendered one after the other in a separate thread. A readme that costs more than 2 s of processor
 * time is refused, so a hostile one delays another tenant's by that much at most. Throws code 8 `TOO_MANY_WAITING`; rejects with the signal's reason.
 */
export async function checkReadme(readme: ReadmeToCheck, signal: AbortSignal): Promise<string | undefined> {
  return await scheduler.check(readme, signal)
}
