import type { Operation, Seen } from './history.ts'

/** An operation from `start` to `start + 5`. */
export function at(start: number, fields: Partial<Operation> & Pick<Operation, 'action'>): Operation {
  const isUnknown = fields.outcome === 'unknown'
  return { client: 1, call: start, return: isUnknown ? null : start + 5, kind: 'Role', parent: 'g', outcome: 'ok', ...fields }
}

/** A record with this value, as an answer shows it. */
export const seen = (uid: string, value: string): Seen => ({ uid, value, etag: `etag ${value}`, tag: `tag ${uid}` })
/** An acknowledged create. Its first value is the uid and `1`. */
export const create = (start: number, uid: string, more: Partial<Operation> = {}): Operation =>
  at(start, { action: 'create', uid, value: `${uid}1`, etag: `etag ${uid}1`, tag: `tag ${uid}`, name: `name ${uid}`, ...more })
/** A create without an answer. */
export const unanswered = (start: number, uid: string, more: Partial<Operation> = {}): Operation => {
  const { uid: _, etag: __, ...rest } = create(start, uid, { outcome: 'unknown', return: null, ...more })
  return rest
}
/** A read that returns this value. */
export const read = (start: number, uid: string, value: string): Operation => at(start, { action: 'read', ...seen(uid, value) })
/** A read that finds no record. */
export const absent = (start: number, uid: string): Operation => at(start, { action: 'read', uid, outcome: 'absent' })
/** An acknowledged change. */
export const update = (start: number, uid: string, value: string, more: Partial<Operation> = {}): Operation =>
  at(start, { action: 'update', ...seen(uid, value), ...more })
/** An acknowledged removal. */
export const remove = (start: number, uid: string, more: Partial<Operation> = {}): Operation => at(start, { action: 'delete', uid, ...more })
/** A list with these records. */
export const list = (start: number, ...members: Seen[]): Operation => at(start, { action: 'list', members })
/** An acknowledged create of a role binding. */
export const binding = (start: number, uid: string, more: Partial<Operation> = {}): Operation => {
  const { tag: _, ...rest } = create(start, uid, { kind: 'RoleBinding', identity: 'i', name: 'i viewer', ...more })
  return rest
}
/** A list of unchanged role bindings. */
export const bindings = (start: number, ...uids: string[]): Operation =>
  at(start, { action: 'list', kind: 'RoleBinding', members: uids.map((uid) => ({ uid, value: `${uid}1`, etag: `etag ${uid}1`, identity: 'i' })) })
/** A create of a binding without an answer: its uid is unknown. */
export const lostBinding = (start: number, role: string): Operation =>
  at(start, { action: 'create', kind: 'RoleBinding', value: role, identity: 'i', name: `i ${role}`, outcome: 'unknown', return: null })
/** Bindings of an identity, as `uid role`. */
export const bound = (start: number, ...shown: string[]): Operation => {
  const members = shown.map((each) => each.split(' ')).map(([uid = '', value = '']) => ({ uid, value, etag: `etag ${uid} ${value}`, identity: 'i' }))
  return at(start, { action: 'list', kind: 'RoleBinding', members })
}
/** The create of the group of all other records. */
export const group = (start: number): Operation => create(start, 'g', { kind: 'Group', parent: '/' })
/** A refused removal of the group, because it is not empty. */
export const refusedGroup = (start: number, more: Partial<Operation> = {}): Operation =>
  remove(start, 'g', { kind: 'Group', parent: '/', outcome: 'refused', code: 9, ...more })
/** A refused removal of a role, because it is bound. */
export const refusedRole = (start: number, uid: string): Operation => remove(start, uid, { outcome: 'refused', code: 9 })
/** A list of long duration. */
export const longList = (start: number, ...members: Seen[]): Operation => ({ ...list(start, ...members), return: 100 })
/** The guard of a write: the state with this value. */
export const guarded = (uid: string, value: string): Partial<Operation> => ({ guard: `etag ${uid}${value}`, guardValue: `${uid}${value}` })
/** A call by the identity of all bindings, which is allowed if it has one of them. */
export const use = (start: number, outcome: 'ok' | 'absent'): Operation => at(start, { action: 'use', kind: 'RoleBinding', identity: 'i', outcome })
