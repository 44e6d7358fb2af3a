import { fromBinary } from '@bufbuild/protobuf'
import { OutboxEventSchema } from '../../../src/gen/taproot/store/v1/envelope_pb.ts'
import type { Entry, Revision, Store } from '../../../src/store/store.ts'
import type { StateChange } from './protocol.ts'

/** The prefixes of all keys of the server. */
const prefixes = ['i/', 'meta/', 'r/', 'x/'] as const
const pageSize = 1000

/** A key that may change without an accepted request. */
interface ChangesByItself {
  readonly why: string
  /** The current entry, or the removed one. */
  readonly matches: (entry: Entry) => boolean
}

/** The complete table. Any other change after a refused request is a breach. */
const changesByThemselves: readonly ChangesByItself[] = [
  { why: 'replicas elect who leads, again and again', matches: ({ key }) => key.startsWith('x/elect/') },
  {
    why: 'events of pulls and of failed pushes are written in batches, some time after the answer',
    matches: ({ key, value }) => key.startsWith('x/outbox/') && fromBinary(OutboxEventSchema, value).type.startsWith('dev.taproot.registry.'),
  },
  { why: 'the worker reads images that were pushed', matches: ({ key }) => key === 'meta/contents' || /^x\/(?:unread|reread)\//.test(key) },
  { why: 'scanners scan images that were pushed', matches: ({ key }) => /^(?:meta\/scanners|x\/(?:unscanned|rescan|scanned))\//.test(key) },
  { why: 'the worker records vulnerabilities of tags', matches: ({ key }) => key.startsWith('x/vulnerability-counts/') },
  { why: 'audit events become a segment every ten seconds', matches: ({ key }) => key.startsWith('x/audit/') },
  { why: 'keys are rotated by the clock', matches: ({ key }) => /^meta\/(?:signing-keys|page-keys|registry-keys)\//.test(key) },
  { why: 'the leader notes what may be removed from the upstream by the clock', matches: ({ key }) => /^x\/(?:unneeded|collect|discard)\//.test(key) },
]

/** Finds the changes in a store since the last look. */
export class StateLook {
  readonly #store: Store
  #revision: Revision | undefined
  #entries = new Map<string, Entry>()

  constructor(store: Store) {
    this.#store = store
  }

  /** Returns the keys added, changed or removed since the last call, except those that change by themselves. The first call returns none. */
  async changes(): Promise<StateChange[]> {
    const before = this.#entries
    const isFirst = this.#revision === undefined
    const revision = await this.#store.revision(AbortSignal.timeout(30_000))
    if (revision === this.#revision) return []
    this.#revision = revision
    this.#entries = await this.#scan()
    return isFirst ? [] : differences(before, this.#entries)
  }

  async #scan(): Promise<Map<string, Entry>> {
    const found = new Map<string, Entry>()
    for (const prefix of prefixes) {
      let after: string | undefined
      for (;;) {
        const page = await this.#store.range({ prefix, limit: pageSize, ...(after === undefined ? {} : { after }) }, AbortSignal.timeout(30_000))
        for (const entry of page.entries) found.set(entry.key, entry)
        after = page.entries.at(-1)?.key
        if (!page.more || after === undefined) break
      }
    }
    return found
  }
}

function differences(before: ReadonlyMap<string, Entry>, after: ReadonlyMap<string, Entry>): StateChange[] {
  const changes: (StateChange & { entry: Entry })[] = []
  for (const [key, entry] of after) {
    const earlier = before.get(key)
    if (earlier?.revision !== entry.revision) changes.push({ key, how: earlier === undefined ? 'added' : 'changed', entry })
  }
  for (const [key, entry] of before) if (!after.has(key)) changes.push({ key, how: 'removed', entry })
  return changes.filter(({ entry }) => !changesByThemselves.some(({ matches }) => matches(entry))).map(({ key, how }) => ({ key, how }))
}
