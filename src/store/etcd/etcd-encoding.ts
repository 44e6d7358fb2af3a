import { randomUUID } from 'node:crypto'
import { prefixEnd, watchedPrefixes } from '../keys.ts'
import type { ClusterHead } from './cluster-identity.ts'
import type { EtcdEvent } from './etcd-lease-messages.ts'
import type { EtcdCompare, KeyValue, Operation, EtcdRangeRequest, TransactionRequest } from './etcd-messages.ts'
import { storeRevision, type Change, type Entry, type Guard, type RangeQuery, type Transaction, type Write } from '../store.ts'

/**
 * The head key. Every transaction on the watched prefixes writes it, so its revision shows how far a watch must progress (docs/adr/0001). It sorts before the
 * port's keys and is not one of them: no port key starts with `!`.
 */
const headName = '!head'
/** The start of the port's keys. */
const firstName = '"'
/** etcd's spelling of "no end" of a range. */
const noEnd = Buffer.from([0])

/** Converts between the port's terms and etcd's messages; every key is below `prefix`. */
export class EtcdEncoding {
  readonly #prefix: string
  /** The head key. */
  readonly head: Buffer
  /** Makes head values unique: no other process writes the same value, and this one only once. So equal heads are of one commit. */
  readonly #writer = randomUUID()
  #commits = 0

  constructor(prefix: string) {
    this.#prefix = prefix
    this.head = this.key(headName)
  }

  /** Returns the key in etcd. */
  key(name: string): Buffer {
    return Buffer.from(this.#prefix + name)
  }

  range({ prefix, after = '', before, limit, revision = storeRevision(0) }: RangeQuery): EtcdRangeRequest {
    const within = this.#within(prefix)
    const key = after < prefix || after < firstName ? within.key : this.key(`${after}\0`)
    const end = before === undefined ? undefined : this.key(before)
    const range_end = end !== undefined && (within.range_end === noEnd || end.compare(within.range_end) < 0) ? end : within.range_end
    return { key, range_end, limit, revision }
  }

  /** Returns the range from the head key to the end of the last of `prefixes`. */
  watchRange(prefixes: readonly string[]): { key: Buffer; rangeEnd: Buffer } {
    const ends = prefixes.map((prefix) => prefixEnd(this.#prefix + prefix))
    return { key: this.head, rangeEnd: endOf(ends.includes(undefined) ? undefined : ends.toSorted().at(-1)) }
  }

  /** Encodes a transaction. `fence` holds the adapter's additions: its comparisons come first. */
  transaction({ guards, writes }: Transaction, fence: TransactionRequest = {}): TransactionRequest {
    const success = writes.map((write) => this.#operation(write))
    const isWatched = writes.some((write) => watchedPrefixes.some((prefix) => write.key.startsWith(prefix)))
    if (isWatched) success.push({ request_put: { key: this.head, value: Buffer.from(`${this.#writer} ${++this.#commits}`) } })
    return { ...fence, compare: [...(fence.compare ?? []), ...guards.map((guard) => this.#compare(guard))], success }
  }

  entry({ key, value, mod_revision }: KeyValue): Entry {
    return { key: this.#name(key), value, revision: storeRevision(Number(mod_revision)) }
  }

  /** Returns the head found by a read of its key; an empty head if `kv` is undefined. */
  headOf(kv: KeyValue | undefined): ClusterHead {
    return kv === undefined ? { revision: 0, mark: '' } : { revision: Number(kv.mod_revision), mark: kv.value.toString('latin1') }
  }

  /** Returns the head after these watch events; undefined if they do not change it. */
  headIn(events: readonly EtcdEvent[]): ClusterHead | undefined {
    const event = events.findLast(({ kv }) => this.#name(kv.key) === headName)
    return event === undefined ? undefined : this.headOf(event.kv)
  }

  /** Returns the changes below `prefixes`. */
  changes(events: readonly EtcdEvent[], prefixes: readonly string[]): Change[] {
    return events
      .map((event) => ({ ...this.entry(event.kv), event }))
      .filter(({ key }) => prefixes.some((prefix) => key.startsWith(prefix)) && key !== headName)
      .map(({ key, value, revision, event }) => ({ key, value: event.isDelete ? undefined : value, revision }))
  }

  #name(key: Buffer): string {
    return key.toString('latin1', this.#prefix.length)
  }

  #within(prefix: string): { key: Buffer; range_end: Buffer } {
    return { key: this.key(prefix === '' ? firstName : prefix), range_end: endOf(prefixEnd(this.#prefix + prefix)) }
  }

  #compare(guard: Guard): EtcdCompare {
    if (guard.kind === 'empty') return { ...this.#within(guard.prefix), target: 'create', result: 'equal', create_revision: 0 }
    if (guard.kind === 'quiet') return { ...this.#within(guard.prefix), target: 'mod', result: 'less', mod_revision: guard.revision + 1 }
    const key = this.key(guard.key)
    if (guard.kind === 'unchanged') return { key, target: 'mod', result: 'equal', mod_revision: guard.revision }
    return { key, target: 'create', result: guard.kind === 'absent' ? 'equal' : 'greater', create_revision: 0 }
  }

  #operation(write: Write): Operation {
    const key = this.key(write.key)
    if (write.kind === 'delete') return { request_delete_range: { key } }
    const { buffer, byteOffset, byteLength } = write.value
    return { request_put: { key, value: Buffer.from(buffer, byteOffset, byteLength) } }
  }
}

function endOf(end: string | undefined): Buffer {
  return end === undefined ? noEnd : Buffer.from(end)
}
