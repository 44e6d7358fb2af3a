import fc from 'fast-check'
import { expect, test } from 'vitest'
import { describeWithPart } from '../../support/parts/require-part.ts'
import { seededRandom } from '../schedules/random.ts'
import { checkHistory } from './check-history.ts'
import { damages } from './damaged-history.ts'
import { absent, at, binding, bindings, create, guarded, list, read, remove, seen, unanswered, update } from './example-operations.ts'
import type { Operation } from './history.ts'
import { testHistories, type BrokenHistories, type ValidHistories } from './history-tables.ts'
import { SimulatedHistory } from './simulated-history.ts'

/** Creates whose answer came to a much later repetition. */
const late = Array.from({ length: 30 }, (_, index) => `late ${index}`)

const valid: ValidHistories = {
  'nothing happened': [],
  'made, read, changed, listed, removed': [
    create(0, 'a'),
    read(10, 'a', 'a1'),
    update(20, 'a', 'a2', guarded('a', '1')),
    list(30, seen('a', 'a2')),
    remove(40, 'a'),
    absent(50, 'a'),
    list(60),
  ],
  'a read beside a write shows either': [create(0, 'a'), update(10, 'a', 'a2'), read(12, 'a', 'a1'), read(14, 'a', 'a2')],
  'a write without an answer takes effect late': [
    create(0, 'a'),
    update(10, 'a', 'a2', { outcome: 'unknown', return: null }),
    read(20, 'a', 'a1'),
    read(90, 'a', 'a2'),
  ],
  'a write without an answer takes no effect': [create(0, 'a'), update(10, 'a', 'a2', { outcome: 'unknown', return: null }), read(20, 'a', 'a1')],
  'a creation without an answer shows later, then stays': [unanswered(0, 'a'), list(10), list(20, seen('a', 'a1')), read(30, 'a', 'a1')],
  'many creations are done long after a list that missed them': [
    ...late.map((uid, index) => create(index, uid, { return: 95 + index })),
    list(40),
    ...late.map((uid) => read(130, uid, `${uid}1`)),
    list(140, ...late.map((uid) => seen(uid, `${uid}1`))),
  ],
  'a creation without an answer never shows': [unanswered(0, 'a'), list(10), list(20)],
  'a removal without an answer takes effect late': [
    create(0, 'a'),
    remove(10, 'a', { outcome: 'unknown', return: null }),
    list(20, seen('a', 'a1')),
    read(30, 'a', 'a1'),
    list(90),
    absent(99, 'a'),
  ],
  'a guarded write is refused after another write': [
    create(0, 'a'),
    update(10, 'a', 'a2'),
    at(20, { action: 'update', uid: 'a', value: 'a3', outcome: 'stale', ...guarded('a', '1') }),
  ],
  'a guarded write is refused after a write without an answer': [
    create(0, 'a'),
    update(10, 'a', 'a2', { outcome: 'unknown', return: null }),
    at(20, { action: 'update', uid: 'a', value: 'a3', outcome: 'stale', ...guarded('a', '1') }),
    update(30, 'a', 'a4'),
  ],
  'a name is free again after its holder went': [create(0, 'a', { name: 'n' }), remove(10, 'a'), create(20, 'b', { name: 'n' })],
  'a name is free again after its holder was renamed': [create(0, 'a', { name: 'n' }), update(10, 'a', 'a2', { name: 'm' }), create(20, 'b', { name: 'n' })],
  'a name is taken by a creation without an answer': [
    unanswered(0, 'a', { name: 'n' }),
    at(10, { action: 'create', value: 'b1', tag: 'tag b', name: 'n', outcome: 'taken' }),
  ],
  'a binding goes with its identity': [
    create(0, 'i', { kind: 'Identity' }),
    binding(10, 'b'),
    bindings(20, 'b'),
    remove(30, 'i', { kind: 'Identity' }),
    bindings(40),
    at(50, { action: 'read', kind: 'RoleBinding', uid: 'b', outcome: 'absent' }),
  ],
  'a binding without an answer is there and removed': [
    binding(0, 'x', { uid: '', outcome: 'unknown', return: null }),
    at(10, { action: 'create', kind: 'RoleBinding', value: 'c1', name: 'i viewer', identity: 'i', outcome: 'taken' }),
    bindings(20, 'x'),
    remove(30, 'x', { kind: 'RoleBinding' }),
    binding(40, 'c'),
    bindings(50, 'c'),
  ].map((operation) => (operation.uid === '' ? (({ uid: _, ...rest }) => rest)(operation) : operation)),
  'a group goes when it is empty': [
    create(0, 'g', { kind: 'Group', parent: '/' }),
    create(10, 'a'),
    remove(20, 'a'),
    remove(30, 'g', { kind: 'Group', parent: '/' }),
    at(40, { action: 'create', value: 'b1', tag: 'tag b', name: 'n', outcome: 'absent' }),
  ],
}

const broken: BrokenHistories = {
  'a stale read': ['record Role a', [create(0, 'a'), update(10, 'a', 'a2'), read(20, 'a', 'a1')]],
  'a read that goes back in time': [
    'record Role a',
    [create(0, 'a'), update(10, 'a', 'a2', { outcome: 'unknown', return: null }), read(20, 'a', 'a2'), read(30, 'a', 'a1')],
  ],
  'a lost update: two writes on one state': [
    'record Role a',
    [create(0, 'a'), update(10, 'a', 'a2', guarded('a', '1')), update(20, 'a', 'a3', guarded('a', '1')), read(30, 'a', 'a3')],
  ],
  'a lost update: both at once': [
    'record Role a',
    [create(0, 'a'), update(10, 'a', 'a2', guarded('a', '1')), update(11, 'a', 'a3', guarded('a', '1')), read(30, 'a', 'a3')],
  ],
  'an acknowledged write that is gone': ['record Role a', [create(0, 'a'), update(10, 'a', 'a2'), read(20, 'a', 'a1'), read(30, 'a', 'a1')]],
  'an acknowledged creation that is gone': ['record Role a', [create(0, 'a'), absent(10, 'a')]],
  'half a write': ['record Role a', [create(0, 'a'), update(10, 'a', 'a2'), read(20, 'a', 'half of a2')]],
  'a value that was never written': ['record Role a', [create(0, 'a'), read(10, 'a', 'other')]],
  'another etag for the same state': ['record Role a', [create(0, 'a'), { ...read(10, 'a', 'a1'), etag: 'other' }]],
  'a removed record that is read': ['record Role a', [create(0, 'a'), remove(10, 'a'), read(20, 'a', 'a1')]],
  'a removed record that is changed': ['record Role a', [create(0, 'a'), remove(10, 'a'), update(20, 'a', 'a2')]],
  'a record removed twice': ['record Role a', [create(0, 'a'), remove(10, 'a'), remove(20, 'a')]],
  'a refusal for an etag that is current': [
    'record Role a',
    [create(0, 'a'), at(10, { action: 'update', uid: 'a', value: 'a3', outcome: 'stale', ...guarded('a', '1') })],
  ],
  'a phantom: a record that was never made is read': ['record Role a', [read(10, 'a', 'a1')]],
  'a phantom: a record that was never made is listed': ['record Role b', [create(0, 'a'), list(10, seen('a', 'a1'), seen('b', 'b1'))]],
  'a phantom: a record is read before it was asked for': ['record Role a', [read(0, 'a', 'a1'), create(10, 'a')]],
  'a refused creation that shows': ['record Role a', [at(0, { action: 'create', value: 'a1', tag: 'tag a', outcome: 'refused' }), list(10, seen('a', 'a1'))]],
  'a list without an acknowledged creation': ['members Role g', [create(0, 'a'), list(10)]],
  'a list with an acknowledged removal': ['members Role g', [create(0, 'a'), remove(10, 'a'), list(20, seen('a', 'a1'))]],
  'a list with a state that is overwritten': ['record Role a', [create(0, 'a'), update(10, 'a', 'a2'), list(20, seen('a', 'a1'))]],
  'lists that go back in time': ['members Role g', [unanswered(0, 'a'), list(10, seen('a', 'a1')), list(20)]],
  'a half-done creation: read, then not listed': ['members Role g', [create(0, 'a', { return: 90 }), read(10, 'a', 'a1'), list(20)]],
  'a half-done creation without an answer: read, then not listed': ['members Role g', [unanswered(0, 'a'), read(10, 'a', 'a1'), list(20)]],
  'a half-done removal: not found, then listed': [
    'members Role g',
    [create(0, 'a'), remove(10, 'a', { return: 90 }), absent(20, 'a'), list(30, seen('a', 'a1'))],
  ],
  'two lists that see two creations in different orders': [
    'members Role g',
    [create(0, 'a', { return: 90 }), create(0, 'b', { return: 90 }), list(10, seen('a', 'a1')), list(20, seen('b', 'b1'))],
  ],
  'one name twice': ['name Role g:n', [create(0, 'a', { name: 'n' }), create(10, 'b', { name: 'n' })]],
  'one name twice at once': ['name Role g:n', [create(0, 'a', { name: 'n' }), create(2, 'b', { name: 'n' })]],
  'one name twice by renaming': ['name Role g:n', [create(0, 'a', { name: 'n' }), create(10, 'b'), update(20, 'b', 'b2', { name: 'n' })]],
  'a free name that is refused': ['name Role g:n', [at(0, { action: 'create', value: 'a1', tag: 'tag a', name: 'n', outcome: 'taken' })]],
  'one creation that made two records': ['tag tag a', [create(0, 'a'), list(10, seen('a', 'a1'), { ...seen('b', 'a1'), tag: 'tag a' })]],
  'one binding twice': ['name RoleBinding g:i viewer', [create(0, 'i', { kind: 'Identity' }), binding(10, 'b'), binding(20, 'c')]],
  'a binding that is left of a removed identity': [
    'members RoleBinding g',
    [create(0, 'i', { kind: 'Identity' }), binding(10, 'b'), remove(20, 'i', { kind: 'Identity' }), bindings(30, 'b')],
  ],
  'bindings of one identity that go one after the other': [
    'members RoleBinding g',
    [
      create(0, 'i', { kind: 'Identity' }),
      binding(10, 'b'),
      binding(20, 'c', { name: 'i editor' }),
      remove(30, 'i', { kind: 'Identity', return: 99 }),
      bindings(40, 'b'),
      bindings(60),
    ],
  ],
  'a group that was removed with a member': [
    'members Role g',
    [create(0, 'g', { kind: 'Group', parent: '/' }), create(10, 'a'), remove(20, 'g', { kind: 'Group', parent: '/' })],
  ],
  'a creation in a group that is gone': [
    'record Group g',
    [create(0, 'g', { kind: 'Group', parent: '/' }), remove(20, 'g', { kind: 'Group', parent: '/' }), create(30, 'a')],
  ],
}

describeWithPart('history-checker', 'the history checker', () => {
  testHistories({ valid, broken })

  const histories = fc.record({ seed: fc.integer(), count: fc.integer({ min: 20, max: 250 }) })
  const simulated = ({ seed, count }: { seed: number; count: number }): readonly Operation[] =>
    new SimulatedHistory(seededRandom(`simulated ${seed}`), count).operations

  test('the history checker accepts every history of a sequential server', async () => {
    const property = fc.asyncProperty(histories, async (of) => {
      expect(await checkHistory({ operations: simulated(of) })).toMatchObject({ ok: true, failures: [], unknown: [] })
    })
    await fc.assert(property, { numRuns: 100 })
  })

  for (const [title, damage] of Object.entries(damages)) {
    test(`the history checker refuses every history in which ${title}`, async () => {
      let damaged = 0
      const property = fc.asyncProperty(histories, async (of) => {
        const operations = damage(simulated(of), seededRandom(`damage ${of.seed}`))
        if (operations === undefined) return
        damaged += 1
        expect(await checkHistory({ operations })).toMatchObject({ ok: false })
      })
      await fc.assert(property, { numRuns: 30 })
      expect(damaged).toBeGreaterThan(5)
    })
  }

  test('the history checker does not accept a history whose check exceeds its time limit', async () => {
    const conditionStatus = await checkHistory({ operations: simulated({ seed: 1, count: 400 }) }, { timeoutSeconds: 1e-9 })
    expect(conditionStatus).toMatchObject({ ok: false, failures: [] })
    expect(conditionStatus.unknown.length).toBeGreaterThan(0)
  })

  test('the history checker reports invalid input as an error, not as a refusal', async () => {
    const nonsense = { ...create(0, 'a'), return: -1 }
    await expect(checkHistory({ operations: [nonsense] })).rejects.toThrow('operation 1: returned before it was called')
  })
})
