import type { Keyring } from './sealing.ts'
import type { Clock } from '../../base/runtime.ts'
import { untilAborted } from '../../base/timing.ts'
import { StoreError, type Entry, type Guard, type Store, type Write } from '../../store/store.ts'

/** When keys of one kind are created, used and removed. All times are in milliseconds. */
export interface KeySchedule {
  /** Time for which a key is used before the next one takes over. */
  readonly rotateEveryMs: number
  /** Time for which a new key is published before it is used. */
  readonly publishAheadMs: number
  /**
   * Time for which an old key is kept after the next one took over. It covers the longest lifetime of what the key signed or encrypted, and differences
   * between clocks.
   */
  readonly retainMs: number
}

/** The id of a key, and the time from which it is used. Its use ends at the `usedFromMs` of the next key. */
export interface ScheduledKey {
  readonly id: string
  readonly usedFromMs: number
}

/** An action that the schedule requires: to create a key, or to delete one. */
type KeyAction = { readonly kind: 'create'; readonly usedFromMs: number } | { readonly kind: 'delete'; readonly id: string }

/**
 * Returns the actions due now. If they are applied at least every `publishAheadMs`, the following holds. There is always a key in use. A key other than the
 * first is used only after it was published for `publishAheadMs`. What a key signed or encrypted can be verified or decrypted for `retainMs` after its last
 * use.
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

/** Returns the key to use now: the one that most recently came into use. If none has, because the clock was set back, returns the first one. */
export function keyInUse<Key extends ScheduledKey>(nowMs: number, keys: readonly Key[]): Key | undefined {
  const ordered = inOrder(keys)
  return ordered.findLast((key) => key.usedFromMs <= nowMs) ?? ordered[0]
}

function inOrder<Key extends ScheduledKey>(keys: readonly Key[]): readonly Key[] {
  return keys.toSorted((one, other) => one.usedFromMs - other.usedFromMs || (one.id < other.id ? -1 : 1))
}

/** The properties of one kind of key: where its keys are stored, and how they are generated. */
export interface KeyKind<Key> {
  /** Prefix of the keys' entries in the store: `meta/<name>/`. */
  readonly prefix: string
  readonly schedule: KeySchedule
  /** Generates a key: its id, its public data (JSON), and its secret, which is stored encrypted. */
  generate(): Promise<{ readonly id: string; readonly shown: unknown; readonly secret: Uint8Array }>
  load(id: string, shown: unknown, secret: Uint8Array): Promise<Key>
}

/** Keys in the store that are replaced on a schedule. All replicas use the same keys. */
export interface RotatingKeys<Key> {
  /** Returns the key that signs or encrypts now. */
  current(): Key
  /** Returns the live key with this id. A key is live if it is published, in use, or kept to verify or decrypt. */
  find(id: string): Key | undefined
  /** Like `find`. If the id is unknown, reads the store again, at most once a second. */
  lookup(id: string, signal: AbortSignal): Promise<Key | undefined>
  /** Returns all live keys. */
  all(): readonly Key[]
  /** Returns the time until which the newest key is used, by the schedule, in milliseconds since 1970. It passes only if no next key could be created. */
  lastUseMs(): number
  /** Returns a number that changes whenever the set of live keys does. */
  generation(): number
  /** Reads the keys from the store again. Call it when an entry below the prefix changed. */
  reload(signal: AbortSignal): Promise<void>
  /**
   * Creates and deletes keys as the schedule requires, then reloads. Call it at least hourly, on any replica. If two replicas call it at once, one of them
   * makes the changes.
   */
  maintain(signal: AbortSignal): Promise<void>
}

/** The dependencies of rotating keys. */
export interface RotatingKeysOptions {
  readonly store: Store
  readonly keyring: Keyring
  readonly clock: Clock
}

/** The stored form of a key, as JSON. `sealed` is the encrypted secret in base64; its encryption context is the entry's key. */
interface StoredKey extends ScheduledKey {
  readonly version: 1
  readonly shown: unknown
  readonly sealed: string
}

interface HeldKey<Key> extends ScheduledKey {
  readonly entry: Entry
  readonly key: Key
}

const maxKeys = 1000
const maxRounds = 10
const lookupEveryMs = 1000
const lookupTimeoutMs = 5000

/** Reads the keys from the store and creates those that are due. If the store is full, only a missing first key is an error. Throws SealingError or StoreError. */
export async function createRotatingKeys<Key>(kind: KeyKind<Key>, options: RotatingKeysOptions, signal: AbortSignal): Promise<RotatingKeys<Key>> {
  const { store, keyring, clock } = options
  let held: readonly HeldKey<Key>[] = []
  let reads = 0
  let newestRead = 0
  let generation = 0

  async function reload(loadSignal: AbortSignal): Promise<void> {
    reads += 1
    const read = reads
    const { entries } = await store.range({ prefix: kind.prefix, limit: maxKeys }, loadSignal)
    const known = new Map(held.map((one) => [one.entry.key, one]))
    const loaded = await Promise.all(
      entries.map((entry) => {
        const same = known.get(entry.key)
        return same !== undefined && same.entry.revision === entry.revision ? Promise.resolve(same) : loadKey(kind, keyring, entry)
      }),
    )
    // Ignore a read that began before the newest one, because reads may overtake each other. The store's revision cannot show the order: it decreases if the
    // store is restored.
    if (read < newestRead) return
    newestRead = read
    if (loaded.length !== held.length || loaded.some((one, index) => one !== held[index])) generation += 1
    held = loaded
  }

  async function maintain(maintainSignal: AbortSignal): Promise<void> {
    for (let round = 0; round < maxRounds; round += 1) {
      await reload(maintainSignal)
      const [action] = planKeys(clock.now(), held, kind.schedule)
      if (action === undefined) return
      const step = action.kind === 'create' ? await creation(kind, { held, usedFromMs: action.usedFromMs, keyring, clock }) : deletion(held, action.id)
      await store.transact(step, maintainSignal)
    }
  }

  const find = (id: string): Key | undefined => held.find((one) => one.id === id)?.key
  const lookUp = boundedReads(reload, clock)
  try {
    await maintain(signal)
  } catch (error) {
    // A full store can still be read, and the existing keys suffice until there is space for the next one.
    if (!(error instanceof StoreError && error.kind === 'exhausted' && held.length > 0)) throw error
  }
  return {
    current() {
      const inUse = keyInUse(clock.now(), held)
      if (inUse === undefined) throw new Error(`the store has no key below ${kind.prefix}`)
      return inUse.key
    },
    find,
    async lookup(id, lookupSignal) {
      const known = find(id)
      if (known !== undefined) return known
      await lookUp(lookupSignal)
      return find(id)
    },
    all: () => held.map((one) => one.key),
    lastUseMs: () => Math.max(...held.map((one) => one.usedFromMs)) + kind.schedule.rotateEveryMs,
    generation: () => generation,
    reload,
    maintain,
  }
}

/** Limits reads to one per second. Concurrent callers share the read under way, so none of them can abort it for the others. */
function boundedReads(read: (signal: AbortSignal) => Promise<void>, clock: Clock): (signal: AbortSignal) => Promise<void> {
  let readAtMs = -Infinity
  let running: Promise<void> | undefined

  async function readNow(): Promise<void> {
    try {
      await read(AbortSignal.timeout(lookupTimeoutMs))
      readAtMs = clock.now()
    } finally {
      running = undefined
    }
  }

  return async (signal) => {
    if (running === undefined && Math.abs(clock.now() - readAtMs) < lookupEveryMs) return
    running ??= readNow()
    await untilAborted(running, signal)
  }
}

async function loadKey<Key>(kind: KeyKind<Key>, keyring: Keyring, entry: Entry): Promise<HeldKey<Key>> {
  const stored = JSON.parse(Buffer.from(entry.value).toString('utf8')) as StoredKey // This program wrote the record, and its secret is authenticated by the encryption.
  const secret = keyring.open(Buffer.from(stored.sealed, 'base64'), entry.key)
  return { id: stored.id, usedFromMs: stored.usedFromMs, entry, key: await kind.load(stored.id, stored.shown, secret) }
}

interface KeyStep {
  readonly guards: readonly Guard[]
  readonly writes: readonly Write[]
}

interface CreationInput<Key> extends Pick<RotatingKeysOptions, 'keyring' | 'clock'> {
  readonly held: readonly HeldKey<Key>[]
  /** Planned time of first use. It becomes later if the key took long to generate. */
  readonly usedFromMs: number
}

/**
 * Returns the transaction that creates a key. It also rewrites the newest key unchanged, with a guard, so that only one of several replicas adds the next key.
 * The time to publish counts from the end of the generation. Otherwise, if time jumped meanwhile, the current key would be deleted while it is in use.
 */
async function creation<Key>(kind: KeyKind<Key>, { held, keyring, clock, ...planned }: CreationInput<Key>): Promise<KeyStep> {
  const { id, shown, secret } = await kind.generate()
  const key = `${kind.prefix}${id}`
  const usedFromMs = held.length === 0 ? planned.usedFromMs : Math.max(planned.usedFromMs, clock.now() + kind.schedule.publishAheadMs)
  const sealed = Buffer.from(keyring.seal(secret, key)).toString('base64')
  const record: StoredKey = { version: 1, id, usedFromMs, shown, sealed }
  const put: Write = { kind: 'put', key, value: Buffer.from(JSON.stringify(record)) }
  const newest = keyInUse(Infinity, held)?.entry
  if (newest === undefined) return { guards: [{ kind: 'empty', prefix: kind.prefix }], writes: [put] }
  return { guards: [{ kind: 'unchanged', key: newest.key, revision: newest.revision }], writes: [{ kind: 'put', key: newest.key, value: newest.value }, put] }
}

function deletion<Key>(held: readonly HeldKey<Key>[], id: string): KeyStep {
  const entry = held.find((one) => one.id === id)?.entry
  if (entry === undefined) return { guards: [], writes: [] }
  return { guards: [{ kind: 'unchanged', key: entry.key, revision: entry.revision }], writes: [{ kind: 'delete', key: entry.key }] }
}
