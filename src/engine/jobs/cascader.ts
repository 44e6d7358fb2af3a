import { errorText } from '../../base/error-text.ts'
import type { Log } from '../../base/log.ts'
import { trustedUid, type Uid } from '../../base/uid.ts'
import { recordOfBytes } from '../../cache/records/record-factory.ts'
import type { RecordCache } from '../../cache/record-cache.ts'
import { belowPrefix, parseRecordKey, pendingPrefix, recordKey, cascadeKey, cascadePrefix, usedByPrefix } from '../../store/keys.ts'
import type { Entry, Guard, Store } from '../../store/store.ts'
import { ChangeSet, indexKeysOf, ownersOf, relationOf } from '../change-set.ts'
import type { AnyKind } from '../kind.ts'
import { oneByOne } from './one-by-one.ts'
import type { Cascader } from '../services.ts'

/** Maximum number of keys that one transaction deletes. etcd accepts 128 operations. */
const maxDeletes = 100
const pageEntries = 100

/**
 * Removes the dependents of removed records. They count as absent as soon as the deletion mark exists; this frees their keys. Any replica may run it at any
 * time, because it can be stopped, resumed and repeated. The leader runs it as soon as a mark appears (docs/spec/storage.md#deletion-marks).
 */
export class StoreCascader implements Cascader {
  readonly #store: Store
  readonly #cache: RecordCache
  readonly #kinds: ReadonlyMap<string, AnyKind>
  readonly #log: Log

  constructor(options: { store: Store; cache: RecordCache; kinds: ReadonlyMap<string, AnyKind>; log: Log }) {
    this.#store = options.store
    this.#cache = options.cache
    this.#kinds = options.kinds
    this.#log = options.log
  }

  async finish(signal: AbortSignal): Promise<boolean> {
    const marks = this.#cache.tables.cascades()
    await oneByOne(marks, (mark) => this.#cascade(mark, signal), {
      signal,
      failed: ({ kind, uid }, error) => this.#log.warn('removing the dependents of a removed record failed', { kind, uid, error: errorText(error) }),
    })
    return marks.length > 0
  }

  async finishBlocking(guards: readonly Guard[], signal: AbortSignal): Promise<boolean> {
    // Usually there are no deletion marks, and nothing is read. Otherwise all guards are checked together.
    if (this.#cache.tables.cascades().length === 0) return false
    const behind = await Promise.all(guards.map((guard) => this.#marksBehind(guard, signal)))
    const marks = new Map(behind.flat().map((mark) => [mark.uid, mark]))
    for (const mark of marks.values()) await this.#cascade(mark, signal)
    return marks.size > 0
  }

  /**
   * Returns the deletion marks that make `guard` fail. Either the guard's own key is a mark, or the first record found by the guard depends on a marked
   * record.
   */
  async #marksBehind(guard: Guard, signal: AbortSignal): Promise<readonly CascadeMark[]> {
    const { tables } = this.#cache
    if (guard.kind === 'absent' && guard.key.startsWith(cascadePrefix)) return tables.cascades().filter(({ uid }) => cascadeKey(uid) === guard.key)
    const entry = await this.#entryAgainst(guard, signal)
    const holder = entry === undefined ? undefined : holderOf(entry)
    const kind = this.#kinds.get(holder?.kind ?? '')
    if (holder === undefined || kind === undefined || kind.index.removedWith.length === 0) return []
    // If readers see the record, no deletion mark hides it.
    if (tables.get(holder.kind, holder.uid) !== undefined) return []
    const record = await this.#store.get(recordKey(holder.kind, holder.uid), signal)
    if (record === undefined) return []
    const cached = recordOfBytes(kind.index, { uid: holder.uid, bytes: record.value, revision: record.revision })
    return tables.cascades().filter((mark) => ownersOf(kind, cached).some((owner) => owner.uid === mark.uid && owner.kind === mark.kind))
  }

  /** Returns the first entry that makes a guard fail which requires that there is none. */
  async #entryAgainst(guard: Guard, signal: AbortSignal): Promise<Entry | undefined> {
    if (guard.kind === 'absent') return this.#store.get(guard.key, signal)
    if (guard.kind !== 'empty') return undefined
    return (await this.#store.range({ prefix: guard.prefix, limit: 1 }, signal)).entries[0]
  }

  async #cascade(mark: CascadeMark, signal: AbortSignal): Promise<void> {
    const key = cascadeKey(mark.uid)
    const entry = this.#cache.tables.entry(key)
    if (entry === undefined) return
    // Every change requires this exact mark. Another replica may have finished the cascade already, and the uid of a person may be in use again.
    const marked = { kind: 'unchanged', key, revision: entry.revision } as const
    let removed = 0
    for (const kind of this.#kinds.values()) {
      for (const rule of kind.index.removedWith) {
        if (rule.kind === mark.kind) removed += await this.#cascadeKind(kind, { filter: rule.filter, uid: mark.uid, mark: marked }, signal)
      }
    }
    if (mark.kind === 'Identity') await this.#forgetPending(mark.uid, marked, signal)
    const done = await this.#store.transact({ guards: [marked], writes: [{ kind: 'delete', key }] }, signal)
    if (done.committed) await this.#cache.reached(done.revision, signal)
    if (removed > 0) this.#log.info('swept', { kind: mark.kind, uid: mark.uid, removed })
  }

  /** Removes the pending-membership keys of a removed person in all organisations. */
  async #forgetPending(person: Uid, mark: Guard, signal: AbortSignal): Promise<void> {
    for (;;) {
      const { entries } = await this.#store.range({ prefix: `${pendingPrefix}${person}/`, limit: maxDeletes }, signal)
      if (entries.length === 0) return
      const { committed } = await this.#store.transact({ guards: [mark], writes: entries.map(({ key }) => ({ kind: 'delete', key })) }, signal)
      if (!committed) return
    }
  }

  async #cascadeKind(kind: AnyKind, owner: { filter: string; uid: Uid; mark: Guard & { kind: 'unchanged' } }, signal: AbortSignal): Promise<number> {
    let removed = 0
    const flush = async (changes: ChangeSet, count: number): Promise<void> => {
      changes.guard(owner.mark)
      const { committed } = await this.#store.transact(changes, signal)
      if (committed) removed += count
    }
    for (let after: string | undefined; ;) {
      const { records, last } =
        owner.filter === 'parent' ? await this.#children(kind, { ...owner, after }, signal) : await this.#users(kind, { ...owner, after }, signal)
      // Start again from the beginning for a last check. Until then each page starts after the previous one, because deleted keys cost etcd time until it
      // compacts.
      if (last === undefined && after === undefined) return removed
      after = last
      const held = await this.#store.get(owner.mark.key, signal)
      if (held?.revision !== owner.mark.revision) return removed
      let changes = new ChangeSet()
      let count = 0
      for (const entry of records) {
        const uid = trustedUid(entry.key.slice(recordKey(kind.index.kind, trustedUid('')).length))
        const record = recordOfBytes(kind.index, { uid, bytes: entry.value, revision: entry.revision })
        if (changes.writes.length + 1 + indexKeysOf(kind, uid, record.message).length > maxDeletes) {
          await flush(changes, count)
          changes = new ChangeSet()
          count = 0
        }
        // Guarded by the record's revision. If another cascade removed the record first, the next round reads again.
        changes.remove(kind, record)
        count += 1
      }
      if (count > 0) await flush(changes, count)
    }
  }

  async #children(kind: AnyKind, owner: DependentsCursor, signal: AbortSignal): Promise<DependentsPage> {
    const { entries } = await this.#store.range({ ...pageAfter(owner), prefix: belowPrefix(kind.index.kind, owner.uid) }, signal)
    return { records: entries, last: entries.at(-1)?.key }
  }

  /** Returns a page of records that refer to `owner.uid` in the relation `owner.filter`. They are found by their reverse keys. */
  async #users(kind: AnyKind, owner: DependentsCursor, signal: AbortSignal): Promise<DependentsPage> {
    const prefix = usedByPrefix(relationOf(kind, owner.filter), owner.uid)
    const { entries } = await this.#store.range({ ...pageAfter(owner), prefix }, signal)
    const records = await Promise.all(
      entries.map(async ({ key, revision }) => {
        const entry = await this.#store.get(recordKey(kind.index.kind, trustedUid(key.slice(prefix.length))), signal)
        const guards = [{ kind: 'unchanged', key, revision }] as const
        if (entry === undefined) await this.#store.transact({ guards, writes: [{ kind: 'delete', key }] }, signal)
        return entry
      }),
    )
    return { records: records.filter((entry) => entry !== undefined), last: entries.at(-1)?.key }
  }
}

/** A removed record of which not all dependents are removed yet. */
type CascadeMark = ReturnType<RecordCache['tables']['cascades']>[number]

/** Returns the kind and uid of the record to which a key belongs. */
function holderOf({ key, value }: Entry): { kind: string; uid: Uid } | undefined {
  const [space, first = '', second = ''] = key.split('/', 3)
  if (space === 'r') return { kind: first, uid: trustedUid(parseRecordKey(key).uid) }
  if (first === 'used') return { kind: second.split('.', 1)[0] ?? '', uid: trustedUid(key.slice(key.lastIndexOf(':') + 1)) }
  return first === 'name' || first === 'managed' ? { kind: second, uid: trustedUid(Buffer.from(value).toString()) } : undefined
}

/** A search for the dependents of a removed record: the record, the relation, and the key after which to continue. */
interface DependentsCursor {
  readonly filter: string
  readonly uid: Uid
  readonly after: string | undefined
}

/** A page of dependent records. `last` is the key after which to continue; undefined at the end. */
interface DependentsPage {
  readonly records: readonly Entry[]
  readonly last: string | undefined
}

function pageAfter({ after }: DependentsCursor): { limit: number; after?: string } {
  return { limit: pageEntries, ...(after === undefined ? {} : { after }) }
}
