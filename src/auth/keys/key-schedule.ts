/** When keys of one kind are made, used and removed; all in milliseconds. */
export interface KeySchedule {
  /** A key is used for so long. */
  readonly rotateEveryMs: number
  /** A new key is published for so long before it is used. */
  readonly publishAheadMs: number
  /** An old key is kept for so long after the next one took over: the longest life of what it made, and clocks that differ. */
  readonly retainMs: number
}

/** A key as far as the schedule goes. It is used from `usedFromMs` until the next one's `usedFromMs`. */
export interface ScheduledKey {
  readonly id: string
  readonly usedFromMs: number
}

/** One step that the schedule asks for. */
export type KeyAction = { readonly kind: 'create'; readonly usedFromMs: number } | { readonly kind: 'delete'; readonly id: string }

/**
 * What to do now. Guarantees, if it is applied at least every `publishAheadMs`: there is always a key in use; a key is used only after it was published for
 * `publishAheadMs` (the very first excepted); what a key made is checkable for `retainMs` after the key was last used.
 */
export function planKeys(nowMs: number, keys: readonly ScheduledKey[], schedule: KeySchedule): readonly KeyAction[] {
  const ordered = inOrder(keys)
  const newest = ordered.at(-1)
  if (newest === undefined) return [{ kind: 'create', usedFromMs: nowMs }]
  const actions: KeyAction[] = []
  for (const [index, key] of ordered.entries()) {
    const successor = ordered[index + 1]
    if (successor !== undefined && successor.usedFromMs + schedule.retainMs <= nowMs) actions.push({ kind: 'delete', id: key.id })
  }
  const dueMs = newest.usedFromMs + schedule.rotateEveryMs
  if (nowMs >= dueMs - schedule.publishAheadMs) actions.push({ kind: 'create', usedFromMs: Math.max(dueMs, nowMs + schedule.publishAheadMs) })
  return actions
}

/** The key to use now: the newest whose time has come, or the first of all where none has (a clock that was set back). */
export function keyInUse<Key extends ScheduledKey>(nowMs: number, keys: readonly Key[]): Key | undefined {
  const ordered = inOrder(keys)
  return ordered.findLast((key) => key.usedFromMs <= nowMs) ?? ordered[0]
}

function inOrder<Key extends ScheduledKey>(keys: readonly Key[]): readonly Key[] {
  return keys.toSorted((one, other) => one.usedFromMs - other.usedFromMs || (one.id < other.id ? -1 : 1))
}
