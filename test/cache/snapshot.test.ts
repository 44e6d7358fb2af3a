import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { trustedUid } from '../../src/base/uid.ts'
import type { CachedRecord } from '../../src/cache/records/cached-record.ts'
import { ownersKey, recordKey, sweepKey } from '../../src/store/keys.ts'
import { storeRevision, type Change } from '../../src/store/store.ts'
import { changeOf, emptySnapshot, newUid, one, picker, removalOf, rowOf, type Plain } from './rows.ts'

const revision = storeRevision(1)
const mark = (uid: string, kind: string): Change => ({ key: sweepKey(trustedUid(uid)), value: Buffer.from(kind), revision })
const unmark = (uid: string): Change => ({ key: sweepKey(trustedUid(uid)), value: undefined, revision })

const root = 'a'.repeat(40)
const child = (parent: string, digit: string): string => `${parent}/${digit.repeat(16)}`
const group: Plain = { kind: 'Group', uid: child(root, '1'), name: 'team', createMs: 1, updateMs: 2, filters: {} }
const identity: Plain = { kind: 'Identity', uid: child(root, '2'), name: 'robot', createMs: 1, updateMs: 2, filters: { relationship_type: '1' } }
const binding: Plain = {
  kind: 'RoleBinding',
  uid: child(group.uid, '3'),
  name: '',
  createMs: 1,
  updateMs: 2,
  filters: { identity: identity.uid, role: 'b'.repeat(40) },
}

describe('Snapshot', () => {
  test('what depends on a removed record is absent while its mark is there, in whatever order they arrive', () => {
    const events: Change[] = [changeOf(binding), removalOf(identity), mark(identity.uid, 'Identity')]
    fc.assert(
      fc.property(fc.shuffledSubarray([0, 1, 2], { minLength: 3 }), fc.boolean(), (order, together) => {
        const snapshot = emptySnapshot()
        snapshot.apply([changeOf(group), changeOf(identity)])
        const arriving = order.map((at) => events[at]).filter((change) => change !== undefined)
        if (together) snapshot.apply(arriving)
        else for (const change of arriving) snapshot.apply([change])
        expect(snapshot.get('RoleBinding', binding.uid)).toBeUndefined()
        expect(snapshot.table('RoleBinding').size).toBe(0)
        expect(snapshot.table('RoleBinding').matching('identity', identity.uid).size).toBe(0)
        expect(snapshot.sweeps()).toEqual([{ uid: identity.uid, kind: 'Identity' }])
        // A late change of a dependent does not bring it back.
        snapshot.apply([changeOf({ ...binding, updateMs: 9 }, 7)])
        expect(snapshot.get('RoleBinding', binding.uid)).toBeUndefined()
        snapshot.apply([removalOf(binding), unmark(identity.uid)])
        expect(snapshot.sweeps()).toEqual([])
        // The uid may be in use again afterwards.
        snapshot.apply([changeOf(identity), changeOf({ ...binding, uid: child(group.uid, '4') })])
        expect(snapshot.table('RoleBinding').size).toBe(1)
      }),
    )
  })

  test('a mark hides only what goes with that very record: by kind, not by uid alone', () => {
    const snapshot = emptySnapshot()
    snapshot.apply([changeOf(group), changeOf(identity), changeOf(binding)])
    snapshot.apply([mark(identity.uid, 'Role')])
    expect(snapshot.get('RoleBinding', binding.uid)).toBeDefined()
    snapshot.apply([mark(child(root, '9'), 'Identity')])
    expect(snapshot.get('RoleBinding', binding.uid)).toBeDefined()
    snapshot.apply([mark(group.uid, 'Group')])
    expect(snapshot.get('RoleBinding', binding.uid)).toBeUndefined()
    expect(snapshot.get('Identity', identity.uid)).toBeDefined()
  })

  test('one unreadable record is absent and reported, and hurts no other', () => {
    const faults: string[] = []
    const snapshot = emptySnapshot({ fault: ({ key }) => faults.push(key) })
    const broken: Change = { key: recordKey('Group', trustedUid(group.uid)), value: Buffer.from([0xff, 0xff, 0xff]), revision }
    snapshot.apply([changeOf(group), changeOf(identity)])
    snapshot.apply([broken, changeOf(binding)])
    expect(faults).toEqual([broken.key])
    expect(snapshot.get('Group', group.uid)).toBeUndefined()
    expect(snapshot.table('Group').size).toBe(0)
    expect(snapshot.get('RoleBinding', binding.uid)).toBeDefined()
    snapshot.apply([changeOf(group)])
    expect(snapshot.get('Group', group.uid)?.name).toBe('team')
  })

  test('kinds that are not known are passed over; keys that only guard are not kept', () => {
    const snapshot = emptySnapshot()
    snapshot.apply([
      { key: `r/Unheard/${root}`, value: Buffer.from('x'), revision },
      { key: `i/name/Group/:team`, value: Buffer.from(group.uid), revision },
      { key: ownersKey(trustedUid(root)), value: Buffer.from('1'), revision: storeRevision(5) },
      { key: 'meta/keys/1', value: Buffer.from('k'), revision },
    ])
    expect(snapshot.hasKind('Unheard')).toBe(false)
    expect(() => snapshot.table('Unheard')).toThrow(TypeError)
    expect(snapshot.entry('i/name/Group/:team')).toBeUndefined()
    expect(snapshot.entry(ownersKey(trustedUid(root)))?.revision).toBe(5)
    expect(snapshot.entry('meta/keys/1')?.value).toEqual(Buffer.from('k'))
    snapshot.apply([{ key: 'meta/keys/1', value: undefined, revision }])
    expect(snapshot.entry('meta/keys/1')).toBeUndefined()
  })

  test('built-in rows are there from the start', () => {
    const role = rowOf({ kind: 'Role', uid: 'c'.repeat(40), name: 'viewer', createMs: 0, updateMs: 0, filters: {} })
    const snapshot = emptySnapshot({ builtIns: [role] })
    expect(snapshot.get('Role', role.uid)).toBe(role)
    expect([...snapshot.table('Role').rows()]).toEqual([role])
  })

  test('listeners that add up what they are told hold just what the snapshot holds', () => {
    fc.assert(
      fc.property(fc.integer(), (seed) => {
        const pick = picker(seed)
        const told = new Map<string, CachedRecord>()
        const snapshot = emptySnapshot({
          listener: (kind, old, row) => {
            const key = `${kind} ${(row ?? old)?.uid}`
            expect(told.get(key)).toBe(old)
            if (row === undefined) told.delete(key)
            else told.set(key, row)
          },
        })
        const identities = Array.from({ length: 4 }, () => newUid(pick, root))
        const uids = Array.from({ length: 10 }, () => newUid(pick, group.uid))
        for (let count = 0; count < 80; count++) {
          const uid = one(pick, uids)
          const turn = pick(5)
          if (turn < 2) snapshot.apply([changeOf({ ...binding, uid, filters: { identity: one(pick, identities), role: 'b'.repeat(40) } })])
          else if (turn === 2) snapshot.apply([removalOf({ kind: 'RoleBinding', uid })])
          else if (turn === 3) snapshot.apply([mark(one(pick, identities), 'Identity')])
          else snapshot.apply([unmark(one(pick, identities))])
          const held = [...snapshot.table('RoleBinding').rows()]
          expect(new Set(told.values())).toEqual(new Set(held))
          const swept = snapshot.sweeps().map(({ uid }): string => uid)
          for (const row of held) expect(swept).not.toContain(row.filterValues[0])
        }
      }),
      { numRuns: 60 },
    )
  })
})
