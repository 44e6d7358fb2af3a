import { isWithin, rootOf, trustedUid, type Uid } from '../base/uid.ts'
import type { Snapshot } from '../cache/snapshot.ts'
import { pendingKey, pendingPrefix, usedByPrefix } from '../store/keys.ts'
import type { Guard } from '../store/store.ts'
import type { Extra, Planning } from './kind.ts'
import type { Caller, Services } from './services.ts'

/*
 * Whether a person belongs to an organisation in which roles are bound to them. Others may bind a role to any person, so that alone does not count: the key
 * `pendingKey(person, root)` is there from their first binding until the person joins. Its absence means joined, so everybody who was bound before the key existed is.
 */

/** True for a person: an identity that lies in no group. */
export function isPerson(identity: string): boolean {
  return !identity.includes('/')
}

/** True where others bound a role to the person in the organisation `root`, and the person has not joined it. */
export function isPending(snapshot: Pick<Snapshot, 'entry'>, person: string, root: Uid): boolean {
  return snapshot.entry(pendingKey(trustedUid(person), root)) !== undefined
}

function isBound(snapshot: Snapshot, person: string, root: Uid): boolean {
  return snapshot.table('RoleBinding').matching('identity', person, root).size > 0
}

/** True where the organisation `root` may see who the person is: a role is bound to them there, and they joined. Cost: O(log n). */
export function isMember(snapshot: Snapshot, person: string, root: Uid): boolean {
  return !isPending(snapshot, person, root) && isBound(snapshot, person, root)
}

/** The organisations that the caller has reach in, and unscoped lists leave out. Roles of a session come by the organisation's own provider. */
export function leavesOut(snapshot: Snapshot, { identity, restrictions, reach }: Caller): (group: Uid) => boolean {
  if (!isPerson(identity) || reach().operator) return () => false
  const session = new Set(restrictions.roles?.map(({ group }) => rootOf(group)))
  return (group) => isPending(snapshot, identity, rootOf(group)) && !session.has(rootOf(group))
}

/** The prefix of the reverse keys of all bindings of a person in one organisation. */
function bindingsPrefix(person: Uid, root: Uid): string {
  return `${usedByPrefix('RoleBinding.identity', person)}${root}/`
}

/** The write that makes a person pending, where they have no binding in the organisation; it fails where they get one meanwhile. */
function firstBinding(person: Uid, root: Uid): Required<Extra> {
  return {
    guards: [{ kind: 'empty', prefix: bindingsPrefix(person, root) }],
    writes: [{ kind: 'put', key: pendingKey(person, root), value: new Uint8Array() }],
  }
}

/** What goes with a binding that others make: where it is the person's first one in the organisation, they have yet to join. */
export function planBound({ snapshot }: Planning, { identity, group }: { identity: string; group: Uid }): Extra {
  if (!isPerson(identity)) return {}
  const [person, root] = [trustedUid(identity), rootOf(group)]
  const key = pendingKey(person, root)
  const entry = snapshot.entry(key)
  if (entry !== undefined) return { guards: [{ kind: 'unchanged', key, revision: entry.revision }] }
  return isBound(snapshot, person, root) ? {} : firstBinding(person, root)
}

/** What goes with a binding of a person that goes: with the last one in the organisation, that they had yet to join. */
export function planUnbound({ snapshot, services }: Planning, { identity, uid }: { identity: string; uid: Uid }): Extra {
  if (!isPerson(identity)) return {}
  const [person, root] = [trustedUid(identity), rootOf(uid)]
  const key = pendingKey(person, root)
  const entry = snapshot.entry(key)
  const isLast = [...snapshot.table('RoleBinding').matching('identity', person, root)].every((row) => row.uid === uid)
  if (entry === undefined || !isLast) return {}
  const quiet: Guard = { kind: 'quiet', prefix: bindingsPrefix(person, root), revision: services.replica.revision }
  return { guards: [{ kind: 'unchanged', key, revision: entry.revision }, quiet], writes: [{ kind: 'delete', key }] }
}

/** What it takes that the person joined the organisation, whether they were pending or not. */
export function planJoined({ snapshot }: Pick<Planning, 'snapshot'>, person: Uid, root: Uid): Extra {
  const key = pendingKey(person, root)
  const entry = snapshot.entry(key)
  if (entry === undefined) return { guards: [{ kind: 'absent', key }] }
  return { guards: [{ kind: 'unchanged', key, revision: entry.revision }], writes: [{ kind: 'delete', key }] }
}

/** The groups of bindings of `identity` that make `uid` a group of theirs: at it, above it or below it. */
export function boundAround(snapshot: Snapshot, identity: Uid, uid: Uid): Uid[] {
  const rows = [...snapshot.table('RoleBinding').matching('identity', identity, rootOf(uid))]
  return rows.map((row) => trustedUid(row.parent)).filter((group) => isWithin(group, uid) || isWithin(uid, group))
}

/** Those of the persons whose first binding in the organisation is yet to come, each once. */
export function notYetBound(snapshot: Snapshot, persons: readonly Uid[], root: Uid): Uid[] {
  return [...new Set(persons)].filter((person) => snapshot.entry(pendingKey(person, root)) === undefined && !isBound(snapshot, person, root))
}

/**
 * Makes persons pending in an organisation ahead of a batch of bindings, which has no room for these writes. Call it with `notYetBound`, after a dry run of the batch: a
 * key that no binding follows has no effect, but it stays until `forgetPending`. Rejects with StoreError.
 */
export async function invite({ store, replica }: Services, { persons, root }: { persons: readonly Uid[]; root: Uid }, signal: AbortSignal): Promise<void> {
  const parts = persons.map((person) => firstBinding(person, root))
  const transaction = { guards: parts.flatMap(({ guards }) => guards), writes: parts.flatMap(({ writes }) => writes) }
  const outcome = await store.transact(transaction, signal)
  if (outcome.committed) await replica.reached(outcome.revision, signal)
}

/** So many keys are read, and removed in one transaction. */
const forgottenAtOnce = 100

/**
 * Removes the keys of persons who have no binding in the organisation any more, a page at a time. Returns how many. Rejects with StoreError, or the signal's reason.
 */
export async function forgetPending({ store, replica }: Services, signal: AbortSignal): Promise<number> {
  let removed = 0
  for (let after: string | undefined; ;) {
    const { entries, more } = await store.range({ prefix: pendingPrefix, limit: forgottenAtOnce, ...(after === undefined ? {} : { after }) }, signal)
    const unbound = entries.map(({ key }) => memberOf(key)).filter(({ person, root }) => !isBound(replica.snapshot, person, root))
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

/** Removes the keys of these who still have no binding: all at once, or one by one where a binding of one is in the way. */
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
