import { setImmediate as nextTurn } from 'node:timers/promises'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { trustedUid } from '../../src/base/uid.ts'
import type { CachedRecord } from '../../src/cache/records/cached-record.ts'
import { ownersKey, recordKey, cascadeKey } from '../../src/store/keys.ts'
import { storeRevision, type Change } from '../../src/store/store.ts'
import { changeOf, emptyTables, newUid, one, picker, removalOf, recordOf, type Plain } from './records.ts'

const revision = storeRevision(1)
const mark = (uid: string, kind: string): Change => ({ key: cascadeKey(trustedUid(uid)), value: Buffer.from(kind), revision })
const unmark = (uid: string): Change => ({ key: cascadeKey(trustedUid(uid)), value: undefined, revision })

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

describe('the record tables', () => {
  test('the record tables hide dependents of a removed record during its deletion, in any order of arrival', () => {
    const events: Change[] = [changeOf(binding), removalOf(identity), mark(identity.uid, 'Identity')]
    fc.assert(
      fc.property(fc.shuffledSubarray([0, 1, 2], { minLength: 3 }), fc.boolean(), (order, together) => {
        const tables = emptyTables()
        tables.apply([changeOf(group), changeOf(identity)])
        const arriving = order.map((at) => events[at]).filter((change) => change !== undefined)
        if (together) tables.apply(arriving)
        else for (const change of arriving) tables.apply([change])
        expect(tables.get('RoleBinding', binding.uid)).toBeUndefined()
        expect(tables.table('RoleBinding').size).toBe(0)
        expect(tables.table('RoleBinding').matching('identity', identity.uid).size).toBe(0)
        expect(tables.cascades()).toEqual([{ uid: identity.uid, kind: 'Identity' }])
        // A late change of a dependent does not show it again.
        tables.apply([changeOf({ ...binding, updateMs: 9 }, 7)])
        expect(tables.get('RoleBinding', binding.uid)).toBeUndefined()
        tables.apply([removalOf(binding), unmark(identity.uid)])
        expect(tables.cascades()).toEqual([])
        // The uid may be reused afterwards.
        tables.apply([changeOf(identity), changeOf({ ...binding, uid: child(group.uid, '4') })])
        expect(tables.table('RoleBinding').size).toBe(1)
      }),
    )
  })

  test('the mark of a deleted record hides the dependents of that record only, not those of another kind with the same uid', () => {
    const tables = emptyTables()
    tables.apply([changeOf(group), changeOf(identity), changeOf(binding)])
    tables.apply([mark(identity.uid, 'Role')])
    expect(tables.get('RoleBinding', binding.uid)).toBeDefined()
    tables.apply([mark(child(root, '9'), 'Identity')])
    expect(tables.get('RoleBinding', binding.uid)).toBeDefined()
    tables.apply([mark(group.uid, 'Group')])
    expect(tables.get('RoleBinding', binding.uid)).toBeUndefined()
    expect(tables.get('Identity', identity.uid)).toBeDefined()
  })

  test.for([
    ['a few tags', 3],
    ['more tags than are removed at once', 200],
  ] as const)('the record tables keep nothing of a deleted repo with %s', async ([, count]) => {
    const tables = emptyTables()
    const repo: Plain = { kind: 'Repo', uid: child(group.uid, '5'), name: 'app', createMs: 1, updateMs: 2, filters: {} }
    const tags = Array.from({ length: count }, (_, at): Plain => {
      return { kind: 'Tag', uid: `${repo.uid}/${at.toString(16).padStart(16, '0')}`, name: `t${at}`, createMs: 1, updateMs: 2, filters: {} }
    })
    const changes = (uid: string): number => tables.table('Tag').changeOf(uid)
    tables.apply([changeOf(repo), ...tags.map((tag) => changeOf(tag))])
    const before = changes(repo.uid)
    expect(before).not.toBe(changes(child(group.uid, '6')))
    tables.apply([removalOf(repo), mark(repo.uid, 'Repo')])
    expect(changes(repo.uid)).not.toBe(before)
    tables.apply([...tags.map((tag) => removalOf(tag)), unmark(repo.uid)])
    // Hidden records leave their table in later turns.
    for (let turns = 0; turns < 50; turns++) await nextTurn()
    // The number of a repo that never had a tag.
    expect(changes(repo.uid)).toBe(changes(child(group.uid, '6')))
  })

  test('the record tables count the changes of a repo whose tags are all deleted, until the repo is deleted', () => {
    const tables = emptyTables()
    const repo: Plain = { kind: 'Repo', uid: child(group.uid, '5'), name: 'app', createMs: 1, updateMs: 2, filters: {} }
    const tag: Plain = { kind: 'Tag', uid: child(repo.uid, '1'), name: 'stable', createMs: 1, updateMs: 2, filters: {} }
    const numbers = [[changeOf(repo)], [changeOf(tag)], [removalOf(tag)], [changeOf(tag)], [removalOf(tag)]].map((events) => {
      tables.apply(events)
      return tables.table('Tag').changeOf(repo.uid)
    })
    expect(new Set(numbers).size).toBe(5)
    tables.apply([removalOf(repo)])
    expect(tables.table('Tag').changeOf(repo.uid)).toBe(numbers[0])
  })

  test('the record tables leave out and report an unreadable record, without effect on others', () => {
    const errors: string[] = []
    const tables = emptyTables({ onUnreadable: ({ key }) => errors.push(key) })
    const broken: Change = { key: recordKey('Group', trustedUid(group.uid)), value: Buffer.from([0xff, 0xff, 0xff]), revision }
    tables.apply([changeOf(group), changeOf(identity)])
    tables.apply([broken, changeOf(binding)])
    expect(errors).toEqual([broken.key])
    expect(tables.get('Group', group.uid)).toBeUndefined()
    expect(tables.table('Group').size).toBe(0)
    expect(tables.get('RoleBinding', binding.uid)).toBeDefined()
    tables.apply([changeOf(group)])
    expect(tables.get('Group', group.uid)?.name).toBe('team')
  })

  test('the record tables skip unknown kinds, and do not keep keys that only guard transactions', () => {
    const tables = emptyTables()
    tables.apply([
      { key: `r/Unheard/${root}`, value: Buffer.from('x'), revision },
      { key: `i/name/Group/:team`, value: Buffer.from(group.uid), revision },
      { key: ownersKey(trustedUid(root)), value: Buffer.from('1'), revision: storeRevision(5) },
      { key: 'meta/keys/1', value: Buffer.from('k'), revision },
    ])
    expect(tables.hasKind('Unheard')).toBe(false)
    expect(() => tables.table('Unheard')).toThrow(TypeError)
    expect(tables.entry('i/name/Group/:team')).toBeUndefined()
    expect(tables.entry(ownersKey(trustedUid(root)))?.revision).toBe(5)
    expect(tables.entry('meta/keys/1')?.value).toEqual(Buffer.from('k'))
    tables.apply([{ key: 'meta/keys/1', value: undefined, revision }])
    expect(tables.entry('meta/keys/1')).toBeUndefined()
  })

  test('the record tables contain built-in rows from the start', () => {
    const role = recordOf({ kind: 'Role', uid: 'c'.repeat(40), name: 'viewer', createMs: 0, updateMs: 0, filters: {} })
    const tables = emptyTables({ builtIns: [role] })
    expect(tables.get('Role', role.uid)).toBe(role)
    expect([...tables.table('Role').records()]).toEqual([role])
  })

  test('the record tables send listeners events that add up to the content of the tables', () => {
    fc.assert(
      fc.property(fc.integer(), (seed) => {
        const pick = picker(seed)
        const notified = new Map<string, CachedRecord>()
        const tables = emptyTables({
          listener: (kind, old, record) => {
            const key = `${kind} ${(record ?? old)?.uid}`
            expect(notified.get(key)).toBe(old)
            if (record === undefined) notified.delete(key)
            else notified.set(key, record)
          },
        })
        const identities = Array.from({ length: 4 }, () => newUid(pick, root))
        const uids = Array.from({ length: 10 }, () => newUid(pick, group.uid))
        for (let count = 0; count < 80; count++) {
          const uid = one(pick, uids)
          const turn = pick(5)
          if (turn < 2) tables.apply([changeOf({ ...binding, uid, filters: { identity: one(pick, identities), role: 'b'.repeat(40) } })])
          else if (turn === 2) tables.apply([removalOf({ kind: 'RoleBinding', uid })])
          else if (turn === 3) tables.apply([mark(one(pick, identities), 'Identity')])
          else tables.apply([unmark(one(pick, identities))])
          const held = [...tables.table('RoleBinding').records()]
          expect(new Set(notified.values())).toEqual(new Set(held))
          const cascaded = tables.cascades().map(({ uid }): string => uid)
          for (const record of held) expect(cascaded).not.toContain(record.filterValues[0])
        }
      }),
      { numRuns: 60 },
    )
  })
})
