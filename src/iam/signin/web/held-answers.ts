import { create, toBinary } from '@bufbuild/protobuf'
import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire'
import { roleCapabilities } from '../../../authz/grants-index.ts'
import { capabilitiesAt, type EffectivePermissions } from '../../../authz/effective-permissions.ts'
import { equals, intersect, isEmpty, namesOf, withoutOwn, type CapabilitySet } from '../../../base/capability.ts'
import type { SessionRole } from '../../../auth/access-tokens/token-restrictions.ts'
import { RecentMap } from '../../../base/recent-map.ts'
import { rootOf, trustedUid } from '../../../base/uid.ts'
import { WhoAmI_HeldSchema, WhoAmISchema, type WhoAmI_Held } from '../../../gen/taproot/auth/v1/auth_pb.ts'
import { GroupSchema } from '../../../gen/taproot/iam/v1/groups_pb.ts'
import { RoleSchema } from '../../../gen/taproot/iam/v1/roles_pb.ts'
import type { Group } from '../../../gen/taproot/iam/v2/groups_pb.ts'
import type { Role } from '../../../gen/taproot/iam/v2/roles_pb.ts'
import { groupKind } from '../../records/groups.ts'
import { shownOf } from '../../../engine/shown.ts'
import type { Caller, Services } from '../../../engine/services.ts'
import type { CachedRecord } from '../../../cache/records/cached-record.ts'
import { CooperativeTask, CooperativeScheduler } from '../../../cache/cooperative-task.ts'
import type { RecordTables } from '../../../cache/record-tables.ts'
import type { Call } from '../../../transport/calls/call.ts'
import { createJsonEncoders } from '../../../transport/json-encode.ts'

/** Up to this number of role bindings, a response is built at once and not cached. */
const answeredAtOnce = 100
/** Maximum size of cached responses, in bytes. For short times it may be twice as large. */
const cachedBytes = 32 * 1024 * 1024
/** Memory for each group that a response depends on, in bytes. */
const groupBytes = 64
const recordsPerCheck = 16
/**
 * Maximum number of passes over a response whose records change meanwhile. The last pass runs without a pause, mostly with items of
 * earlier passes.
 */
const maxPasses = 20

const encodeHeld = createJsonEncoders()(WhoAmI_HeldSchema)
/** The field of the response that contains the items. */
export const heldField = WhoAmISchema.field.capabilities

type AnswerForm = Call['transport']

/** Encoders of one item by transport. The encoded items are joined; in JSON, the first item then loses its comma. */
const writers = {
  http: (held) => Buffer.from(`,${encodeHeld(held)}`),
  grpc: (held) => new BinaryWriter().tag(heldField.number, WireType.LengthDelimited).bytes(toBinary(WhoAmI_HeldSchema, held)).finish(),
} satisfies Record<AnswerForm, (held: WhoAmI_Held) => Uint8Array>

/** The records and capabilities from which one item is built. */
interface BindingSource {
  readonly role: CachedRecord
  readonly group: CachedRecord
  /** Some fields of a group depend on its root. */
  readonly root: CachedRecord | undefined
  readonly held: CapabilitySet
}

/** A source of capabilities: a role binding, or a role of the session. */
type Holding = CachedRecord | SessionRole

interface Item extends BindingSource {
  readonly holding: Holding
  readonly bytes: Uint8Array
}

/** A response and the records that it depends on. It becomes invalid when one of them changes. */
class HeldAnswer {
  readonly identity: string
  readonly groups = new Set<string>()
  readonly roles = new Set<string>()
  pieces: readonly Uint8Array[] = []
  isCurrent = true

  constructor({ identity, restrictions }: Caller) {
    this.identity = identity
    for (const { role } of restrictions.roles ?? []) this.roles.add(role)
  }

  get weight(): number {
    return this.pieces.reduce((sum, piece) => sum + piece.length, groupBytes * this.groups.size)
  }
}

function isBinding(holding: Holding): holding is CachedRecord {
  return 'parent' in holding
}

/** Returns the uids of the group and the role. */
function placeOf(tables: RecordTables, holding: Holding): { readonly group: string; readonly role: string } {
  return isBinding(holding) ? { group: holding.parent, role: tables.table(holding.kind).valueOf(holding, 'role') ?? '' } : holding
}

/**
 * Returns the role bindings of the caller, then the session roles that no role binding grants. Reads the role of a binding only if the
 * session has a role in the same group.
 */
function holdingsOf(tables: RecordTables, { restrictions: { roles = [] } }: Caller, bindings: Iterable<CachedRecord>): Holding[] {
  const held = [...bindings]
  if (roles.length === 0) return held
  const table = tables.table('RoleBinding')
  const groups = new Set<string>(roles.map(({ group }) => group))
  const left = new Map(roles.map((one) => [`${one.group} ${one.role}`, one]))
  for (const record of held) if (groups.has(record.parent)) left.delete(`${record.parent} ${table.valueOf(record, 'role') ?? ''}`)
  return [...held, ...left.values()]
}

function sourceOf(tables: RecordTables, permissions: EffectivePermissions, holding: Holding): BindingSource | undefined {
  const place = placeOf(tables, holding)
  const role = tables.get('Role', place.role)
  const group = tables.get('Group', place.group)
  if (role === undefined || group === undefined) return undefined
  const held = intersect(roleCapabilities(role), capabilitiesAt(permissions, group.uid))
  return isEmpty(held) ? undefined : { role, group, root: tables.get('Group', rootOf(group.uid)), held }
}

function heldOf(services: Services, { group, role, held }: BindingSource): WhoAmI_Held {
  // a cast: the records of a kind contain messages of that kind
  const { uid: groupId, $typeName: _, ...shown } = shownOf(groupKind, services, group).message as unknown as Group
  const { uid: roleId, name, description } = role.message as unknown as Role
  return create(WhoAmI_HeldSchema, {
    group: create(GroupSchema, { ...shown, id: groupId }),
    role: create(RoleSchema, { id: roleId, name, description, capabilities: [...namesOf(withoutOwn(roleCapabilities(role)))] }),
    capabilities: [...namesOf(withoutOwn(held))],
  })
}

function isSame(one: BindingSource, other: BindingSource): boolean {
  return one.role === other.role && one.group === other.group && one.root === other.root && equals(one.held, other.held)
}

/**
 * The capabilities of callers by role binding and session role, within the restrictions of their tokens. For a caller with many role
 * bindings, the response is built in slices, between which other work runs. It is cached until a commit changes one of its role bindings,
 * roles or groups.
 */
export class HeldAnswers {
  readonly #services: Services
  readonly #scheduler = new CooperativeScheduler()
  readonly #cached = new RecentMap<string, HeldAnswer>(cachedBytes, (answer) => answer.weight)
  readonly #beingMade = new Map<string, Promise<readonly Uint8Array[]>>()
  /** Responses that are cached or being built. */
  readonly #watched = new Set<WeakRef<HeldAnswer>>()

  constructor(services: Services) {
    this.#services = services
    const { cache } = services
    cache.onReset(() => this.#end(() => true))
    cache.onHide((kind, records) => {
      if (kind !== 'RoleBinding' || this.#watched.size === 0) return
      const identities = new Set(records.map((record) => this.#identityOf(record)))
      this.#end(({ identity }) => identities.has(identity))
    })
    cache.onRecord((kind, old, record) => this.#changed(kind, old, record))
  }

  /**
   * Returns the items of the caller's response: role bindings in uid order, then session roles. All are of one commit, which is not older
   * than the call. For many role bindings, returns encoded pieces, which the transport joins.
   */
  async of(form: AnswerForm, caller: Caller): Promise<{ readonly items: WhoAmI_Held[] } | { readonly joined: readonly Uint8Array[] }> {
    const { tables } = this.#services.cache
    const bindings = tables.table('RoleBinding').matching('identity', caller.identity)
    if (bindings.size <= answeredAtOnce) {
      const permissions = caller.permissions()
      const sources = holdingsOf(tables, caller, bindings)
        .map((holding) => sourceOf(tables, permissions, holding))
        .filter((source) => source !== undefined)
      return { items: sources.map((source) => heldOf(this.#services, source)) }
    }
    const key = JSON.stringify([form, caller.identity, caller.operator, caller.restrictions])
    const known = this.#cached.get(key)
    if (known?.isCurrent === true) return { joined: known.pieces }
    let making = this.#beingMade.get(key)
    if (making === undefined) {
      const made = this.#make(key, form, caller)
      making = made
      this.#beingMade.set(key, made)
      // Another response may be in progress under this key by now.
      const forget = (): void => void (this.#beingMade.get(key) === made && this.#beingMade.delete(key))
      made.then(forget, forget)
    }
    return { joined: await making }
  }

  /** Builds a response, and starts again if a record that it depends on changes. Unchanged items are reused, so each pass is shorter. */
  async #make(key: string, form: AnswerForm, caller: Caller): Promise<readonly Uint8Array[]> {
    const task = new CooperativeTask(this.#scheduler)
    let made = new Map<Holding, Item>()
    for (let pass = 1; ; pass++) {
      await task.pause()
      const answer = new HeldAnswer(caller)
      const watch = new WeakRef(answer)
      this.#watched.add(watch)
      const next: typeof made = new Map()
      const { cache } = this.#services
      const permissions = caller.permissions()
      // For a caller with many role bindings, each step takes long.
      if (task.shouldYield) await task.pause()
      capabilitiesAt(permissions, caller.identity)
      if (task.shouldYield) await task.pause()
      const { tables } = cache
      const rows = holdingsOf(tables, caller, tables.table('RoleBinding').matching('identity', caller.identity))
      const pieces: Uint8Array[] = []
      for (let at = 0; at < rows.length && answer.isCurrent; at += recordsPerCheck) {
        if (task.shouldYield && pass < maxPasses) await task.pause()
        const items = rows
          .slice(at, at + recordsPerCheck)
          .flatMap((holding) => this.#itemOf(answer, holding, { permissions, form, before: made.get(holding) }) ?? [])
        const piece = Buffer.concat(items.map(({ bytes }) => bytes))
        pieces.push(piece)
        let end = 0
        // The item refers to its bytes in the piece instead of copying them.
        for (const item of items) next.set(item.holding, { ...item, bytes: piece.subarray(end, (end += item.bytes.length)) })
      }
      if (answer.isCurrent) {
        const whole = joined(form, pieces)
        answer.pieces = whole
        this.#cached.set(key, answer)
        // A later call must start a new response, since records may have changed.
        this.#beingMade.delete(key)
        await task.pause()
        return whole
      }
      made = new Map([...made, ...next])
    }
  }

  #itemOf(
    answer: HeldAnswer,
    holding: Holding,
    { permissions, form, before }: { permissions: EffectivePermissions; form: AnswerForm; before: Item | undefined },
  ): Item | undefined {
    const { tables } = this.#services.cache
    const { group, role } = placeOf(tables, holding)
    answer.roles.add(role)
    answer.groups.add(group)
    answer.groups.add(rootOf(trustedUid(group)))
    const source = sourceOf(tables, permissions, holding)
    if (source === undefined) return undefined
    return before !== undefined && isSame(before, source) ? before : { ...source, holding, bytes: writers[form](heldOf(this.#services, source)) }
  }

  #identityOf(binding: CachedRecord): string {
    return this.#services.cache.tables.table('RoleBinding').valueOf(binding, 'identity') ?? ''
  }

  #changed(kind: string, old: CachedRecord | undefined, record: CachedRecord | undefined): void {
    if (this.#watched.size === 0) return
    const uid = (record ?? old)?.uid ?? ''
    if (kind === 'Role') this.#end(({ roles }) => roles.has(uid))
    else if (kind === 'Group') this.#end(({ groups }) => groups.has(uid))
    else if (kind === 'RoleBinding') {
      const [was, is] = [old && this.#identityOf(old), record && this.#identityOf(record)]
      this.#end(({ identity }) => identity === was || identity === is)
    }
  }

  /** Makes the selected responses invalid. */
  #end(isVoid: (answer: HeldAnswer) => boolean): void {
    for (const watch of this.#watched) {
      const answer = watch.deref()
      if (answer !== undefined && !isVoid(answer)) continue
      if (answer !== undefined) {
        answer.isCurrent = false
        answer.pieces = []
      }
      this.#watched.delete(watch)
    }
  }
}

/** Removes the comma before the first item. */
function joined(form: AnswerForm, pieces: readonly Uint8Array[]): readonly Uint8Array[] {
  const [first = Buffer.alloc(0), ...others] = pieces.filter((piece) => piece.length > 0)
  return form === 'http' ? [first.subarray(1), ...others] : [first, ...others]
}
