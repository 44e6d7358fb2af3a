import { expect } from 'vitest'
import { builtInRoles } from '../../../src/base/roles.ts'
import { trustedUid } from '../../../src/base/uid.ts'
import type { RoleBinding } from '../../../src/gen/taproot/iam/v2/role_bindings_pb.ts'
import { rowOfBytes } from '../../../src/cache/records/row-maker.ts'
import type { CachedRecord } from '../../../src/cache/records/cached-record.ts'
import { parseRecordKey, sweepPrefix } from '../../../src/store/keys.ts'
import type { Entry, Store } from '../../../src/store/store.ts'
import { indexOf } from '../../cache/rows.ts'
import { soon, until } from '../../store/store-harness.ts'
import { readAll, recordsOf, structureFaults } from './store-faults.ts'

/** Every entry whose key starts with `prefix`, as of one commit. */
export async function entriesOf(store: Store, prefix: string): Promise<Entry[]> {
  return (await readAll(store, prefix)).entries
}

/** The stored records, decoded. */
export async function storedRows(store: Store): Promise<CachedRecord[]> {
  return (await entriesOf(store, 'r/')).map((entry) => {
    const { kind, uid } = parseRecordKey(entry.key)
    return rowOfBytes(indexOf(kind), { uid: trustedUid(uid), bytes: entry.value, revision: entry.revision })
  })
}

/** Waits until every sweep has ended. */
export async function sweepsDone(store: Store): Promise<void> {
  await until(async () => (await store.range({ prefix: sweepPrefix, limit: 1 }, soon())).entries.length === 0)
}

function bindingOf(row: CachedRecord): RoleBinding {
  // Asked only of rows of kind RoleBinding.
  return row.message as unknown as RoleBinding
}

const ownerUid = builtInRoles.find((role) => role.name === 'owner')?.uid ?? ''

/** The owners of a root group in the store: bindings whose identity is there (or is a person). */
export function ownersOf(rows: readonly CachedRecord[], root: string): CachedRecord[] {
  const identities = new Set(rows.filter((row) => row.kind === 'Identity').map((row) => row.uid as string))
  return rows.filter((row) => {
    if (row.kind !== 'RoleBinding' || row.parent !== root || bindingOf(row).roleUid !== ownerUid) return false
    const { identityUid } = bindingOf(row)
    return !identityUid.includes('/') || identities.has(identityUid)
  })
}

/** Waits until sweeping has ended and fails where the store then has what must not be there whatever was done to it: see structureFaults. */
export async function expectSoundStore(store: Store): Promise<void> {
  await sweepsDone(store)
  const { entries, revision } = await readAll(store, 'r/')
  const index = await readAll(store, 'i/', revision)
  expect(structureFaults(recordsOf(entries), index.entries)).toEqual([])
}
