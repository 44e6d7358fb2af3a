import { randomUUID } from 'node:crypto'
import { prefixEnd, watchedPrefixes } from '../keys.ts'
import type { ClusterHead } from './cluster-identity.ts'
import type { EtcdEvent } from './etcd-lease-messages.ts'
import type { EtcdCompare, KeyValue, Operation, EtcdRangeRequest, TransactionRequest } from './etcd-messages.ts'
import { storeRevision, type Change, type Entry, type Guard, type RangeQuery, type Transaction, type Write } from '../store.ts'

/**
 * Name of the head key, a marker that every transaction on the watched prefixes rewrites. So its revision shows how far a watch must progress (docs/adr/0001).
 * It sorts before all keys of the store port, none of which starts with `!`.
 */
const headName = '!head'
/** A name that sorts before all keys of the store port and after the head key. */
const firstName = '"'
/** etcd's value for a range without an end. */
const noEnd = Buffer.from([0])

/** Converts keys and transactions of the store port to etcd's messages, and etcd's answers back. Every key is below `prefix`. */
export class EtcdEncoding {
  readonly #prefix: string
  /** Key of the marker that every transaction on the watched prefixes rewrites. */
  readonly head: Buffer
  /** Makes each value of the head key unique, so that two equal values were written by the same commit. */
  readonly #writer = randomUUID()
  #commits = 0

  constructor(prefix: string) {
    this.#prefix = prefix
    this.head = this.key(headName)
  }

  /** Returns the key in etcd for a key of the store port. */
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

  /** Returns the range that a watch of `prefixes` needs: from the head key to the end of the last prefix. */
  watchRange(prefixes: readonly string[]): { key: Buffer; rangeEnd: Buffer } {
    const ends = prefixes.map((prefix) => prefixEnd(this.#prefix + prefix))
    return { key: this.head, rangeEnd: endOf(ends.includes(undefined) ? undefined : ends.toSorted().at(-1)) }
  }

  /** Encodes a transaction of the store port. `fence` holds comparisons and operations to add; its comparisons come first. */
  transaction({ guards, writes }: Transaction, fence: TransactionRequest = {}): TransactionRequest {
    const success = writes.map((write) => this.#operation(write))
    const isWatched = writes.some((write) => watchedPrefixes.some((prefix) => write.key.startsWith(prefix)))
    if (isWatched) success.push({ request_put: { key: this.head, value: Buffer.from(`${this.#writer} ${++this.#commits}`) } })
    return { ...fence, compare: [...(fence.compare ?? []), ...guards.map((guard) => this.#compare(guard))], success }
  }

  entry({ key, value, mod_revision }: KeyValue): Entry {
    return { key: this.#name(key), value, revision: storeRevision(Number(mod_revision)) }
  }

  /** Returns the last commit on the watched prefixes from the head key's value; revision 0 if the key does not exist. */
  headOf(kv: KeyValue | undefined): ClusterHead {
    return kv === undefined ? { revision: 0, mark: '' } : { revision: Number(kv.mod_revision), mark: kv.value.toString('latin1') }
  }

  /** Returns the last commit on the watched prefixes as shown by these watch events; undefined if they do not contain the head key. */
  headIn(events: readonly EtcdEvent[]): ClusterHead | undefined {
    const event = events.findLast(({ kv }) => this.#name(kv.key) === headName)
    return event === undefined ? undefined : this.headOf(event.kv)
  }

  /** Returns the changes of keys below `prefixes` in watch events. */
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
