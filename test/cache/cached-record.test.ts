import { fromBinary } from '@bufbuild/protobuf'
import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import fc from 'fast-check'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { describe, expect, test, vi } from 'vitest'
import { resources } from '../../src/base/schema/schema.ts'
import { trustedUid } from '../../src/base/uid.ts'
import { kinds } from '../../src/domains/kinds.ts'
import { envelopeBytes, envelopeOf } from '../../src/engine/record-codec.ts'
import { DecodedRecords } from '../../src/cache/records/decoded-records.ts'
import { recordOfBytes } from '../../src/cache/records/record-factory.ts'
import { nameOf, type Resource } from '../../src/cache/records/cached-record.ts'
import { storeRevision } from '../../src/store/store.ts'
import { randomMessage } from '../transport/harness/random-message.ts'
import { changeOf, emptyTables, newUid, one, picker, removalOf, type Plain } from './records.ts'

const polling = { timeout: 120_000, interval: 50 }

setFlagsFromString('--expose-gc')
const collect = runInNewContext('gc') as () => void
const root = 'a'.repeat(40)
const group = (uid: string, name: string): Plain => ({ kind: 'Group', uid, name, createMs: 1, updateMs: 2, filters: {} })

describe.each([...kinds.values()].map((kind) => [kind.index.kind, kind] as const))('a cached row of kind %s', (name, kind) => {
  test('a cached row reads the same fields from a stored record as a full decode', () => {
    const uid = trustedUid(`${root}/${'1'.repeat(16)}`)
    const facts = fc.record({
      etag: fc.string({ unit: 'grapheme' }),
      createMs: fc.nat(2 ** 50),
      updateMs: fc.nat(2 ** 50),
      managedBy: fc.string({ unit: 'grapheme' }),
    })
    fc.assert(
      fc.property(randomMessage(kind.desc), facts, (message, { etag, createMs, updateMs, managedBy }) => {
        const envelope = envelopeOf(kind.desc, message as Resource, { etag, createMs, updateMs, managedBy })
        const record = recordOfBytes(kind.index, { uid, bytes: envelopeBytes(envelope), revision: storeRevision(7) })
        const stored = fromBinary(kind.desc, envelope.record) as Resource
        expect(record).toMatchObject({ kind: name, uid, parent: root, name: nameOf(kind.index, stored), etag, createMs, updateMs, managedBy, revision: 7 })
        expect(new Uint8Array(record.bytes)).toEqual(envelope.record)
        expect(envelopeBytes(record.envelope)).toEqual(envelopeBytes(envelope))
        const whole = { uid, etag, managedBy, createTime: timestampFromMs(createMs), updateTime: timestampFromMs(updateMs) }
        expect(record.message).toEqual(Object.assign(stored, whole))
        expect(record.message).toBe(record.message)
      }),
      { numRuns: 200 },
    )
  })

  test('a cached row has an index whose field names the schema has', () => {
    expect(resources.get(name)?.desc).toBe(kind.desc)
    expect(kind.index.desc).toBe(kind.desc)
  })
})

describe('cached rows of a snapshot', () => {
  test('cached rows of a snapshot keep bytes, message and etag while other rows move, decode and disappear', () => {
    fc.assert(
      fc.property(fc.integer(), (seed) => {
        const pick = picker(seed)
        const tables = emptyTables()
        const expected = new Map<string, string>()
        const uids = Array.from({ length: 3_000 }, () => newUid(pick, root))
        for (let step = 0; step < 8_000; step++) {
          const uid = one(pick, uids)
          const name = `name ${step}`
          if (pick(3) > 0) {
            tables.apply([changeOf({ ...group(uid, name), description: 'x'.repeat(pick(400)) }, step)])
            expected.set(uid, name)
          } else {
            tables.apply([removalOf({ kind: 'Group', uid }, step)])
            expected.delete(uid)
          }
          if (pick(4) === 0) expect(tables.get('Group', one(pick, uids))?.message.uid).not.toBe('')
        }
        expect(tables.table('Group').size).toBe(expected.size)
        for (const [uid, name] of expected) {
          const record = tables.get('Group', uid)
          expect([record?.uid, record?.name, record?.etag]).toEqual([uid, name, 'e'])
          expect(record?.message).toMatchObject({ uid, name })
        }
      }),
      { numRuns: 5 },
    )
  })

  test('cached rows of a snapshot stay readable for their holder after a replacement', () => {
    const pick = picker(3)
    const tables = emptyTables()
    const uids = Array.from({ length: 1_500 }, () => newUid(pick, root))
    tables.apply(uids.map((uid) => changeOf({ ...group(uid, `old ${uid}`), description: 'd'.repeat(300) })))
    const held = uids.map((uid) => tables.get('Group', uid))
    const bytes = held.map((record) => record?.bytes)
    const copies = bytes.map((view) => Buffer.from(view ?? []))
    for (let round = 2; round < 6; round++) tables.apply(uids.map((uid) => changeOf({ ...group(uid, `round ${round}`), description: 'e'.repeat(300) }, round)))
    for (const [at, record] of held.entries()) {
      expect(copies[at]?.equals(bytes[at] ?? Buffer.alloc(0))).toBe(true)
      expect(record?.message).toMatchObject({ uid: uids[at], name: `old ${uids[at] ?? ''}` })
    }
  })

  test('of a replaced or removed record are not kept for having been read, and are not read again', async () => {
    const pick = picker(5)
    const tables = emptyTables()
    const uids = Array.from({ length: 20 }, () => newUid(pick, root))
    tables.apply(uids.map((uid) => changeOf(group(uid, 'old'))))
    const gone = uids.map((uid, at) => {
      const record = tables.get('Group', uid)
      expect(record?.message.uid).toBe(uid)
      tables.apply([at % 2 === 0 ? changeOf(group(uid, 'new'), 2) : removalOf({ kind: 'Group', uid }, 2)])
      expect(record?.message).toMatchObject({ uid, name: 'old' })
      return new WeakRef(record ?? {})
    })
    await vi.waitFor(() => {
      collect()
      expect(gone.filter((each) => each.deref() !== undefined)).toEqual([])
    }, polling)
  })

  test('cached rows of a snapshot use no growing memory while records and references are created and deleted', () => {
    const pick = picker(8)
    const tables = emptyTables()
    const used = (): number => {
      collect()
      const { heapUsed, arrayBuffers } = process.memoryUsage()
      return heapUsed + arrayBuffers
    }
    const churn = (rounds: number): void => {
      for (let round = 0; round < rounds; round++) {
        const above = newUid(pick)
        const identities = Array.from({ length: 40 }, () => newUid(pick, above))
        const records = identities.flatMap((identity): Plain[] => [
          { kind: 'Identity', uid: identity, name: `robot ${identity}`, createMs: 1, updateMs: 1, filters: { relationship_type: '1' } },
          { kind: 'RoleBinding', uid: newUid(pick, above), name: '', createMs: 1, updateMs: 1, filters: { identity, role: newUid(pick) } },
          group(newUid(pick, above), `team ${identity}`),
        ])
        tables.apply(records.map((record) => changeOf(record)))
        for (const { kind, uid } of records) expect(tables.get(kind, uid)?.message.uid).toBe(uid)
        tables.apply(records.map((record) => removalOf(record)))
      }
    }
    churn(200)
    const before = used()
    churn(400)
    // 48,000 records were created and removed: about 30 MB if they were leaked.
    expect(used() - before).toBeLessThan(4_000_000)
    expect(['Group', 'Identity', 'RoleBinding'].map((kind) => tables.table(kind).size)).toEqual([0, 0, 0])
  })
})

describe('DecodedRows', () => {
  test('stays within its size limit, and prefers to keep entries that were read again', () => {
    const decoded = new DecodedRecords(10, 1_000)
    const kept = new Set<number>()
    const entries = Array.from({ length: 40 }, (_, at) => {
      const holder = { forget: (): void => void kept.delete(at) }
      return { holder, bytes: at === 39 ? 950 : 10, used: false, at: -1 }
    })
    for (const [at, entry] of entries.slice(0, 39).entries()) {
      kept.add(at)
      decoded.keep(entry)
      if (entries[0] !== undefined) entries[0].used = true
      expect(kept.size).toBeLessThanOrEqual(10)
      expect(kept).toContain(0)
      expect(kept).toContain(at)
    }
    kept.add(39)
    decoded.keep(entries[39] ?? { holder: { forget() {} }, bytes: 0, used: false, at: -1 })
    expect(kept.size, 'a large one takes the place of many').toBeLessThanOrEqual(6)
    expect(kept).toContain(39)
  })

  test('frees the space of removed entries', () => {
    const decoded = new DecodedRecords(10, 100)
    const forgotten: number[] = []
    const entries = Array.from({ length: 30 }, (_, at) => ({ holder: { forget: (): void => void forgotten.push(at) }, bytes: 10, used: false, at: -1 }))
    for (const entry of entries.slice(0, 10)) decoded.keep(entry)
    for (const entry of entries.slice(10)) {
      decoded.keep(entry)
      decoded.drop(entry)
      decoded.drop(entry)
    }
    expect(forgotten, 'one, since there were ten already').toHaveLength(1)
    for (const entry of entries.slice(0, 10)) decoded.drop(entry)
    for (const entry of entries.slice(10, 20)) decoded.keep(entry)
    expect(forgotten).toHaveLength(1)
  })
})
