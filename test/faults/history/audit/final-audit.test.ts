import { fromBinary, toBinary } from '@bufbuild/protobuf'
import { beforeAll, expect, test } from 'vitest'
import { EnvelopeSchema, OutboxEventSchema } from '../../../../src/gen/taproot/store/v1/envelope_pb.ts'
import { outboxPrefix } from '../../../../src/engine/log/outbox-keys.ts'
import type { Entry, Store, Write } from '../../../../src/store/store.ts'
import { startTestServer, type TestServer } from '../../../support/test-server.ts'
import { readAll } from '../../../conformance/model/store-errors.ts'
import { describeWithPart } from '../../../support/parts/require-part.ts'
import { until } from '../../cluster/until.ts'
import { checkHistory } from '../check-history.ts'
import { finalAudit } from './final-audit.ts'
import { History } from '../history.ts'
import { startWorkload } from '../workload.ts'

/** A damaged store: the replaced entries, and the expected report of the audit. */
interface Damage {
  readonly writes: readonly Write[]
  readonly message: RegExp
  /** The error of the history that ends with this store, if any. */
  readonly refused?: RegExp
}

const remove = ({ key }: Entry): Write => ({ kind: 'delete', key })
const put = (key: string, value: Uint8Array): Write => ({ kind: 'put', key, value })
const text = (value: string): Uint8Array => Buffer.from(value)

function entryOf(entries: readonly Entry[], prefix: string, holds: (entry: Entry) => boolean = () => true): Entry {
  const found = entries.find((entry) => entry.key.startsWith(prefix) && holds(entry))
  if (found === undefined) throw new Error(`the workload left nothing with ${prefix}`)
  return found
}

/** Returns a record below the root group that the workload wrote. */
const child = (entries: readonly Entry[], kind: string): Entry => entryOf(entries, `r/${kind}/`, ({ key }) => key.split('/').length === 5)
const nameOf = (entries: readonly Entry[], kind: string): Entry => entryOf(entries, `i/name/${kind}/`, ({ key }) => key.split('/').length > 4)

function eventOf(entries: readonly Entry[], record: Entry, verb: string): Entry {
  const uid = record.key.split('/').slice(2).join('/')
  return entryOf(entries, outboxPrefix, ({ value }) => {
    const event = fromBinary(OutboxEventSchema, value)
    return event.subject === uid && event.type.includes(`.${verb}.`)
  })
}

/** Returns the record in a state that no client wrote. */
function rewritten({ key, value }: Entry): Write {
  const envelope = fromBinary(EnvelopeSchema, value)
  return put(key, toBinary(EnvelopeSchema, { ...envelope, etag: 'ffffffffffffffff' }))
}

const damages: Readonly<Record<string, (entries: readonly Entry[]) => Damage>> = {
  'an acknowledged record is gone, its keys are left': (entries) => ({
    writes: [remove(child(entries, 'Role'))],
    message: /^i\/name\/Role\/.*: there is no record for this key/,
    refused: /^(record|members) Role/,
  }),
  'an acknowledged record is gone with all its keys': (entries) => {
    const name = nameOf(entries, 'Role')
    const uid = Buffer.from(name.value).toString()
    return {
      writes: entries
        .filter(({ key }) => key === name.key || (key.startsWith('r/Role/') && key.endsWith(uid)) || key.startsWith(`i/used/RoleBinding.role/${uid}`))
        .map(remove),
      message: /was made, and is gone without an event of its deletion/,
      refused: /^(record|members) Role/,
    }
  },
  'an acknowledged change is lost': (entries) => ({
    writes: [rewritten(child(entries, 'Identity'))],
    message: /^Identity .*: its last state has 0 events/,
    refused: /^record Identity/,
  }),
  'a record has no name key': (entries) => ({ writes: [remove(nameOf(entries, 'Group'))], message: /^Group .*: has no key i\/name\/Group/ }),
  'a name key names another record': (entries) => ({
    writes: [put(nameOf(entries, 'Group').key, text('another'))],
    message: /^Group .*: i\/name\/Group\/.* names another/,
  }),
  'a name key has no record': (entries) => ({
    writes: [put(`${nameOf(entries, 'Role').key}-left`, text('gone'))],
    message: /^i\/name\/Role\/.*-left: there is no record for this key/,
  }),
  'a reverse key is missing': (entries) => ({
    writes: [remove(entryOf(entries, 'i/used/RoleBinding.identity/'))],
    message: /^RoleBinding .*: has no key i\/used\/RoleBinding.identity/,
  }),
  'the owners key of a root group is missing': (entries) => ({ writes: [remove(entryOf(entries, 'i/owners/'))], message: /^Group .*: has no owners key/ }),
  'an identity is gone, its bindings are left without a mark': (entries) => {
    const bound = entryOf(entries, 'i/used/RoleBinding.identity/', ({ key }) => key.split(':')[0]?.split('/').length === 5)
    const identity = bound.key.slice('i/used/RoleBinding.identity/'.length).split(':')[0] ?? ''
    return { writes: [{ kind: 'delete', key: `r/Identity/${identity}` }], message: /^RoleBinding .*: its identity .* is gone/, refused: /^record Identity/ }
  },
  'a record lies under a group that is gone': (entries) => {
    const record = child(entries, 'Identity')
    const orphan = `r/Identity/${'f'.repeat(40)}/${'0'.repeat(16)}`
    return { writes: [put(orphan, record.value)], message: /^Identity f{40}\/0{16}: its Group is gone/ }
  },
  'a creation has no event': (entries) => ({
    writes: [remove(eventOf(entries, child(entries, 'Identity'), 'created'))],
    message: /^Identity .*: is there and has 0 events of its creation/,
  }),
  'a mutation has two events': (entries) => {
    const event = eventOf(entries, child(entries, 'Identity'), 'created')
    return { writes: [put(`${event.key}0`, event.value)], message: /one mutation has two events/ }
  },
  'an idempotency key is never trimmed': (entries) => ({ writes: [remove(entryOf(entries, 'x/idem/t/'))], message: /^x\/idem\/t\/.*is missing/ }),
  'an hour has an idempotency key that is gone': (entries) => ({
    writes: [remove(entryOf(entries, 'x/idem/k/'))],
    message: /^x\/idem\/t\/.*there is no idempotency key for it/,
  }),
}

async function committed(store: Store, writes: readonly Write[]): Promise<void> {
  const outcome = await store.transact({ guards: [], writes }, AbortSignal.timeout(5_000))
  expect(outcome.committed).toBe(true)
}

describeWithPart('history-checker', 'the final audit of a store', () => {
  let server: TestServer
  const history = new History()

  beforeAll(async () => {
    server = await startTestServer({ store: 'sqlite' })
    const endpoints = [`http://127.0.0.1:${server.config.api.port}`]
    const workload = startWorkload({ endpoints, token: () => server.operatorToken(), seed: 3, clients: 4, history })
    await until(() => workload.ended >= 250, { withinMs: 60_000, what: 'operations end' })
    await workload.stop()
    await workload.settle()
    return () => server.stop()
  })

  test('the final audit of a store reports nothing for a store without faults', async () => {
    const { store } = server.running.engine
    const { length } = history.operations
    expect((await finalAudit({ store, history })).errors).toEqual([])
    expect(await checkHistory(history)).toMatchObject({ ok: true })
    history.operations.length = length
    expect((await finalAudit({ store })).errors).toEqual([])
  })

  test('the final audit of a store reports no missing events if they may have been trimmed', async () => {
    const { store } = server.running.engine
    const { length } = history.operations
    const { entries } = await readAll(store, outboxPrefix)
    await committed(store, entries.slice(0, 50).map(remove))
    try {
      expect((await finalAudit({ store, history, isExpired: true })).errors).toEqual([])
    } finally {
      history.operations.length = length
      await committed(
        store,
        entries.slice(0, 50).map(({ key, value }) => put(key, value)),
      )
    }
  })

  for (const [title, damage] of Object.entries(damages)) {
    test(`the final audit of a store reports that ${title}`, async () => {
      const { store } = server.running.engine
      const { length } = history.operations
      const { entries } = await readAll(store, '')
      const { writes, message, refused } = damage(entries)
      const before = new Map(entries.map((entry) => [entry.key, entry.value]))
      await committed(store, writes)
      try {
        const { errors } = await finalAudit({ store, history })
        expect(errors.some((fault) => message.test(fault)) || `none of: ${errors.join('; ')}`).toBe(true)
        const parts = (await checkHistory(history)).failures.map((failure) => failure.partition)
        if (refused === undefined) expect(parts).toEqual([])
        else expect(parts.some((part) => refused.test(part)) || parts).toBe(true)
      } finally {
        history.operations.length = length
        const undone = writes.map(({ key }): Write => {
          const value = before.get(key)
          return value === undefined ? { kind: 'delete', key } : { kind: 'put', key, value }
        })
        await committed(store, undone)
      }
    })
  }
})
