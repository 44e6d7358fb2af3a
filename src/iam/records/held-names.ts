import { create, fromBinary, toBinary } from '@bufbuild/protobuf'
import { DomainError } from '../../base/errors.ts'
import type { Uid } from '../../base/uid.ts'
import { HeldNameSchema, type HeldName } from '../../gen/taproot/store/v1/envelope_pb.ts'
import type { RecordTables } from '../../cache/record-tables.ts'
import { heldNameKey, heldNamePrefix, releasedNamesKey } from '../../store/keys.ts'
import type { Entry, Guard, Write } from '../../store/store.ts'
import { bindingOf, ownerBindings } from '../../engine/organisation-owners.ts'
import type { Extra, Planning } from '../../engine/kind.ts'
import type { Ownership, Services } from '../../engine/services.ts'
import { parseManagedBy } from '../../engine/ownership.ts'

/*
 * The former name of a root group stays reserved for a while after a rename or deletion. Clients that still use it, such as image references and pipelines, must
 * not reach another organisation. The transaction that frees the name writes `i/held/<name>`. Every transaction that takes a name guards that key.
 */

/** Maximum number of owners in the entry of a reserved name. */
const maxOwners = 100
/** Maximum number of names that one group reserves by renames. */
const maxNamesOfGroup = 5
/** Minimum age of a group to reserve its name, in milliseconds. Otherwise short-lived groups could fill the store. */
const youngMs = 3_600_000

/** Returns the namespace of a Kubernetes object as `<cluster id>/<namespace>`; empty for an API call. */
function namespaceOf(ownership: Ownership): string {
  const owner = ownership.kind === 'object' ? parseManagedBy(ownership.managedBy) : undefined
  return owner === undefined ? '' : `${owner.clusterId}/${owner.namespace}`
}

function ownersOf(tables: RecordTables, root: Uid): string[] {
  return ownerBindings(tables, root).map((record) => bindingOf(record).identityUid)
}

/** A root group that gives up its name, with that name and the group's creation time. */
interface Releasing {
  readonly uid: Uid
  readonly name: string
  readonly createMs: number
}

function heldName({ tables, caller, ownership, nowMs }: Planning, { uid, name }: Releasing): Write {
  const namespace = namespaceOf(ownership)
  const owners = [...new Set([...(namespace === '' ? [caller.identity] : []), ...ownersOf(tables, uid)])].slice(0, maxOwners)
  const held = create(HeldNameSchema, { releaseTimeMs: BigInt(nowMs), groupUid: uid, ownerUids: owners, namespace })
  return { kind: 'put', key: heldNameKey(name), value: toBinary(HeldNameSchema, held) }
}

/** True if the group is old enough that clients can rely on its name. */
function reservesNames({ nowMs }: Planning, { createMs }: Releasing): boolean {
  return nowMs - createMs >= youngMs
}

function releasedNames(tables: RecordTables, root: Uid): string[] {
  const entry = tables.entry(releasedNamesKey(root))
  // Only planRenamed writes these entries.
  return entry === undefined ? [] : (JSON.parse(Buffer.from(entry.value).toString()) as string[])
}

/**
 * Reserves the former name of a renamed root group for the group, its owners and the caller. A group reserves at most five names; the
 * oldest one then becomes available. The caller changes the record of the group in the same transaction.
 */
export function planRenamed(planning: Planning, releasing: Releasing, next: string): Extra {
  const { tables } = planning
  const { uid, name } = releasing
  if (!reservesNames(planning, releasing)) return {}
  const names = [...releasedNames(tables, uid).filter((other) => other !== name && other !== next), name]
  const freed = names.splice(0, Math.max(0, names.length - maxNamesOfGroup)).flatMap((other): { guard: Guard; write: Write }[] => {
    const key = heldNameKey(other)
    const entry = tables.entry(key)
    if (entry === undefined || fromBinary(HeldNameSchema, entry.value).groupUid !== uid) return []
    return [{ guard: { kind: 'unchanged', key, revision: entry.revision }, write: { kind: 'delete', key } }]
  })
  const list: Write = { kind: 'put', key: releasedNamesKey(uid), value: Buffer.from(JSON.stringify(names)) }
  return { guards: freed.map(({ guard }) => guard), writes: [heldName(planning, releasing), list, ...freed.map(({ write }) => write)] }
}

/** Reserves the name of a deleted root group. */
export function planDeleted(planning: Planning, releasing: Releasing): Extra {
  const key = releasedNamesKey(releasing.uid)
  const forgotten: Write[] = planning.tables.entry(key) === undefined ? [] : [{ kind: 'delete', key }]
  return { writes: [...(reservesNames(planning, releasing) ? [heldName(planning, releasing)] : []), ...forgotten] }
}

function isFormerOwner(held: HeldName, { caller, ownership }: Planning, uid: string): boolean {
  if (held.groupUid === uid) return true
  const namespace = namespaceOf(ownership)
  return namespace === '' ? held.ownerUids.includes(caller.identity) : held.namespace === namespace
}

function heldUntilMs(held: HeldName, holdMs: number): number {
  return Number(held.releaseTimeMs) + holdMs
}

/**
 * Plans that the root group `uid` takes a name. Throws code 6 `NAME_HELD` while the name is reserved for others. That includes operators,
 * who can release it by ReleaseGroupName.
 */
export function planNameTaken(planning: Planning, { uid, name }: { uid: string; name: string }): Extra {
  const key = heldNameKey(name)
  const entry = planning.tables.entry(key)
  // Fails the transaction if the name is reserved or released before its commit.
  if (entry === undefined) return { guards: [{ kind: 'absent', key }] }
  const held = fromBinary(HeldNameSchema, entry.value)
  const untilMs = heldUntilMs(held, planning.services.settings.nameHoldMs)
  if (planning.nowMs < untilMs && !isFormerOwner(held, planning, uid)) {
    const until = new Date(untilMs).toISOString()
    const message = `Group already exists: the name "${name}" is reserved for its former owner until ${until}. Choose another name, or ask an operator to release it`
    throw new DomainError(6, message, { reason: 'NAME_HELD', details: { metadata: { name, until } } })
  }
  return { guards: [{ kind: 'unchanged', key, revision: entry.revision }], writes: [{ kind: 'delete', key }] }
}

/** Plans that a reserved name becomes available to everyone. Returns the group that reserved it; undefined if the name is not reserved. */
export function planNameFreed({ tables, services, nowMs }: Planning, name: string): { groupUid: string; extra: Extra } | undefined {
  const key = heldNameKey(name)
  const entry = tables.entry(key)
  const held = entry === undefined ? undefined : fromBinary(HeldNameSchema, entry.value)
  if (entry === undefined || held === undefined || nowMs >= heldUntilMs(held, services.settings.nameHoldMs)) return undefined
  return { groupUid: held.groupUid, extra: { guards: [{ kind: 'unchanged', key, revision: entry.revision }], writes: [{ kind: 'delete', key }] } }
}

/** Maximum number of names to remove per transaction. */
const batch = 100

/** Removes expired reservations. Resolves with their number. Rejects with StoreError, or the signal's reason. */
export async function forgetHeldNames({ store, cache, clock, settings }: Services, signal: AbortSignal): Promise<number> {
  const nowMs = clock.now()
  const ended: Entry[] = []
  for (const key of cache.tables.keysUnder(heldNamePrefix)) {
    const entry = cache.tables.entry(key)
    if (entry !== undefined && heldUntilMs(fromBinary(HeldNameSchema, entry.value), settings.nameHoldMs) <= nowMs) ended.push(entry)
  }
  let removed = 0
  for (let at = 0; at < ended.length; at += batch) {
    const part = ended.slice(at, at + batch)
    const guards = part.map(({ key, revision }): Guard => ({ kind: 'unchanged', key, revision }))
    const { committed } = await store.transact({ guards, writes: part.map(({ key }) => ({ kind: 'delete', key })) }, signal)
    if (committed) removed += part.length
  }
  return removed
}
