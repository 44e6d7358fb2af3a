import { describeWithPart } from '../../support/parts/require-part.ts'
import {
  absent,
  at,
  binding,
  bound,
  create,
  group,
  list,
  longList,
  lostBinding,
  read,
  refusedGroup,
  refusedRole,
  remove,
  seen,
  unanswered,
  update,
  use,
} from './example-operations.ts'
import { testHistories, type BrokenHistories, type ValidHistories } from './history-tables.ts'

const valid: ValidHistories = {
  'rights after many bindings, all of which are read at once in the end, with a removal without an answer': [
    ...Array.from({ length: 64 }, (_, nth) => [
      binding(20 * nth, `b${nth}`),
      use(20 * nth + 7, 'ok'),
      remove(20 * nth + 14, `b${nth}`, { kind: 'RoleBinding' }),
    ]).flat(),
    binding(5_000, 'c'),
    use(5_010, 'ok'),
    remove(5_020, 'c', { kind: 'RoleBinding', outcome: 'unknown', return: null }),
    ...Array.from({ length: 64 }, (_, nth) => ({ ...absent(5_100, `b${nth}`), client: 1_000, kind: 'RoleBinding' as const })),
    { ...read(5_100, 'c', 'c1'), client: 1_000, kind: 'RoleBinding' as const },
  ],
  'two bindings by two creations without an answer': [lostBinding(0, 'viewer'), lostBinding(5, 'editor'), bound(10, 'a viewer', 'b editor')],
  'one of two bindings without an answer, which was changed since': [
    lostBinding(0, 'viewer'),
    lostBinding(5, 'editor'),
    at(10, { action: 'update', kind: 'RoleBinding', uid: 'a', value: 'owner', identity: 'i', name: 'i owner', etag: 'etag a owner' }),
    bound(20, 'a owner'),
  ],
  'a binding without an answer that is gone before another one is made': [
    lostBinding(0, 'viewer'),
    bound(10, 'a viewer'),
    remove(20, 'a', { kind: 'RoleBinding' }),
    lostBinding(30, 'viewer'),
    bound(40, 'b viewer'),
  ],
  'a list beside two writes shows neither, the first or both': [
    create(0, 'a'),
    create(0, 'b'),
    longList(10, seen('a', 'a1'), seen('b', 'b1')),
    longList(10, seen('a', 'a2'), seen('b', 'b1')),
    longList(10, seen('a', 'a2'), seen('b', 'b2')),
    update(20, 'a', 'a2'),
    update(40, 'b', 'b2'),
  ],
  'a list beside two writes at once shows either': [
    create(0, 'a'),
    create(0, 'b'),
    update(20, 'a', 'a2', { return: 90 }),
    update(20, 'b', 'b2', { return: 90 }),
    longList(10, seen('a', 'a1'), seen('b', 'b2')),
    longList(10, seen('a', 'a1'), seen('b', 'b1')),
  ],
  'a list shows a later write, and an earlier one without an answer not yet': [
    create(0, 'a'),
    create(0, 'b'),
    update(10, 'a', 'a2', { outcome: 'unknown', return: null }),
    update(20, 'b', 'b2'),
    list(30, seen('a', 'a1'), seen('b', 'b2')),
    list(40, seen('a', 'a2'), seen('b', 'b2')),
  ],
  'a list beside a creation and a removal shows both or one': [
    create(0, 'a'),
    create(20, 'b'),
    remove(40, 'a'),
    longList(10, seen('a', 'a1')),
    longList(10, seen('a', 'a1'), seen('b', 'b1')),
    longList(10, seen('b', 'b1')),
  ],
  'a group with a member is kept': [group(0), create(10, 'a'), refusedGroup(20), remove(30, 'a'), remove(40, 'g', { kind: 'Group', parent: '/' })],
  'a group is kept beside the removal of its only member': [group(0), create(10, 'a'), remove(20, 'a', { return: 90 }), refusedGroup(30), absent(95, 'a')],
  'a group is kept beside the creation of its first member': [group(0), create(10, 'a', { return: 90 }), refusedGroup(20)],
  'a group is kept for a creation without an answer': [group(0), unanswered(10, 'a'), refusedGroup(20)],
  'a group is kept for a removal without an answer': [
    group(0),
    create(10, 'a'),
    remove(20, 'a', { outcome: 'unknown', return: null }),
    refusedGroup(30),
    list(40),
  ],
  'a role that is bound is kept': [group(0), create(0, 'viewer'), lostBinding(10, 'viewer'), refusedRole(20, 'viewer')],
  'an identity is let in while it is bound': [use(0, 'absent'), binding(10, 'b'), use(20, 'ok'), remove(30, 'b', { kind: 'RoleBinding' }), use(40, 'absent')],
  'an identity is let in or not beside a creation and a removal': [
    binding(10, 'b', { return: 40 }),
    use(20, 'absent'),
    use(30, 'ok'),
    remove(50, 'b', { kind: 'RoleBinding', return: 90 }),
    use(60, 'ok'),
    use(70, 'absent'),
  ],
  'an identity is let in while one binding of two is there': [
    binding(0, 'b'),
    binding(10, 'c', { name: 'i editor' }),
    remove(20, 'b', { kind: 'RoleBinding' }),
    use(30, 'ok'),
  ],
  'an identity is let in no more after a removal without an answer': [
    binding(0, 'b'),
    remove(10, 'b', { kind: 'RoleBinding', outcome: 'unknown', return: null }),
    use(20, 'ok'),
    use(30, 'absent'),
  ],
  'an identity is admitted by a creation without an answer': [lostBinding(0, 'viewer'), use(10, 'absent'), use(20, 'ok')],
}

const broken: BrokenHistories = {
  'one creation without an answer that made two bindings': [
    'makers g i',
    [lostBinding(0, 'viewer'), bound(10, 'a viewer'), remove(20, 'a', { kind: 'RoleBinding' }), bound(30, 'b viewer')],
  ],
  'two creations without an answer that made three bindings': [
    'makers g i',
    [lostBinding(0, 'viewer'), lostBinding(1, 'editor'), lostBinding(2, 'owner'), bound(10, 'a viewer', 'b editor', 'c viewer')],
  ],
  'a binding that was there before its creation was asked for': [
    'record RoleBinding b',
    [lostBinding(0, 'viewer'), bound(10, 'a viewer', 'b editor'), lostBinding(30, 'editor')],
  ],
  'a binding with another role than was asked for': ['record RoleBinding a', [lostBinding(0, 'viewer'), lostBinding(1, 'editor'), bound(10, 'a owner')]],
  'a binding with another role than the only one that was asked for': ['record RoleBinding a', [lostBinding(0, 'viewer'), bound(10, 'a owner')]],
  'a torn list: a later write, and not an earlier one': [
    'lists Role g',
    [create(0, 'a'), create(0, 'b'), longList(10, seen('a', 'a1'), seen('b', 'b2')), update(20, 'a', 'a2'), update(40, 'b', 'b2')],
  ],
  'a torn list: a later write, and not an earlier creation': [
    'lists Role g',
    [create(0, 'b'), longList(10, seen('b', 'b2')), create(20, 'a'), update(40, 'b', 'b2')],
  ],
  'a torn list: a later write, and what was removed before it': [
    'lists Role g',
    [create(0, 'a'), create(0, 'b'), longList(10, seen('a', 'a1'), seen('b', 'b2')), remove(20, 'a'), update(40, 'b', 'b2')],
  ],
  'a torn list: a write that was read before, and not an earlier one without an answer that was read before it': [
    'lists Role g',
    [
      create(0, 'a'),
      create(0, 'b'),
      longList(10, seen('a', 'a1'), seen('b', 'b2')),
      update(20, 'a', 'a2', { outcome: 'unknown', return: null }),
      read(30, 'a', 'a2'),
      update(40, 'b', 'b2'),
    ],
  ],
  'two lists that show two writes in different orders': [
    'lists Role g',
    [
      create(0, 'a'),
      create(0, 'b'),
      update(20, 'a', 'a2', { return: 90 }),
      update(20, 'b', 'b2', { return: 90 }),
      longList(10, seen('a', 'a1'), seen('b', 'b2')),
      longList(10, seen('a', 'a2'), seen('b', 'b1')),
    ],
  ],
  'an empty group that is kept': ['refusal Group g', [group(0), refusedGroup(10)]],
  'a group that is kept after its only member went': ['refusal Group g', [group(0), create(10, 'a'), remove(20, 'a'), refusedGroup(30)]],
  'a group that is kept before its first member was asked for': ['refusal Group g', [group(0), refusedGroup(10), create(20, 'a')]],
  'a group that is kept for its bindings': ['refusal Group g', [group(0), binding(10, 'b'), refusedGroup(20)]],
  'a group that is kept for a removal without an answer that was seen before': [
    'refusal Group g',
    [group(0), create(10, 'a'), remove(20, 'a', { outcome: 'unknown', return: null }), absent(30, 'a'), refusedGroup(40)],
  ],
  'a group that is kept for a creation without an answer that never shows': ['refusal Group g', [group(0), unanswered(10, 'a'), refusedGroup(20), list(30)]],
  'a role that nothing binds and that is kept': ['refusal Role viewer', [create(0, 'viewer'), lostBinding(10, 'editor'), refusedRole(20, 'viewer')]],
  'an identity that is let in after its binding went': ['rights g i', [binding(0, 'b'), remove(10, 'b', { kind: 'RoleBinding' }), use(20, 'ok')]],
  'an identity that is not let in though it is bound': ['rights g i', [binding(0, 'b'), use(10, 'absent')]],
  'an identity that is let in before it is bound': ['rights g i', [use(0, 'ok'), binding(10, 'b')]],
  'an identity that is let in, and then not yet': ['rights g i', [binding(0, 'b', { return: 90 }), use(10, 'ok'), use(20, 'absent')]],
  'an identity that is let in again after a removal without an answer': [
    'rights g i',
    [binding(0, 'b'), remove(10, 'b', { kind: 'RoleBinding', outcome: 'unknown', return: null }), use(20, 'absent'), use(30, 'ok')],
  ],
}

describeWithPart('history-checker', 'the history checker for operations on several records', () => {
  testHistories({ valid, broken })
})
