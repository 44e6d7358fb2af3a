const decimal = /^[0-9]+$/

/** True where `one` is a later version than `other`, of the same type of objects. Versions are decimal numbers of any length; others (none that is known) count as later. */
export function isLater(one: string, other: string): boolean {
  if (!decimal.test(one) || !decimal.test(other)) return true
  return one.length === other.length ? one > other : one.length > other.length
}
