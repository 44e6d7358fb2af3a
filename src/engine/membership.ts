import { isWithin, rootOf, trustedUid, type Uid } from '../base/uid.ts'
import type { RecordTables } from '../cache/record-tables.ts'
import { pendingKey, pendingPrefix, usedByPrefix } from '../store/keys.ts'
import type { Guard } from '../store/store.ts'
import type { Extra, Planning } from './kind.ts'
import type { Caller, Services } from './services.ts'

/**
 * Membership of persons in organisations. A role can be bound to any person, so a role binding alone does not mean membership. The key `pendingKey(person,
 * root)` exists from the person's first binding until the person joins. Its absence means joined, so every person who was bound before the key was introduced
 * counts as a member.
 */

/** True if the identity is a person: an identity that is in no group. */
export function isPerson(identity: string): boolean {
  return !identity.includes('/')
}

/** True if others bound a role to the person in the organisation `root`, and the person has not joined it. */
export function isPending(tables: Pick<RecordTables, 'entry'>, person: string, root: Uid): boolean {
  return tables.entry(pendingKey(trustedUid(person), root)) !== undefined
}

function isBound(tables: RecordTables, person: string, root: Uid): boolean {
  return tables.table('RoleBinding').matching('identity', person, root).size > 0
}

/** True if the organisation `root` may see the person's details: the person has a role binding there and has joined. It costs O(log n). */
export function isMember(tables: RecordTables, person: string, root: Uid): boolean {
  return !isPending(tables, person, root) && isBound(tables, person, root)
}

/**
 * Returns a function that is true for groups which lists without a scope omit: those of organisations that the caller has not joined. Organisations for which
 * the session has roles are not omitted, because their own provider granted them.
 */
export function leavesOut(tables: RecordTables, { identity, restrictions, permissions }: Caller): (group: Uid) => boolean {
  if (!isPerson(identity) || permissions().operator) return () => false
  const session = new Set(restrictions.roles?.map(({ group }) => rootOf(group)))
  return (group) => isPending(tables, identity, rootOf(group)) && !session.has(rootOf(group))
}

/** Returns the prefix of the reverse keys of a person's role bindings in one organisation. */
function bindingsPrefix(person: Uid, root: Uid): string {
  return `${usedByPrefix('RoleBinding.identity', person)}${root}/`
}

/** Returns the write that makes a person pending if they have no role binding in the organisation. Its guard fails if they get one in the meantime. */
function firstBinding(person: Uid, root: Uid): Required<Extra> {
  return {
    guards: [{ kind: 'empty', prefix: bindingsPrefix(person, root) }],
    writes: [{ kind: 'put', key: pendingKey(person, root), value: new Uint8Array() }],
  }
}

/**
 * Returns the guards and writes for a role binding that another person creates. If it is the person's first one in the organisation, the person becomes
 * pending.
 */
export function planBound({ tables }: Planning, { identity, group }: { identity: string; group: Uid }): Extra {
  if (!isPerson(identity)) return {}
  const [person, root] = [trustedUid(identity), rootOf(group)]
  const key = pendingKey(person, root)
  const entry = tables.entry(key)
  if (entry !== undefined) return { guards: [{ kind: 'unchanged', key, revision: entry.revision }] }
  return isBound(tables, person, root) ? {} : firstBinding(person, root)
}

/** Returns the guards and writes for removing a person's role binding. With the last one in the organisation, the pending key is removed too. */
export function planUnbound({ tables, services }: Planning, { identity, uid }: { identity: string; uid: Uid }): Extra {
  if (!isPerson(identity)) return {}
  const [person, root] = [trustedUid(identity), rootOf(uid)]
  const key = pendingKey(person, root)
  const entry = tables.entry(key)
  const isLast = [...tables.table('RoleBinding').matching('identity', person, root)].every((record) => record.uid === uid)
  if (entry === undefined || !isLast) return {}
  const quiet: Guard = { kind: 'quiet', prefix: bindingsPrefix(person, root), revision: services.cache.revision }
  return { guards: [{ kind: 'unchanged', key, revision: entry.revision }, quiet], writes: [{ kind: 'delete', key }] }
}

/** Returns the guards and writes that make the person a member of the organisation, whether or not they were pending. */
export function planJoined({ tables }: Pick<Planning, 'tables'>, person: Uid, root: Uid): Extra {
  const key = pendingKey(person, root)
  const entry = tables.entry(key)
  if (entry === undefined) return { guards: [{ kind: 'absent', key }] }
  return { guards: [{ kind: 'unchanged', key, revision: entry.revision }], writes: [{ kind: 'delete', key }] }
}

/** Returns the groups of the identity's role bindings that are at `uid`, above it or below it. */
export function boundAround(tables: RecordTables, identity: Uid, uid: Uid): Uid[] {
  const records = [...tables.table('RoleBinding').matching('identity', identity, rootOf(uid))]
  return records.map((record) => trustedUid(record.parent)).filter((group) => isWithin(group, uid) || isWithin(uid, group))
}

/** Returns the persons who have no role binding in the organisation yet, each once. */
export function notYetBound(tables: RecordTables, persons: readonly Uid[], root: Uid): Uid[] {
  return [...new Set(persons)].filter((person) => tables.entry(pendingKey(person, root)) === undefined && !isBound(tables, person, root))
}

/**
 * Makes persons pending in an organisation before a batch of role bindings, whose transaction has no room for these writes. Call it with the result of
 * `notYetBound` after a dry run of the batch. A pending key without a binding has no effect; `forgetPending` removes it. Rejects with StoreError.
 */
export async function invite({ store, cache }: Services, { persons, root }: { persons: readonly Uid[]; root: Uid }, signal: AbortSignal): Promise<void> {
  const parts = persons.map((person) => firstBinding(person, root))
  const transaction = { guards: parts.flatMap(({ guards }) => guards), writes: parts.flatMap(({ writes }) => writes) }
  const outcome = await store.transact(transaction, signal)
  if (outcome.committed) await cache.reached(outcome.revision, signal)
}

/** Number of pending keys to read, and to remove in one transaction. */
const forgottenAtOnce = 100

/**
 * Removes the pending keys of persons who no longer have a role binding in the organisation, a page at a time. Returns their number. Rejects with StoreError
 * or the signal's reason.
 */
export async function forgetPending({ store, cache }: Services, signal: AbortSignal): Promise<number> {
  let removed = 0
  for (let after: string | undefined; ;) {
    const { entries, more } = await store.range({ prefix: pendingPrefix, limit: forgottenAtOnce, ...(after === undefined ? {} : { after }) }, signal)
    const unbound = entries.map(({ key }) => memberOf(key)).filter(({ person, root }) => !isBound(cache.tables, person, root))
    removed += await forget(store, unbound, signal)
    after = entries.at(-1)?.key
    if (!more || after === undefined) return removed
  }
}

interface Membership {
  readonly person: Uid
  readonly root: Uid
}

function memberOf(key: string): Membership {
  const [person = '', root = ''] = key.slice(pendingPrefix.length).split('/')
  return { person: trustedUid(person), root: trustedUid(root) }
}

/**
 * Removes the pending keys of these persons if they still have no role binding. Removes all at once, or one by one if one of them got a binding. Returns their
 * number.
 */
async function forget(store: Services['store'], members: readonly Membership[], signal: AbortSignal): Promise<number> {
  if (members.length === 0) return 0
  const guards = members.map(({ person, root }): Guard => ({ kind: 'empty', prefix: bindingsPrefix(person, root) }))
  const writes = members.map(({ person, root }) => ({ kind: 'delete', key: pendingKey(person, root) }) as const)
  const { committed } = await store.transact({ guards, writes }, signal)
  if (committed) return members.length
  let removed = 0
  if (members.length > 1) for (const member of members) removed += await forget(store, [member], signal)
  return removed
}
