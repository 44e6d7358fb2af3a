import { isSuspended } from '../../authz/access.ts'
import { decide, visibilityOf } from '../../authz/effective-permissions.ts'
import { setOf, type CapabilitySet } from '../../base/capability.ts'
import { isWithin, rootOf, rootParent, trustedUid } from '../../base/uid.ts'
import { leavesOut } from '../../engine/membership.ts'
import type { LogEntry } from '../../engine/log/log-index.ts'
import type { Caller, Services } from '../../engine/services.ts'
import { eventTypes, passesTypes, type TypeFilter } from './event-types.ts'

const needed: ReadonlyMap<string, CapabilitySet> = new Map([...eventTypes.values()].map(({ type, capabilities }) => [type, setOf(capabilities)]))

/** Selects events by type and group. */
export interface FeedFilter extends TypeFilter {
  /** The group whose events are selected, including those of groups below it. If empty, all events that the caller may see. */
  readonly place: string
}

/** Returns true if an event passes the filter, even if the caller may not see it. */
export function passesFilter(filter: FeedFilter, { type, group }: LogEntry): boolean {
  return group !== '' && passesTypes(filter, type) && (filter.place === '' || isWithin(group, filter.place))
}

/**
 * Returns a predicate for the events that a caller can see, by its current rights (docs/spec/events.md#feed). The caller needs the
 * capability to list records of the subject's kind at the event's group. Call this again after every await.
 */
export function viewOf({ cache }: Pick<Services, 'cache'>, caller: Caller, filter: FeedFilter): (entry: LogEntry) => boolean {
  const { tables } = cache
  const permissions = caller.permissions()
  // As in lists: if no group is given, organisations are left out that a person has not joined.
  const isLeftOut = filter.place === '' ? leavesOut(tables, caller) : () => false
  return (entry) => {
    const { type, group } = entry
    const capabilities = needed.get(type)
    if (capabilities === undefined || !passesFilter(filter, entry)) return false
    if (decide(permissions, group, capabilities).kind !== 'allowed') return false
    // An event of a deleted root group belongs to no organisation.
    return group === rootParent || !(isSuspended(tables, trustedUid(group)) || isLeftOut(trustedUid(group)))
  }
}

/**
 * Returns true if the caller can currently see events of any group in a root group. For an empty root, returns whether it can see events
 * without an organisation, which needs rights everywhere.
 */
export function seesRoot(
  { cache }: Pick<Services, 'cache'>,
  caller: Caller,
  { filter, root }: { readonly filter: FeedFilter; readonly root: string },
): boolean {
  const { tables } = cache
  const permissions = caller.permissions()
  const isClosed = root !== '' && (isSuspended(tables, trustedUid(root)) || (filter.place === '' && leavesOut(tables, caller)(trustedUid(root))))
  if (isClosed) return false
  return [...needed].some(([type, capabilities]) => {
    if (!passesTypes(filter, type)) return false
    if (filter.place !== '' && decide(permissions, filter.place, capabilities).kind === 'allowed') return true
    const { everywhere, groups } = visibilityOf(permissions, capabilities)
    return everywhere || groups.some((group) => (filter.place === '' ? rootOf(group) === root : isWithin(group, filter.place)))
  })
}
