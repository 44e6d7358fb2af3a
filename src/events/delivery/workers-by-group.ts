import { lineage, parentOf, trustedUid } from '../../base/uid.ts'
import type { LogEntry, Position } from '../../engine/log/log-index.ts'
import { testedType } from '../records/event-types.ts'
import type { SubscriptionWorker } from './subscription-worker.ts'

/** The workers of the subscriptions in one group, and those that want events of a type, as far as it was asked. */
interface AtGroup {
  readonly workers: Set<SubscriptionWorker>
  readonly byType: Map<string, readonly SubscriptionWorker[]>
}

/** The workers by the groups of their subscriptions. An event costs nothing for the subscriptions that do not want it. */
export class WorkersByGroup {
  readonly #groups = new Map<string, AtGroup>()
  /** The position of the event before. */
  #passed: Position = { revision: 0, key: '' }

  /** Events that are offered from now on come after `position`. */
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

  /** The record of a subscription has changed. */
  changed(worker: SubscriptionWorker): void {
    this.#groups.get(parentOf(worker.uid))?.byType.clear()
  }

  /** Offers an event to the workers that want it. All events of the log must be offered, in their order. */
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
  // A test event goes to one subscription, whatever its types.
  if (entry.type === testedType) return workers
  const known = byType.get(entry.type)
  if (known !== undefined) return known
  const found = [...workers].filter((worker) => worker.mayWant(entry))
  byType.set(entry.type, found)
  return found
}
