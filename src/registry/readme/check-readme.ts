import { createHash } from 'node:crypto'
import { DomainError } from '../../base/errors.ts'
import { RecentMap } from '../../base/recent-map.ts'
import { untilAborted } from '../../base/timing.ts'
import { ReadmeThread } from './readme-thread.ts'

/** Processor time allowed for one readme, in milliseconds. Ordinary readmes of the maximum size use a fifth of it. */
const maxCpuMs = 2_000
/** Maximum number of waiting readmes of one tenant. */
const maxWaiting = 16
/** Suggested wait before a refused caller tries again, in milliseconds. */
const retryAfterMs = 1_000
/** Half-life of the processor time that counts for a tenant, in milliseconds. */
const halfLifeMs = 60_000

/** A readme to check, and the tenants that its processor time counts for: the organisations of its repo and of its caller. */
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
 * Renders readmes in one thread, which tenants share by their recent processor time. The next readme is the one whose tenants used least;
 * among equals, the one that has waited longest. The time counts for each tenant of the readme, so more organisations or identities do not
 * give a larger share.
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

  /** Renders waiting readmes until there are none. Never rejects. */
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

/** The digests of readmes that were accepted last. */
const accepted = new RecentMap<string, true>(64)

/**
 * Returns the fault of a readme, or undefined if it is valid. Readmes are rendered one after the other in a separate thread. A readme that
 * takes more than 2 s of processor time is refused, so it delays others by at most that much. Throws code 8 `TOO_MANY_WAITING`; rejects
 * with the signal's reason.
 */
export async function checkReadme(readme: ReadmeToCheck, signal: AbortSignal): Promise<string | undefined> {
  const digest = createHash('sha256').update(readme.content).digest('hex')
  if (accepted.get(digest) === true) return undefined
  const error = await scheduler.check(readme, signal)
  if (error === undefined) accepted.set(digest, true)
  return error
}
