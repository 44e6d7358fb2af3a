import type { Entry, Store } from '../../store/store.ts'

/** Up to this many keys are read one by one, all at once. */
const readsAtOnce = 64
/** Entries of one range. */
const rangeEntries = 128

/** What is looked for: digests as the last part of a key, below a prefix. */
export interface Sought {
  readonly prefix: string
  readonly digests: readonly string[]
  /** Whether an entry counts. */
  readonly isHeld: (entry: Entry) => boolean
}

/** The digests that have an entry which counts. A few are read by key, many in ranges. */
export async function heldAmong(store: Store, { prefix, digests, isHeld }: Sought, signal: AbortSignal): Promise<Set<string>> {
  const held = new Set<string>()
  const note = (entry: Entry | undefined): void => {
    if (entry !== undefined && isHeld(entry)) held.add(entry.key.slice(prefix.length))
  }
  if (digests.length <= readsAtOnce) {
    for (const entry of await Promise.all(digests.map((digest) => store.get(`${prefix}${digest}`, signal)))) note(entry)
    return held
  }
  const sorted = [...digests].sort()
  for (let at = 0; at < sorted.length;) {
    const first = sorted[at] ?? ''
    // Just before the key that is wanted next.
    const { entries, more } = await store.range({ prefix, after: `${prefix}${first.slice(0, -1)}`, limit: rangeEntries }, signal)
    for (const entry of entries) note(entry)
    const last = entries.at(-1)?.key.slice(prefix.length)
    if (last === undefined || !more) break
    while (at < sorted.length && (sorted[at] ?? '') <= last) at++
  }
  return held
}
