import type { JsonObject } from '@bufbuild/protobuf'
import { describe, expect, test } from 'vitest'
import type { Reply } from '../../support/api-clients.ts'
import type { CallResult } from './api-calls.ts'
import { History } from './history.ts'
import { Versions } from './known-records.ts'
import { RecordedCalls, type Creation, type Unsettled } from './recorded-calls.ts'

const group = 'a'.repeat(40)
const uid = `${group}/0000000000000001`
const creation: Creation = { kind: 'Role', parent: group, fields: {}, value: 'v', tag: 'v', name: 'north' }
const guard = { uid, value: 'v', etag: 'e' }

function reply(code: number, body: JsonObject = {}, details: Reply['details'] = {}): CallResult {
  return { kind: 'answered', reply: { code, body, details, message: 'said', raw: '', header: () => undefined } }
}

/** Returns an error in the format of the server. */
function fault(code: number, reason: string, details: Reply['details'] = {}): CallResult {
  return reply(code, {}, { ErrorInfo: { reason }, ...details })
}

const missing = (resourceName: string): CallResult => fault(5, 'NOT_FOUND', { ResourceInfo: { resourceName } })
const invalid = (field: string): CallResult => fault(3, 'INVALID_ARGUMENT', { BadRequest: { fieldViolations: [{ field }] } })
const refused = (type: string, reason = 'FAILED_PRECONDITION'): CallResult => fault(9, reason, { PreconditionFailure: { violations: [{ type }] } })

/** Creates calls to a server with these answers in order. The last one repeats. */
function callsAnswered(...answers: readonly CallResult[]): { calls: RecordedCalls; history: History; wrong: string[] } {
  const history = new History()
  const wrong: string[] = []
  let sent = 0
  const calls = new RecordedCalls({
    client: 1,
    history,
    versions: new Versions(),
    send: () => Promise.resolve(answers[Math.min(sent++, answers.length - 1)] ?? { kind: 'unsent' }),
    pause: () => Promise.resolve(true),
    ended: () => undefined,
    wrong: (text) => wrong.push(text),
  })
  return { calls, history, wrong }
}

type Act = (calls: RecordedCalls) => Promise<unknown>

const acts = {
  create: (calls) => calls.create(creation, () => undefined),
  'repeat a creation': (calls) => calls.create({ ...creation, idempotencyKey: 'k' }, () => undefined),
  'create a binding': (calls) => calls.create({ ...creation, kind: 'RoleBinding' }, () => undefined),
  'create an identity': (calls) => calls.create({ kind: 'Identity', parent: group, fields: {}, value: 'v', tag: 'v' }, () => undefined),
  update: (calls) => calls.update({ kind: 'Role', parent: group, uid, fields: {}, value: 'w' }),
  'update what was read': (calls) => calls.update({ kind: 'Role', parent: group, uid, fields: {}, value: 'w', guard }),
  read: (calls) => calls.read({ kind: 'Role', parent: group, uid }),
  use: (calls) => calls.use({ parent: group, identity: uid }),
  list: (calls) => calls.list({ kind: 'Role', parent: group, query: {}, isForeign: () => false }),
  'remove a role': (calls) => calls.remove({ kind: 'Role', parent: group, uid }),
  'remove a group': (calls) => calls.remove({ kind: 'Group', parent: group, uid }),
  'remove an identity': (calls) => calls.remove({ kind: 'Identity', parent: group, uid }),
} satisfies Record<string, Act>

type ActName = keyof typeof acts
const everything = Object.keys(acts) as ActName[]
const writes = everything.filter((act) => act !== 'read' && act !== 'list' && act !== 'use')

describe('the workload accepts an answer that a call can have', () => {
  const rows: readonly (readonly [what: string, acts: readonly ActName[], answers: readonly CallResult[]])[] = [
    ['the store can not be reached', everything, [fault(14, 'UNAVAILABLE')]],
    ['the request did not arrive in time', everything, [fault(4, 'DEADLINE_EXCEEDED')]],
    ['the token is not known here', everything, [fault(16, 'UNAUTHENTICATED')]],
    ['it is unknown whether it was written', writes, [fault(2, 'OUTCOME_UNKNOWN')]],
    ['the store is full', writes, [fault(8, 'STORE_FULL')]],
    ['too many write at once', writes, [fault(10, 'ABORTED')]],
    ['the record is gone', ['update', 'read', 'remove a role'], [missing(uid)]],
    ['its group is gone', ['create', 'create an identity'], [missing(group)]],
    ['it was made, and removed since', ['repeat a creation'], [{ kind: 'unanswered' }, missing(uid)]],
    ['the name is taken', ['create', 'create a binding'], [fault(6, 'ALREADY_EXISTS')]],
    ['the etag is another', ['update what was read'], [fault(10, 'ETAG_MISMATCH')]],
    ['it is unknown whether the change was written', ['remove a role'], [refused('ROLE_IN_USE', 'ROLE_IN_USE')]],
    ['the group is not empty', ['remove a group'], [refused('RESOURCE_NOT_EMPTY')]],
    ['too many writes happen at once', ['create a binding'], [invalid('roleUid')]],
    ['the role to be bound is gone, over gRPC', ['create a binding'], [invalid('role_uid')]],
    ['it has no right to', ['use'], [fault(7, 'PERMISSION_DENIED')]],
    ['it may not know of it', ['use'], [missing(group)]],
    ['no answer came', everything, [{ kind: 'unanswered' }]],
    ['the caller lacks the right', everything, [{ kind: 'unsent' }]],
  ]
  for (const [what, names, answers] of rows) {
    test.each(names)(`${what}: %s`, async (name) => {
      const { calls, wrong } = callsAnswered(...answers)
      await acts[name](calls)
      expect(wrong).toEqual([])
    })
  }
})

describe('the workload reports an answer that a call can not have', () => {
  const rows: readonly (readonly [what: string, acts: readonly ActName[], answers: readonly CallResult[]])[] = [
    ['an internal error', everything, [fault(13, 'INTERNAL')]],
    ['an outcome that is unknown for no reason', everything, [fault(2, 'UNKNOWN')]],
    ['an unknown outcome of what writes nothing', ['read', 'list', 'use'], [fault(2, 'OUTCOME_UNKNOWN')]],
    ['a refusal of an operator', everything.filter((act) => act !== 'use'), [fault(7, 'PERMISSION_DENIED')]],
    ['nothing is written, and there is no room', ['read', 'list', 'use'], [fault(8, 'STORE_FULL')]],
    ['what was asked for is invalid', everything, [invalid('name')]],
    ['the method is not there', everything, [fault(12, 'UNIMPLEMENTED')]],
    ['something else is missing', everything, [missing(`${group}/other`)]],
    ['an earlier creation is gone, and there was none', ['create'], [missing(uid)]],
    ['a name is taken, and none was claimed', ['create an identity', 'update', 'remove a role', 'read'], [fault(6, 'ALREADY_EXISTS')]],
    ['the etag is another, and none was given', ['update', 'remove a role'], [fault(10, 'ETAG_MISMATCH')]],
    ['the last owner is kept from an operator', ['remove an identity', 'update'], [refused('LAST_OWNER', 'LAST_OWNER')]],
    ['a repeated creation is answered so at last', ['repeat a creation'], [{ kind: 'unanswered' }, fault(13, 'INTERNAL')]],
  ]
  for (const [what, names, answers] of rows) {
    test.each(names)(`${what}: %s`, async (name) => {
      const { calls, wrong } = callsAnswered(...answers)
      await acts[name](calls)
      expect(wrong).not.toEqual([])
    })
  }

  test('the workload reports an answer that a call can not have when a create is repeated at the end of the run', async () => {
    // Sent six times before it is left for later.
    const { calls, wrong } = callsAnswered(...Array.from({ length: 6 }, (): CallResult => ({ kind: 'unanswered' })), fault(13, 'INTERNAL'))
    const left: Unsettled[] = []
    await calls.create({ ...creation, idempotencyKey: 'k' }, (unsettled) => left.push(unsettled))
    expect(wrong).toEqual([])
    for (const unsettled of left) expect(await calls.settle(unsettled)).toBe(false)
    expect(wrong).toHaveLength(1)
  })
})

describe('a page of a list', () => {
  const role = (name: string, id: number): JsonObject => ({ uid: `${group}/${String(id).padStart(16, '0')}`, name, description: `v${id} 0`, etag: `e${id}` })
  const many = (count: number): JsonObject[] => Array.from({ length: count }, (_, at) => role('n', at))
  const page = (roles: JsonObject[], totalCount: number, nextPageToken = ''): CallResult => reply(0, { roles, totalCount: String(totalCount), nextPageToken })
  const [first, second] = [role('south', 1), role('north', 2)]
  const listed = async (answer: CallResult, query: JsonObject): Promise<{ recorded: number; wrong: string[] }> => {
    const { calls, history, wrong } = callsAnswered(answer)
    await calls.list({ kind: 'Role', parent: group, query, isForeign: () => false })
    return { recorded: history.operations.length, wrong }
  }

  test.each([
    { what: 'nothing', answer: page([], 0), recorded: 1 },
    { what: 'an answer without a page token field', answer: reply(0, { roles: [first], totalCount: '1' }), recorded: 1 },
    { what: 'by uid without an order', answer: page([first, second], 2), recorded: 1 },
    { what: 'in the requested order', answer: page([first, second], 2), query: { orderBy: 'name desc' }, recorded: 1 },
    { what: 'ties in the order of uids', answer: page(many(3), 3), query: { orderBy: 'name desc' }, recorded: 1 },
    { what: 'a full page of a longer list, which is not recorded', answer: page(many(200), 201, 'next'), recorded: 0 },
  ])('a page of a list is accepted: $what', async ({ answer, query = {}, recorded }) => {
    expect(await listed(answer, query)).toEqual({ recorded, wrong: [] })
  })

  test.each([
    { what: 'short, with a page token', answer: page([first], 2, 'next') },
    { what: 'empty, with a page token', answer: page([], 2, 'next') },
    { what: 'full and complete, with a page token', answer: page(many(200), 200, 'next') },
    { what: 'longer than requested', answer: page(many(201), 201) },
    { what: 'short and incomplete, without a page token', answer: page([first], 2) },
    { what: 'not in the default order', answer: page([second, first], 2) },
    { what: 'not in the requested order', answer: page([second, first], 2), query: { orderBy: 'name desc' } },
    { what: 'ties not in the order of uids', answer: page(many(3).toReversed(), 3), query: { orderBy: 'name desc' } },
    { what: 'a record twice', answer: page([first, first], 2) },
  ])('a page of a list is reported: $what', async ({ answer, query = {} }) => {
    expect(await listed(answer, query)).toEqual({ recorded: 0, wrong: [expect.any(String)] })
  })
})
