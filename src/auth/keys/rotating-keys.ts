import type { Keyring } from './sealing.ts'
import type { Clock } from '../../base/runtime.ts'
import { untilAborted } from '../../base/timing.ts'
import { StoreError, type Entry, type Guard, type Store, type Write } from '../../store/store.ts'

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
type KeyAction = { readonly kind: 'create'; readonly usedFromMs: number } | { readonly kind: 'delete'; readonly id: string }

/**
 * Returns the actions due now. The guarantees below hold if they are applied at least every `publishAheadMs`. There is always a key in use.
 * A key other than the first is used only after it was published for `publishAheadMs`. What a key signed or sealed can be checked for `retainMs` after its last use.
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

/** What is particular to one kind of key. */
export interface KeyKind<Key> {
  /** Where its records are: `meta/<name>/`. */
  readonly prefix: string
  readonly schedule: KeySchedule
  /** A new key: its id, what may be shown of it (JSON), and its secret, which is sealed. */
  generate(): Promise<{ readonly id: string; readonly shown: unknown; readonly secret: Uint8Array }>
  load(id: string, shown: unknown, secret: Uint8Array): Promise<Key>
}

/** Keys in the store that replace each other on a schedule; every replica sees the same ones. */
export interface RotatingKeys<Key> {
  /** The key to use now. */
  current(): Key
  /** A key that is live: to be used, in use, or kept for what it made. */
  find(id: string): Key | undefined
  /** As `find`; asks the store for an id that is not known here, at most once a second. */
  lookup(id: string, signal: AbortSignal): Promise<Key | undefined>
  /** All live keys. */
  all(): readonly Key[]
  /** Changes whenever the set of live keys does. */
  generation(): number
  /** Reads the store again; to be called when something under the prefix changed. */
  reload(signal: AbortSignal): Promise<void>
  /** Does what the schedule asks for, then reloads. Any replica may call it at any time; of two that race one wins. To be called at least hourly. */
  maintain(signal: AbortSignal): Promise<void>
}

/** What rotating keys are made of. */
export interface RotatingKeysOptions {
  readonly store: Store
  readonly keyring: Keyring
  readonly clock: Clock
}

/** The stored form: JSON; `sealed` is base64, its context is the record's key. */
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

/** Reads the store's keys and makes those that are due, except that only the first is made for sure in a full store. Throws SealingError or StoreError. */
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
    // Reads may overtake each other: one that began earlier changes nothing. The store's revision says nothing here: it goes back where the store was restored.
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
      const step = action.kind === 'create' ? await creation(kind, keyring, { held, usedFromMs: action.usedFromMs }) : deletion(held, action.id)
      await store.transact(step, maintainSignal)
    }
  }

  const find = (id: string): Key | undefined => held.find((one) => one.id === id)?.key
  const lookUp = boundedReads(reload, clock)
  try {
    await maintain(signal)
  } catch (error) {
    // A full store can still be read. The existing keys suffice until there is room for the next one.
    if (!(error instanceof StoreError && error.kind === 'exhausted' && held.length > 0)) throw error
  }
  return {
    current() {
      const inUse = keyInUse(clock.now(), held)
      if (inUse === undefined) throw new Error(`no key under ${kind.prefix}`)
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
    generation: () => generation,
    reload,
    maintain,
  }
}

/** Reads at most once a second. All who ask meanwhile share the read that runs, so none of them can end it for the others. */
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
  const stored = JSON.parse(Buffer.from(entry.value).toString('utf8')) as StoredKey // a cast of our own record; what is secret in it is authenticated by the seal
  const secret = keyring.open(Buffer.from(stored.sealed, 'base64'), entry.key)
  return { id: stored.id, usedFromMs: stored.usedFromMs, entry, key: await kind.load(stored.id, stored.shown, secret) }
}

interface KeyStep {
  readonly guards: readonly Guard[]
  readonly writes: readonly Write[]
}

interface CreationInput<Key> {
  readonly held: readonly HeldKey<Key>[]
  readonly usedFromMs: number
}

/** Writes the newest key again unchanged, and guards it: so only one of several replicas adds its successor. */
async function creation<Key>(kind: KeyKind<Key>, keyring: Keyring, { held, usedFromMs }: CreationInput<Key>): Promise<KeyStep> {
  const { id, shown, secret } = await kind.generate()
  const key = `${kind.prefix}${id}`
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
