import { expect } from 'vitest'
import { builtInRoles } from '../../../src/base/roles.ts'
import { trustedUid } from '../../../src/base/uid.ts'
import type { RoleBinding } from '../../../src/gen/taproot/iam/v2/role_bindings_pb.ts'
import { recordOfBytes } from '../../../src/cache/records/record-factory.ts'
import type { CachedRecord } from '../../../src/cache/records/cached-record.ts'
import { parseRecordKey, cascadePrefix } from '../../../src/store/keys.ts'
import type { Entry, Store } from '../../../src/store/store.ts'
import { indexOf } from '../../cache/records.ts'
import { soon, until } from '../../store/store-harness.ts'
import { readAll, recordsOf, structureErrors } from './store-errors.ts'

/** Every entry whose key starts with `prefix`, as of one commit. */
export async function entriesOf(store: Store, prefix: string): Promise<Entry[]> {
  return (await readAll(store, prefix)).entries
}

/** The stored records, decoded. */
export async function storedRecords(store: Store): Promise<CachedRecord[]> {
  return (await entriesOf(store, 'r/')).map((entry) => {
    const { kind, uid } = parseRecordKey(entry.key)
    return recordOfBytes(indexOf(kind), { uid: trustedUid(uid), bytes: entry.value, revision: entry.revision })
  })
}

/** Waits until every sweep has ended. */
export async function cascadesDone(store: Store): Promise<void> {
  await until(async () => (await store.range({ prefix: cascadePrefix, limit: 1 }, soon())).entries.length === 0)
}

function bindingOf(record: CachedRecord): RoleBinding {
  // Asked only of rows of kind RoleBinding.
  return record.message as unknown as RoleBinding
}

const ownerUid = builtInRoles.find((role) => role.name === 'owner')?.uid ?? ''

/** The owners of a root group in the store: bindings whose identity is there (or is a person). */
export function ownersOf(records: readonly CachedRecord[], root: string): CachedRecord[] {
  const identities = new Set(records.filter((record) => record.kind === 'Identity').map((record) => record.uid as string))
  return records.filter((record) => {
    if (record.kind !== 'RoleBinding' || record.parent !== root || bindingOf(record).roleUid !== ownerUid) return false
    const { identityUid } = bindingOf(record)
    return !identityUid.includes('/') || identities.has(identityUid)
  })
}

/** Waits until sweeping has ended and fails where the store then has what must not be there whatever was done to it: see structureErrors. */
export async function expectSoundStore(store: Store): Promise<void> {
  await cascadesDone(store)
  const { entries, revision } = await readAll(store, 'r/')
  const index = await readAll(store, 'i/', revision)
  expect(structureErrors(recordsOf(entries), index.entries)).toEqual([])
}
