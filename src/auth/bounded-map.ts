import { RecentMap } from '../base/recent-map.ts'

/** A cache of at most `limit` entries. Reading counts as use. */
export function createBoundedMap<Value extends NonNullable<unknown>>(limit: number): RecentMap<string, Value> {
  return new RecentMap(limit)
}
