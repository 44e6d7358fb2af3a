import { lineage, parentOf, trustedUid } from '../../base/uid.ts'
import type { LogEntry, Position } from '../../engine/log/log-index.ts'
import { testedType } from '../records/event-types.ts'
import type { SubscriptionWorker } from './subscription-worker.ts'

/** The workers of the subscriptions in one group. For event types that occurred before, also the workers that want them. */
interface AtGroup {
  readonly workers: Set<SubscriptionWorker>
  readonly byType: Map<string, readonly SubscriptionWorker[]>
}

/** Workers, indexed by the groups of their subscriptions. So an event costs nothing for subscriptions that do not want it. */
export class WorkersByGroup {
  readonly #groups = new Map<string, AtGroup>()
  /** Position of the previous event. */
  #passed: Position = { revision: 0, key: '' }

  /** Sets the position after which events will be offered. */
  startAfter(position: Position): void {
    this.#passed = position
  }

  add(worker: SubscriptionWorker): void {
    const group = parentOf(worker.uid)
    const held = this.#groups.get(group)
    if (held === undefined) this.#groups.set(group, { workers: new Set([worker]), byType: new Map() })
    else held.workers.add(worker)
    held?.byType.clear()
  }

  remove(worker: SubscriptionWorker): void {
    const group = parentOf(worker.uid)
    const held = this.#groups.get(group)
    held?.workers.delete(worker)
    held?.byType.clear()
    if (held?.workers.size === 0) this.#groups.delete(group)
  }

  /** Called when the record of a subscription has changed. */
  changed(worker: SubscriptionWorker): void {
    this.#groups.get(parentOf(worker.uid))?.byType.clear()
  }

  /** Offers an event to the workers that want it. The caller must offer all events of the log, in order. */
  offer(entry: LogEntry): void {
    const passed = this.#passed
    this.#passed = { revision: entry.revision, key: entry.key }
    if (entry.group === '' || entry.group === '/') return
    for (const place of lineage(trustedUid(entry.group))) {
      const held = this.#groups.get(place)
      if (held === undefined) continue
      for (const worker of interested(held, entry)) worker.offer(passed)
    }
  }
}

function interested({ workers, byType }: AtGroup, entry: LogEntry): Iterable<SubscriptionWorker> {
  // A test event goes only to the subscription that it names, whatever that subscription's types.
  if (entry.type === testedType) return workers
  const known = byType.get(entry.type)
  if (known !== undefined) return known
  const found = [...workers].filter((worker) => worker.mayWant(entry))
  byType.set(entry.type, found)
  return found
}
