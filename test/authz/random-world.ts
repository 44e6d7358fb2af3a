import { create } from '@bufbuild/protobuf'
import fc from 'fast-check'
import { GrantsIndex } from '../../src/authz/grants-index.ts'
import { capabilities, setOf } from '../../src/base/capability.ts'
import type { TokenRestrictions } from '../../src/auth/access-tokens/token-restrictions.ts'
import { builtInRoles } from '../../src/base/roles.ts'
import { trustedUid, type Uid } from '../../src/base/uid.ts'
import type { Capability } from '../../src/gen/taproot/common/v2/capability_pb.ts'
import { GroupSchema, OrgStatus } from '../../src/gen/taproot/iam/v2/groups_pb.ts'
import { IdentitySchema } from '../../src/gen/taproot/iam/v2/identities_pb.ts'
import { RoleBindingSchema } from '../../src/gen/taproot/iam/v2/role_bindings_pb.ts'
import { RoleSchema } from '../../src/gen/taproot/iam/v2/roles_pb.ts'
import { RepoSchema } from '../../src/gen/taproot/registry/v2/repos_pb.ts'
import { builtInRoleRecords } from '../../src/iam/records/roles.ts'
import { kinds } from '../../src/domains/kinds.ts'
import { envelopeBytes, envelopeOf } from '../../src/engine/record-codec.ts'
import type { RecordCache } from '../../src/cache/record-cache.ts'
import type { Resource } from '../../src/cache/records/cached-record.ts'
import type { HideListener, RecordListener, RecordTables } from '../../src/cache/record-tables.ts'
import { recordKey } from '../../src/store/keys.ts'
import { storeRevision } from '../../src/store/store.ts'
import { emptyTables } from '../cache/records.ts'

/** A custom role as stored. Numbers without a capability grant nothing. */
export interface PlainRole {
  readonly uid: Uid
  readonly numbers: readonly Capability[]
}

/** A binding as the store has it. */
export interface PlainBinding {
  readonly uid: Uid
  readonly group: Uid
  readonly identity: Uid
  readonly role: Uid
}

/** A whole installation without any checks: bindings may name identities of other organisations, or deleted roles. */
export interface PlainWorld {
  readonly groups: readonly Uid[]
  readonly suspended: ReadonlySet<Uid>
  readonly roles: readonly PlainRole[]
  /** Identities that exist. */
  readonly identities: readonly Uid[]
  /** Identities that only bindings name, or nothing. */
  readonly strangers: readonly Uid[]
  readonly repos: readonly Uid[]
  readonly bindings: readonly PlainBinding[]
}

/** The capabilities of random roles. They are few, so that questions match them. */
export const palette = [
  'groups.list',
  'groups.update',
  'groups.delete',
  'groups.create',
  'identity.list',
  'roles.list',
  'role_bindings.list',
  'repo.list',
] as const

// Its own numbers are those of the schema.
const paletteNumbers = capabilities.filter(({ name }) => (palette as readonly string[]).includes(name)).map(({ number }) => number) as Capability[]
/** Numbers that are retired or were never assigned. The store may contain any number. */
const deadNumbers = [1, 999_999] as Capability[]

function segment(kind: number, at: number): string {
  return `${kind}${at.toString(16).padStart(15, '0')}`
}

function root(kind: number, at: number): Uid {
  return trustedUid(`${kind}${at.toString(16).padStart(39, '0')}`)
}

function pickFrom<T>(list: readonly T[], at: number): T {
  const found = list[at % list.length]
  if (found === undefined) throw new RangeError('nothing to pick from')
  return found
}

const place = fc.nat({ max: 50 })

/** Random worlds: two or three organisations, a tree of groups, roles, identities, people, repos, and bindings between any of them. */
export const plainWorlds: fc.Arbitrary<PlainWorld> = fc
  .record({
    roots: fc.integer({ min: 2, max: 3 }),
    groups: fc.array(place, { maxLength: 5 }),
    suspended: fc.oneof({ arbitrary: fc.constant(undefined), weight: 2 }, { arbitrary: place, weight: 1 }),
    roles: fc.array(fc.tuple(place, fc.subarray([...paletteNumbers, ...deadNumbers])), { maxLength: 5 }),
    identities: fc.array(place, { minLength: 1, maxLength: 4 }),
    people: fc.integer({ min: 0, max: 2 }),
    repos: fc.array(place, { maxLength: 2 }),
    bindings: fc.array(fc.record({ group: place, identity: place, role: place }), { minLength: 1, maxLength: 14 }),
  })
  .map((source) => {
    const groups = Array.from({ length: source.roots }, (_, at) => root(1, at))
    for (const [at, parent] of source.groups.entries()) groups.push(trustedUid(`${pickFrom(groups, parent)}/${segment(1, at)}`))
    const roles = source.roles.map(([group, numbers], at) => ({ uid: trustedUid(`${pickFrom(groups, group)}/${segment(2, at)}`), numbers }))
    const assumable = source.identities.map((group, at) => trustedUid(`${pickFrom(groups, group)}/${segment(3, at)}`))
    const identities = [...assumable, ...Array.from({ length: source.people }, (_, at) => root(4, at))]
    const strangers = [root(5, 0), trustedUid(`${pickFrom(groups, source.roots)}/${segment(5, 0)}`)]
    const named = ['owner', 'editor', 'viewer'].map((name) => builtInRoles.find((role) => role.name === name)?.uid ?? root(6, 0))
    const bindable = [...roles.map(({ uid }) => uid), ...named, trustedUid(`${pickFrom(groups, 0)}/${segment(7, 0)}`)]
    const bound = [...identities, ...strangers]
    return {
      groups,
      suspended: new Set(source.suspended === undefined ? [] : [pickFrom(groups.slice(0, source.roots), source.suspended)]),
      roles,
      identities,
      strangers,
      repos: source.repos.map((group, at) => trustedUid(`${pickFrom(groups, group)}/${segment(8, at)}`)),
      bindings: source.bindings.map(({ group, identity, role }, at) => {
        const parent = pickFrom(groups, group)
        return { uid: trustedUid(`${parent}/${segment(9, at)}`), group: parent, identity: pickFrom(bound, identity), role: pickFrom(bindable, role) }
      }),
    }
  })

/** Returns restrictions that a token may have; `roles` are those of sign-ins. */
export function allRestrictions({ groups, roles }: PlainWorld): fc.Arbitrary<TokenRestrictions> {
  const roots = groups.filter((uid) => !uid.includes('/'))
  return fc.record(
    {
      scopes: fc.subarray([...groups], { minLength: 1 }),
      capabilities: fc.subarray([...palette]).map(setOf),
      trustedGroups: fc.subarray([...groups], { minLength: 1 }),
      roles: fc.constant(roles.slice(0, 1).map(({ uid }) => ({ group: roots[0] ?? uid, role: uid }))),
    },
    { requiredKeys: [] },
  )
}

/** A loaded snapshot of a world, with the parts of the API that decide about rights. */
export interface LoadedWorld {
  readonly tables: RecordTables
  readonly grants: GrantsIndex
  /** Commits the new state of one record, or its removal if `record` is absent. */
  commit(kind: string, uid: Uid, record?: object): void
}

const descs = { Group: GroupSchema, Identity: IdentitySchema, Role: RoleSchema, RoleBinding: RoleBindingSchema, Repo: RepoSchema }

/** Loads a world like a replica. */
export function load(world: PlainWorld): LoadedWorld {
  let onRecord: RecordListener = () => undefined
  let onHide: HideListener = () => undefined
  const tables = emptyTables({ builtIns: builtInRoleRecords, listener: (...change) => onRecord(...change), onHide: (...hidden) => onHide(...hidden) })
  // The members of the record cache that the index of grants uses.
  const source: Pick<RecordCache, 'tables' | 'onReset' | 'onRecord' | 'onHide'> = {
    tables,
    onReset: () => () => undefined,
    onHide(listener) {
      onHide = listener
      return () => undefined
    },
    onRecord(listener) {
      onRecord = listener
      return () => undefined
    },
  }
  const grants = new GrantsIndex(source as RecordCache)
  let revision = 0
  const commit: LoadedWorld['commit'] = (kind, uid, record) => {
    revision += 1
    const desc = kinds.get(kind)?.desc
    if (desc === undefined) throw new TypeError(`unknown kind ${kind}`)
    const facts = { etag: 'e', createMs: 1, updateMs: 1, managedBy: '' }
    // The record was created below with the schema of its kind.
    const value = record === undefined ? undefined : envelopeBytes(envelopeOf(desc, record as Resource, facts))
    tables.apply([{ key: recordKey(kind, uid), value, revision: storeRevision(revision) }])
  }
  for (const uid of world.groups)
    commit('Group', uid, create(descs.Group, { name: uid.slice(-8), status: world.suspended.has(uid) ? OrgStatus.SUSPENDED : OrgStatus.READY }))
  for (const { uid, numbers } of world.roles) commit('Role', uid, create(descs.Role, { name: uid.slice(-8), capabilities: [...numbers] }))
  for (const uid of world.identities) commit('Identity', uid, create(descs.Identity, { name: uid.slice(-8) }))
  for (const uid of world.repos) commit('Repo', uid, create(descs.Repo, { name: uid.slice(-8) }))
  for (const { uid, identity, role } of world.bindings) commit('RoleBinding', uid, create(descs.RoleBinding, { identityUid: identity, roleUid: role }))
  return { tables, grants, commit }
}
