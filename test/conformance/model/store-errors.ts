import { fromBinary } from '@bufbuild/protobuf'
import { builtInRoles } from '../../../src/base/roles.ts'
import { parentOf, trustedUid } from '../../../src/base/uid.ts'
import type { ExternalGroupRoleMapping } from '../../../src/gen/taproot/iam/v2/external_group_role_mappings_pb.ts'
import type { RoleBinding } from '../../../src/gen/taproot/iam/v2/role_bindings_pb.ts'
import { EnvelopeSchema } from '../../../src/gen/taproot/store/v1/envelope_pb.ts'
import { kinds } from '../../../src/domains/kinds.ts'
import { nameOf as indexedName, type Resource } from '../../../src/cache/records/cached-record.ts'
import { nameKey, ownersKey, parseRecordKey, scimPrefix, cascadePrefix, usedByKey } from '../../../src/store/keys.ts'
import type { Entry, Revision, Store } from '../../../src/store/store.ts'

const pageEntries = 1000
/** How long one read of the store may take, in milliseconds. */
const readMs = 15_000

/** Every entry whose key starts with `prefix`, as of one commit: the one given, else the last. */
export async function readAll(store: Store, prefix: string, at?: Revision): Promise<{ entries: Entry[]; revision: Revision }> {
  const entries: Entry[] = []
  let revision = at
  for (let after: string | undefined; ;) {
    const place = { ...(revision === undefined ? {} : { revision }), ...(after === undefined ? {} : { after }) }
    const page = await store.range({ prefix, limit: pageEntries, ...place }, AbortSignal.timeout(readMs))
    entries.push(...page.entries)
    revision = page.revision
    after = page.entries.at(-1)?.key
    if (!page.more || after === undefined) return { entries, revision }
  }
}

/** A record as it lies in the store. */
export interface StoredRecord {
  readonly kind: string
  readonly uid: string
  readonly parent: string
  readonly etag: string
  readonly message: Resource
}

/** The records in these entries. Throws where one can't be read. */
export function recordsOf(entries: readonly Entry[]): StoredRecord[] {
  return entries.map((entry) => {
    const { kind, uid } = parseRecordKey(entry.key)
    const desc = kinds.get(kind)?.desc
    if (desc === undefined) throw new Error(`unknown kind ${kind}`)
    const envelope = fromBinary(EnvelopeSchema, entry.value)
    // The kind's own message.
    return { kind, uid, parent: parentOf(trustedUid(uid)), etag: envelope.etag, message: fromBinary(desc, envelope.record) as Resource }
  })
}

/** The role binding in a record of that kind. */
export function storedBinding(record: StoredRecord): RoleBinding {
  // Asked only of role bindings.
  return record.message as unknown as RoleBinding
}

function nameOf(record: StoredRecord): string {
  const kind = kinds.get(record.kind)
  return kind === undefined ? '' : indexedName(kind.index, record.message)
}

/** Their names are unique among siblings. */
const namedKinds: ReadonlySet<string> = new Set(['Group', 'Role', 'IdentityProvider', 'Repo', 'Tag'])

/** The unique and reverse keys that stand for a record, and whom they name as holder (docs/spec/storage.md#keys). */
function keysOf(record: StoredRecord): (readonly [key: string, value: string])[] {
  const { kind, uid, parent } = record
  if (namedKinds.has(kind)) return [[nameKey(kind, parent, nameOf(record)), uid]]
  if (kind === 'ExternalGroupRoleMapping') {
    // Asked only of mappings.
    const mapping = record.message as unknown as ExternalGroupRoleMapping
    return [[nameKey(kind, parent, `${mapping.roleUid} ${mapping.scope} ${mapping.externalGroupId}`), uid]]
  }
  if (kind !== 'RoleBinding') return []
  const { identityUid, roleUid } = storedBinding(record)
  return [
    [nameKey(kind, parent, `${identityUid} ${roleUid}`), uid],
    [usedByKey('RoleBinding.identity', identityUid, uid), ''],
    [usedByKey('RoleBinding.role', roleUid, uid), ''],
  ]
}

const builtInUids: ReadonlySet<string> = new Set(builtInRoles.map((role) => role.uid))

/** What the records of a kind lie below, where that is no group. */
const homes: Readonly<Record<string, string>> = { Tag: 'Repo', ExternalGroupRoleMapping: 'IdentityProvider' }

function referenceErrors(records: readonly StoredRecord[]): string[] {
  const there = new Set(records.map((record) => `${record.kind} ${record.uid}`))
  const missing = (record: StoredRecord): string[] => {
    const home = homes[record.kind] ?? 'Group'
    const place = record.kind === 'AccountAssociation' ? record.uid : record.parent
    const gone = place !== '/' && !there.has(`${home} ${place}`) ? [`its ${home} is gone`] : []
    if (record.kind !== 'RoleBinding') return gone
    const { identityUid, roleUid } = storedBinding(record)
    if (identityUid.includes('/') && !there.has(`Identity ${identityUid}`)) gone.push(`its identity ${identityUid} is gone`)
    if (!builtInUids.has(roleUid) && !there.has(`Role ${roleUid}`)) gone.push(`its role ${roleUid} is gone`)
    return gone
  }
  return records.flatMap((record) => missing(record).map((what) => `${record.kind} ${record.uid}: ${what}`))
}

function indexErrors(records: readonly StoredRecord[], index: readonly Entry[]): string[] {
  const errors: string[] = []
  // Rewritten with each deletion of a manifest; it goes with the repo's bytes, after the repo.
  const ofRecords = index.filter(({ key }) => !key.startsWith('i/manifests/'))
  const kept = new Map(ofRecords.map((entry) => [entry.key, Buffer.from(entry.value).toString()]))
  const roots = records.filter((record) => record.kind === 'Group' && record.parent === '/')
  for (const { uid } of roots) if (!kept.delete(ownersKey(trustedUid(uid)))) errors.push(`Group ${uid}: has no owners key`)
  for (const key of kept.keys()) {
    if (key.startsWith(scimPrefix) && records.some(({ kind, uid }) => kind === 'IdentityProvider' && key === `${scimPrefix}${uid}`)) kept.delete(key)
  }
  for (const record of records) {
    for (const [key, holder] of keysOf(record)) {
      const value = kept.get(key)
      if (value === undefined) errors.push(`${record.kind} ${record.uid}: has no key ${key}, or another has it`)
      else if (value !== holder) errors.push(`${record.kind} ${record.uid}: ${key} names ${value}`)
      kept.delete(key)
    }
  }
  return [...errors, ...[...kept.keys()].map((key) => `${key}: there is no record for this key`)]
}

/**
 * What must not be in the store after the cascades have ended; one line for each fault.
 * Unique and reverse keys exist exactly for the stored records. No record lies under a deleted one. No marks are left.
 * SCIM credentials belong to existing providers, and bindings to existing records. There is an owners key for every root group and for nothing else.
 */
export function structureErrors(records: readonly StoredRecord[], index: readonly Entry[]): string[] {
  const marks = index.filter((entry) => entry.key.startsWith(cascadePrefix))
  const rest = index.filter((entry) => !entry.key.startsWith(cascadePrefix))
  return [...marks.map((entry) => `${entry.key}: a mark is left`), ...referenceErrors(records), ...indexErrors(records, rest)]
}
