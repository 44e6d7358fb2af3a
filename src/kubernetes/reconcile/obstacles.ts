/** Which objects wait for a record of somebody else's to go, or to be given up: it is where theirs would be. */
export class Obstacles {
  readonly #uidOf = new Map<string, string>()
  readonly #keysOf = new Map<string, Set<string>>()

  /** The record `uid` is in the way of the object `key`; nothing is where undefined. */
  set(key: string, uid: string | undefined): void {
    const before = this.#uidOf.get(key)
    if (before === uid) return
    if (before !== undefined) this.#forget(before, key)
    if (uid === undefined) {
      this.#uidOf.delete(key)
      return
    }
    this.#uidOf.set(key, uid)
    const keys = this.#keysOf.get(uid) ?? new Set<string>()
    this.#keysOf.set(uid, keys.add(key))
  }

  /** The keys of the objects that the record is in the way of. */
  of(uid: string): Iterable<string> {
    return this.#keysOf.get(uid) ?? []
  }

  #forget(uid: string, key: string): void {
    const keys = this.#keysOf.get(uid)
    keys?.delete(key)
    if (keys?.size === 0) this.#keysOf.delete(uid)
  }
}
