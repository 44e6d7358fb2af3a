import { clone, type Message } from '@bufbuild/protobuf'
import { isSuspended } from '../../authz/access.ts'
import { decide, type EffectivePermissions } from '../../authz/effective-permissions.ts'
import { setOf, type CapabilitySet } from '../../base/capability.ts'
import { DomainError } from '../../base/errors.ts'
import type { MethodRow } from '../../base/schema/method.ts'
import { methods } from '../../base/schema/schema.ts'
import { isPath, kindsWithPaths, pathPrefix, uidFieldsOf, type UidField } from '../../base/schema/uid-fields.ts'
import { rootParent, trustedUid, type Uid } from '../../base/uid.ts'
import type { RecordCache } from '../../cache/record-cache.ts'
import type { RecordTables } from '../../cache/record-tables.ts'
import type { CachedRecord } from '../../cache/records/cached-record.ts'
import { pathChanged } from '../../engine/errors.ts'
import { isBuiltInRole } from '../../engine/organisation-owners.ts'
import { recordKey } from '../../store/keys.ts'
import type { Guard, Transaction } from '../../store/store.ts'

/** Maximum number of names in a path: a tree has 12 levels below a root. */
const maxNames = 13
/** Maximum number of paths in one request. */
const maxPaths = 100
/** Maximum number of records on the paths of a mutation. Its transaction guards each of them, and has few guards. */
const maxGuards = 60
/** No record has this uid. Below a missing group the look-ups continue here, so that a path costs the same wherever it ends. */
const nowhere = '-'

/** A path that leads to a record that the caller can see. */
interface Resolved {
  readonly field: string
  readonly text: string
  readonly names: readonly string[]
  readonly kind: string
  readonly uid: string
}

/** A request whose paths were replaced by uids. */
export interface ResolvedRequest {
  /** A copy of the request. It still has each path that leads to no record that the caller can see. Such a path is answered like a uid that does not exist. */
  readonly message: Message
  /** The uid to which the path of the request's subject leads, although the caller cannot see that record. Only for the audit trail. */
  readonly hidden: string | undefined
  /** Returns guards that each name on the paths is still the same when a transaction commits. Throws code 10 if one has changed already. */
  readonly guard: () => Transaction
}

/** The groups above the last name of a path, outermost first, undefined where there is none; and what finds the records with the last name. */
interface Way {
  readonly groups: readonly (CachedRecord | undefined)[]
  readonly last: (kind: string) => CachedRecord | undefined
}

function wayAlong(tables: RecordTables, names: readonly string[]): Way {
  let parent: string = rootParent
  const child = (kind: string, name: string): CachedRecord | undefined => (tables.hasKind(kind) ? tables.table(kind).child(parent, name) : undefined)
  const groups = names.slice(0, -1).map((name) => {
    const group = child('Group', name)
    parent = group?.uid ?? nowhere
    return group
  })
  return { groups, last: (kind) => child(kind, names.at(-1) ?? '') }
}

/** Returns the names on a path; undefined for a text that can be the path of no record. */
function namesOf(text: string): readonly string[] | undefined {
  const names = text.slice(pathPrefix.length).split('/', maxNames + 1)
  return names.length > maxNames || names.includes('') ? undefined : names
}

/** The capabilities with which callers can get records of a kind. */
const needed: ReadonlyMap<string, CapabilitySet> = new Map(
  kindsWithPaths.map((kind) => [kind, setOf(methods.find((method) => method.verb === 'get' && method.kind === kind)?.capabilities ?? [])]),
)

/** Returns a uid of this many parts that no record has. */
function missingUid(parts: number): Uid {
  return trustedUid(`${'0'.repeat(40)}${`/${'0'.repeat(16)}`.repeat(parts - 1)}`)
}

/** What is at the end of a path, for one kind. */
interface Found {
  readonly kind: string
  readonly names: readonly string[]
  readonly record: CachedRecord | undefined
}

/**
 * True if the caller can get the record. So a path tells no one which names exist elsewhere. Rights are compared for a missing record too: the time must not
 * show whether it exists.
 */
function isSeen(tables: RecordTables, permissions: EffectivePermissions, { kind, names, record }: Found): boolean {
  const capabilities = needed.get(kind)
  if (capabilities === undefined) return false
  const uid = record?.uid ?? missingUid(names.length)
  const isAllowed = decide(permissions, uid, capabilities).kind === 'allowed'
  if (record === undefined) return false
  return isBuiltInRole(uid) || (isAllowed && (permissions.operator || !isSuspended(tables, uid)))
}

/** True if a value, or what it contains below these members, is a path. */
function hasPath(value: unknown, members: readonly string[], at = 0): boolean {
  if (typeof value === 'string') return isPath(value)
  if (Array.isArray(value)) return value.some((item) => hasPath(item, members, at))
  const member = members[at]
  return typeof value === 'object' && value !== null && member !== undefined && hasPath((value as Readonly<Record<string, unknown>>)[member], members, at + 1)
}

/** Returns the name of a field in errors, such as `exceptions[2].repo_uid`. `positions` has a member's position in its list; undefined for a member without a list. */
function nameAt({ members, name }: UidField, positions: readonly (number | undefined)[]): string {
  const names = name.split('.')
  const above = members.length - names.length
  return names.map((one, at) => (positions[at + above] === undefined ? one : `${one}[${positions[at + above]}]`)).join('.')
}

/** Replaces the paths of one request. */
class Resolution {
  readonly #cache: RecordCache
  readonly #permissions: EffectivePermissions
  readonly #resolved = new Map<string, Resolved>()
  /** What each path leads to, by the kinds of its field. */
  readonly #known = new Map<string, string>()
  #count = 0
  hidden: string | undefined

  constructor(cache: RecordCache, permissions: EffectivePermissions) {
    this.#cache = cache
    this.#permissions = permissions
  }

  /**
   * Replaces the paths in a value, or in what it contains below the members of a field that are left. `positions` are those of the members so far. Throws code 3.
   */
  replaced(field: UidField, value: unknown, positions: readonly (number | undefined)[] = []): unknown {
    if (typeof value === 'string') return isPath(value) ? this.#uidOf(field, value, positions) : value
    if (Array.isArray(value)) return value.map((item: unknown, at) => this.replaced(field, item, [...positions.slice(0, -1), at]))
    const member = field.members[positions.length]
    if (typeof value !== 'object' || value === null || member === undefined) return value
    const fields = value as Record<string, unknown>
    fields[member] = this.replaced(field, fields[member], [...positions, undefined])
    return fields
  }

  /** Returns the uid to which a path leads, and the path itself if it leads to no record that the caller can see. Throws code 3. */
  #uidOf(field: UidField, text: string, positions: readonly (number | undefined)[]): string {
    const named = { ...field, name: nameAt(field, positions) }
    if (field.kinds.length === 0) throw DomainError.invalid(named.name, 'must be a uid: only groups, repos, roles and identity providers have paths')
    if (++this.#count > maxPaths) throw DomainError.invalid(named.name, `a request may have at most ${maxPaths} paths`)
    const key = `${field.kinds.join()} ${text}`
    const known = this.#known.get(key) ?? this.#lookUp(named, text)
    this.#known.set(key, known)
    return known
  }

  #lookUp(field: UidField, text: string): string {
    const names = namesOf(text)
    if (names === undefined) return text
    const { tables } = this.#cache
    const { last } = wayAlong(tables, names)
    // A built-in role can be meant only where nothing but a role can: an organisation may have its name.
    const takesRoles = field.kinds.every((kind) => kind === 'Role')
    const found = field.kinds
      .map((kind): Found => ({ kind, names, record: last(kind) }))
      .filter(({ record }) => takesRoles || record === undefined || !isBuiltInRole(record.uid))
    const [seen, another] = found.filter((one) => isSeen(tables, this.#permissions, one))
    if (another !== undefined) throw DomainError.invalid(field.name, 'is the path of several records: send the uid')
    const uid = seen?.record?.uid
    if (seen === undefined || uid === undefined) {
      if (field.isSubject) this.hidden = found.find(({ record }) => record !== undefined)?.record?.uid
      return text
    }
    this.#resolved.set(`${seen.kind} ${text}`, { field: field.name, text, names, kind: seen.kind, uid })
    return uid
  }

  guard(): Transaction {
    const guards = new Map<string, Guard>()
    for (const { field, text, names, kind, uid } of this.#resolved.values()) {
      const { groups, last } = wayAlong(this.#cache.tables, names)
      const named = last(kind)
      if (named?.uid !== uid) throw pathChanged(text)
      for (const record of [...groups, named]) {
        if (record === undefined || isBuiltInRole(record.uid)) continue
        const key = recordKey(record.kind, record.uid)
        guards.set(key, { kind: 'unchanged', key, revision: record.revision })
      }
      if (guards.size > maxGuards) throw DomainError.invalid(field, `the paths of a change may lead through at most ${maxGuards} records: send uids`)
    }
    return { guards: [...guards.values()], writes: [] }
  }
}

/**
 * Replaces the paths in a request by uids (docs/spec/resources.md#paths). Undefined if the request has none. Throws code 3 for a path in a field whose records
 * have no paths, and for one that leads to several records.
 */
export function resolvePaths(
  cache: RecordCache,
  permissions: () => EffectivePermissions,
  { method, message: asked }: { readonly method: MethodRow; readonly message: Message },
): ResolvedRequest | undefined {
  const fields = uidFieldsOf(method)
  if (!fields.some(({ members }) => hasPath(asked, members))) return undefined
  const resolution = new Resolution(cache, permissions())
  const message = clone(method.input, asked)
  for (const field of fields) resolution.replaced(field, message)
  return { message, hidden: resolution.hidden, guard: () => resolution.guard() }
}
