import { create } from '@bufbuild/protobuf'
import { trustedUid } from '../../src/base/uid.ts'
import { GroupSchema } from '../../src/gen/taproot/iam/v2/groups_pb.ts'
import { Identity_ClaimMatchSchema, IdentitySchema } from '../../src/gen/taproot/iam/v2/identities_pb.ts'
import { RoleBindingSchema } from '../../src/gen/taproot/iam/v2/role_bindings_pb.ts'
import { ChangeSet } from '../../src/engine/change-set.ts'
import { kinds } from '../../src/domains/kinds.ts'
import type { Resource } from '../../src/cache/records/cached-record.ts'
import type { Write } from '../../src/store/store.ts'
import type { TestServer } from './test-server.ts'

/** A record to write without a call. */
export interface Filled {
  readonly kind: string
  readonly uid: string
  readonly record: Resource
}

/** A plain subgroup. */
export function filledGroup(uid: string, name: string): Filled {
  return { kind: 'Group', uid, record: create(GroupSchema, { name }) }
}

/** A binding of `identity` to `role`. */
export function filledBinding(uid: string, identity: string, role: string): Filled {
  return { kind: 'RoleBinding', uid, record: create(RoleBindingSchema, { identityUid: identity, roleUid: role }) }
}

/** An identity for all subjects of an issuer. */
export function filledIdentity(uid: string, issuer: string): Filled {
  const claimMatch = create(Identity_ClaimMatchSchema, { iss: { case: 'issuer', value: issuer }, sub: { case: 'subjectPattern', value: '.*' } })
  const record = create(IdentitySchema, { name: `identity ${uid.slice(-16)}`, relationship: { case: 'claimMatch', value: claimMatch } })
  return { kind: 'Identity', uid, record: record }
}

/** Uids right below `parent`, in order. */
export function uidsBelow(parent: string, count: number): string[] {
  return Array.from({ length: count }, (_, at) => `${parent}/${at.toString(16).padStart(16, '0')}`)
}

/** Writes the records with all their keys, many in each transaction, and waits until the snapshot has them. */
export async function fill({ running }: TestServer, records: readonly Filled[]): Promise<void> {
  const { store, cache } = running.engine
  const signal = AbortSignal.timeout(300_000)
  let writes: Write[] = []
  const flush = async (): Promise<void> => {
    if (writes.length === 0) return
    const done = await store.transact({ guards: [], writes }, signal)
    if (done.committed) await cache.reached(done.revision, signal)
    writes = []
  }
  for (const { kind: name, uid, record } of records) {
    const kind = kinds.get(name)
    if (kind === undefined) throw new Error(`no kind ${name}`)
    const changes = new ChangeSet()
    changes.create(kind, { uid: trustedUid(uid), record, facts: { etag: 'e', createMs: 1_700_000_000_000, updateMs: 1_700_000_000_000, managedBy: '' } })
    if (writes.length + changes.writes.length > 120) await flush()
    writes.push(...changes.writes)
  }
  await flush()
}
