import { expect } from 'vitest'
import { builtInRoles } from '../../src/core/roles.ts'
import { trustedUid } from '../../src/core/uid.ts'
import type { RoleBinding } from '../../src/gen/taproot/iam/v2/role_bindings_pb.ts'
import { rowOfBytes } from '../../src/snapshot/row-maker.ts'
import type { Row } from '../../src/snapshot/row.ts'
import { nameKey, ownersKey, parseRecordKey, sweepPrefix, usedByKey } from '../../src/store/keys.ts'
import type { Entry, Store } from '../../src/store/store.ts'
import { indexOf } from '../snapshot/rows.ts'
import { soon, until } from '../store/store-harness.ts'

/** Every entry whose key starts with `prefix`, as of one commit. */
export async function entriesOf(store: Store, prefix: string): Promise<Entry[]> {
  const found: Entry[] = []
  let page = await store.range({ prefix, limit: 1000 }, soon())
  const { revision } = page
  for (;;) {
    found.push(...page.entries)
    const after = page.entries.at(-1)?.key
    if (!page.more || after === undefined) return found
    page = await store.range({ prefix, limit: 1000, revision, after }, soon())
  }
}

/** The stored records, decoded. */
export async function storedRows(store: Store): Promise<Row[]> {
  return (await entriesOf(store, 'r/')).map((entry) => {
    const { kind, uid } = parseRecordKey(entry.key)
    return rowOfBytes(indexOf(kind), { uid: trustedUid(uid), bytes: entry.value, revision: entry.revision })
  })
}

/** Waits until every sweep has ended. */
export async function sweepsDone(store: Store): Promise<void> {
  await until(async () => (await store.range({ prefix: sweepPrefix, limit: 1 }, soon())).entries.length === 0)
}

function bindingOf(row: Row): RoleBinding {
  // Asked only of rows of kind RoleBinding.
  return row.message as unknown as RoleBinding
}

/** The unique and reverse keys that stand for a record (architecture 4). */
function keysOf(row: Row): string[] {
  if (row.kind === 'Group' || row.kind === 'Role') return [nameKey(row.kind, row.parent, row.name)]
  if (row.kind !== 'RoleBinding') return []
  const { identityUid, roleUid } = bindingOf(row)
  return [
    nameKey(row.kind, row.parent, `${identityUid} ${roleUid}`),
    usedByKey('RoleBinding.identity', identityUid, row.uid),
    usedByKey('RoleBinding.role', roleUid, row.uid),
  ]
}

const builtInUids: ReadonlySet<string> = new Set(builtInRoles.map((role) => role.uid))
const ownerUid = builtInRoles.find((role) => role.name === 'owner')?.uid ?? ''

/** The owners of a root group in the store: bindings whose identity is there (or is a person). */
export function ownersOf(rows: readonly Row[], root: string): Row[] {
  const identities = new Set(rows.filter((row) => row.kind === 'Identity').map((row) => row.uid as string))
  return rows.filter((row) => {
    if (row.kind !== 'RoleBinding' || row.parent !== root || bindingOf(row).roleUid !== ownerUid) return false
    const { identityUid } = bindingOf(row)
    return !identityUid.includes('/') || identities.has(identityUid)
  })
}

/**
 * What must hold in the store whatever was done to it, once sweeping has ended: unique and reverse keys exactly for the records that are there; nothing
 * under a group that is gone; bindings only of what exists; an owners key for every root group and for nothing else; no marks.
 */
export async function expectSoundStore(store: Store): Promise<void> {
  await sweepsDone(store)
  const rows = await storedRows(store)
  const uids = new Set(rows.map((row) => `${row.kind} ${row.uid}`))
  const orphans = rows.filter((row) => row.parent !== '/' && !uids.has(`Group ${row.parent}`)).map((row) => `${row.kind} ${row.uid}`)
  expect(orphans, 'records under a group that is gone').toEqual([])
  const dangling = rows.filter((row) => {
    if (row.kind !== 'RoleBinding') return false
    const { identityUid, roleUid } = bindingOf(row)
    return (identityUid.includes('/') && !uids.has(`Identity ${identityUid}`)) || (!builtInUids.has(roleUid) && !uids.has(`Role ${roleUid}`))
  })
  expect(
    dangling.map((row) => row.uid),
    'bindings of what is gone',
  ).toEqual([])
  const expected = rows.flatMap(keysOf)
  expect(new Set(expected).size, 'no unique key twice').toBe(expected.length)
  const kept = (await entriesOf(store, 'i/')).filter((entry) => !entry.key.startsWith('i/owners/')).map((entry) => entry.key)
  expect(kept.sort(), 'unique and reverse keys').toEqual(expected.sort())
  const roots = rows.filter((row) => row.kind === 'Group' && row.parent === '/').map((row) => ownersKey(row.uid))
  expect((await entriesOf(store, 'i/owners/')).map((entry) => entry.key).sort(), 'owners keys').toEqual(roots.sort())
}
