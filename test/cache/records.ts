import { create } from '@bufbuild/protobuf'
import { trustedUid, type Uid } from '../../src/base/uid.ts'
import { GroupSchema } from '../../src/gen/taproot/iam/v2/groups_pb.ts'
import { IdentitySchema } from '../../src/gen/taproot/iam/v2/identities_pb.ts'
import { RoleBindingSchema } from '../../src/gen/taproot/iam/v2/role_bindings_pb.ts'
import { RoleSchema } from '../../src/gen/taproot/iam/v2/roles_pb.ts'
import { RepoSchema } from '../../src/gen/taproot/registry/v2/repos_pb.ts'
import { TagSchema } from '../../src/gen/taproot/registry/v2/tags_pb.ts'
import { kinds } from '../../src/domains/kinds.ts'
import { envelopeBytes, envelopeOf } from '../../src/engine/record-codec.ts'
import { recordOfBytes } from '../../src/cache/records/record-factory.ts'
import type { KindIndex, Resource, CachedRecord } from '../../src/cache/records/cached-record.ts'
import { RecordTables, type UnreadableListener, type HideListener, type RecordListener } from '../../src/cache/record-tables.ts'
import { recordKey } from '../../src/store/keys.ts'
import { storeRevision, type Change } from '../../src/store/store.ts'
import type { NaiveRecord } from '../conformance/model/naive-list.ts'

/** A test record with the fields that lists use. Bindings have their identity and role in `filters`. */
export type Plain = NaiveRecord & { readonly description?: string }

/** The index of a kind of this program. */
export function indexOf(kind: string): KindIndex {
  const found = kinds.get(kind)
  if (found === undefined) throw new Error(`unknown kind ${kind}`)
  return found.index
}

const indexes = [...kinds.values()].map((kind) => kind.index)

function messageOf(plain: Plain): Resource {
  const { kind, name, filters, description = '' } = plain
  // Every kind is a resource of the schema.
  if (kind === 'Group') return create(GroupSchema, { name, description })
  if (kind === 'RoleBinding') return create(RoleBindingSchema, { identityUid: filters['identity'] ?? '', roleUid: filters['role'] ?? '' })
  if (kind === 'Role') return create(RoleSchema, { name, description })
  if (kind === 'Repo') return create(RepoSchema, { name, description })
  if (kind === 'Tag') return create(TagSchema, { name })
  const isClaim = filters['relationship_type'] === '1'
  const match = { case: 'claimMatch', value: { iss: { case: 'issuer', value: 'https://issuer.example' } } } as const
  const keys = { case: 'staticKeys', value: { issuer: 'https://issuer.example', subject: 's' } } as const
  return create(IdentitySchema, { name, description, relationship: isClaim ? match : keys })
}

/** Returns the stored bytes of a record. */
export function bytesOf(plain: Plain): Uint8Array {
  const facts = { etag: 'e', createMs: plain.createMs, updateMs: plain.updateMs, managedBy: '' }
  return envelopeBytes(envelopeOf(indexOf(plain.kind).desc, messageOf(plain), facts))
}

/** Returns the commit of one record's new state. */
export function changeOf(plain: Plain, revision = 1): Change {
  return { key: recordKey(plain.kind, trustedUid(plain.uid)), value: bytesOf(plain), revision: storeRevision(revision) }
}

/** The commit that removes a record. */
export function removalOf({ kind, uid }: { kind: string; uid: string }, revision = 1): Change {
  return { key: recordKey(kind, trustedUid(uid)), value: undefined, revision: storeRevision(revision) }
}

/** A record as a row. */
export function recordOf(plain: Plain, revision = 1): CachedRecord {
  return recordOfBytes(indexOf(plain.kind), { uid: trustedUid(plain.uid), bytes: bytesOf(plain), revision: storeRevision(revision) })
}

/** An empty snapshot of this program's kinds. */
export function emptyTables(
  options: { builtIns?: readonly CachedRecord[]; listener?: RecordListener; onHide?: HideListener; onUnreadable?: UnreadableListener } = {},
): RecordTables {
  return new RecordTables({
    kinds: indexes,
    builtIns: options.builtIns ?? [],
    listener: options.listener ?? (() => undefined),
    onHide: options.onHide ?? (() => undefined),
    onUnreadable:
      options.onUnreadable ??
      (({ key, cause }) => {
        throw new Error(`unreadable ${key}`, { cause })
      }),
  })
}

/** Returns numbers below `n`, in an order given by the seed (mulberry32). */
export type Pick = (n: number) => number

/** Creates a random source from a seed. */
export function picker(seed: number): Pick {
  let state = seed | 0
  return (n) => {
    state = (state + 0x6d2b79f5) | 0
    let t = Math.imul(state ^ (state >>> 15), 1 | state)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return (((t ^ (t >>> 14)) >>> 0) % 2 ** 32) % n
  }
}

function hex(pick: Pick, digits: number): string {
  return Array.from({ length: digits }, () => pick(16).toString(16)).join('')
}

/** Returns a new uid below `parent`, or a root uid without a parent. */
export function newUid(pick: Pick, parent?: string): Uid {
  return trustedUid(parent === undefined ? hex(pick, 40) : `${parent}/${hex(pick, 16)}`)
}

/** One of the items. */
export function one<T>(pick: Pick, items: readonly T[]): T {
  if (items.length === 0) throw new Error('nothing to choose from')
  // The index is below the length.
  return items[pick(items.length)] as T
}
