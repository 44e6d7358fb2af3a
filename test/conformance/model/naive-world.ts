import { isBelow, naiveList, type NaiveQuery, type NaiveVisibility, type NaiveRecord } from './naive-list.ts'

/** A record as the naive model keeps it. */
export interface ModelRecord extends NaiveRecord {
  readonly description: string
  readonly etag: string
  /** Of a role. */
  readonly capabilities: readonly string[]
}

/** Who calls: an operator, or an identity with what is bound to it. */
export interface ModelCaller {
  readonly operator: boolean
  readonly identity: string
}

/** The dotted domain of each kind's capabilities. */
const domains = { Group: 'IAM_GROUPS', Identity: 'IAM_IDENTITY', Role: 'IAM_ROLES', RoleBinding: 'IAM_ROLE_BINDINGS' } as const
/** A kind of the model. */
export type ModelKind = keyof typeof domains
export const modelKinds = Object.keys(domains) as ModelKind[]

/** What is done to a record, as capabilities are named. */
export type Deed = 'LIST' | 'CREATE' | 'UPDATE' | 'DELETE'

function parentOf(uid: string): string {
  const slash = uid.lastIndexOf('/')
  return slash < 0 ? '/' : uid.slice(0, slash)
}

const within = (uid: string, ancestor: string): boolean => uid === ancestor || isBelow(uid, ancestor)

/**
 * The naive model: an array of records, and every rule of the contract as a look through all of it. Says what a call must answer (0 or the error's code)
 * and, once it did, takes the change over.
 */
export class NaiveWorld {
  readonly records = new Map<string, ModelRecord>()
  readonly ownerRole: string

  constructor(ownerRole: string) {
    this.ownerRole = ownerRole
  }

  get(kind: string, uid: string): ModelRecord | undefined {
    return this.records.get(`${kind} ${uid}`)
  }

  put(record: ModelRecord): void {
    this.records.set(`${record.kind} ${record.uid}`, record)
  }

  all(kind: ModelKind): ModelRecord[] {
    return [...this.records.values()].filter((record) => record.kind === kind)
  }

  /** What the caller was granted: at which group, which capabilities. */
  grants(caller: ModelCaller): { group: string; capabilities: readonly string[] }[] {
    return this.all('RoleBinding')
      .filter((binding) => binding.filters['identity'] === caller.identity && within(parentOf(binding.uid), parentOf(caller.identity)))
      .map((binding) => ({ group: parentOf(binding.uid), capabilities: this.get('Role', binding.filters['role'] ?? '')?.capabilities ?? [] }))
  }

  held(caller: ModelCaller, place: string): Set<string> {
    const here = this.grants(caller).filter(({ group }) => within(place, group))
    return new Set(here.flatMap(({ capabilities }) => capabilities))
  }

  capability(kind: ModelKind, deed: Deed): string {
    return `CAP_${domains[kind]}_${deed}`
  }

  /** docs/spec/conventions.md#order-of-checks: no reach 404, reach without the capability 403. */
  mayAt(caller: ModelCaller, place: string, capability: string): 0 | 5 | 7 {
    if (caller.operator) return 0
    const held = this.held(caller, place)
    if (held.size === 0) return 5
    return held.has(capability) ? 0 : 7
  }

  visibility(caller: ModelCaller, kind: ModelKind): NaiveVisibility {
    if (caller.operator) return { everywhere: true, groups: [], roots: true }
    const groups = this.grants(caller)
      .map(({ group }) => group)
      .filter((group) => this.held(caller, group).has(this.capability(kind, 'LIST')))
    return { everywhere: false, groups, roots: kind === 'Role' && groups.length > 0 }
  }

  list(query: NaiveQuery): NaiveRecord[] {
    return naiveList(this.records.values(), query)
  }

  isBuiltIn(kind: string, uid: string): boolean {
    return kind === 'Role' && !uid.includes('/')
  }

  /** What reading, changing or deleting this uid answers, before anything of the request itself is looked at. */
  mayTouch(caller: ModelCaller, target: { kind: ModelKind; uid: string; deed: Deed }): number {
    const { kind, uid, deed } = target
    if (this.isBuiltIn(kind, uid)) {
      if (this.visibility(caller, 'Role').groups.length === 0 && !caller.operator) return 5
      return deed === 'LIST' ? 0 : 7
    }
    const may = this.mayAt(caller, uid, this.capability(kind, deed))
    if (may !== 0) return may
    return this.get(kind, uid) === undefined ? 5 : 0
  }

  mayCreate(caller: ModelCaller, kind: ModelKind, parent: string): number {
    if (parent === '') return caller.operator ? 0 : 7
    const may = this.mayAt(caller, parent, this.capability(kind, 'CREATE'))
    if (may !== 0) return may
    return this.get('Group', parent) === undefined ? 5 : 0
  }

  nameTaken(kind: ModelKind, parent: string, name: string, but = ''): boolean {
    return this.all(kind).some((record) => parentOf(record.uid) === (parent === '' ? '/' : parent) && record.name === name && record.uid !== but)
  }

  canGrant(caller: ModelCaller, place: string, capabilities: readonly string[]): boolean {
    const held = this.held(caller, place)
    return caller.operator || capabilities.every((capability) => held.has(capability))
  }

  /** docs/spec/iam.md#references-in-bodies: what the caller has no reach to is not there for them, unless the binding that they change has it. */
  mayName(caller: ModelCaller, uid: string, current: string | undefined): boolean {
    return caller.operator || uid === current || uid === caller.identity || this.isBuiltIn('Role', uid) || this.held(caller, uid).size > 0
  }

  /** docs/spec/iam.md#role-bindings, docs/spec/iam.md#no-escalation: who may be bound where, and to which role. */
  canBind(caller: ModelCaller, group: string, { identity, role, current }: { identity: string; role: string; current?: NaiveRecord }): boolean {
    if (!this.mayName(caller, identity, current?.filters['identity']) || !this.mayName(caller, role, current?.filters['role'])) return false
    const home = parentOf(identity)
    const found = this.get('Role', role)
    const rolePlace = this.isBuiltIn('Role', role) || (found !== undefined && within(group, parentOf(role)))
    return this.get('Identity', identity) !== undefined && within(group, home) && found !== undefined && rolePlace
  }

  isBound(group: string, pair: { identity: string; role: string }, but = ''): boolean {
    return this.all('RoleBinding').some(
      (binding) =>
        parentOf(binding.uid) === group && binding.filters['identity'] === pair.identity && binding.filters['role'] === pair.role && binding.uid !== but,
    )
  }

  makesOwner(binding: NaiveRecord): boolean {
    return !parentOf(binding.uid).includes('/') && binding.filters['role'] === this.ownerRole
  }

  /** True where a root group would be left without owner (docs/spec/iam.md#last-owner). */
  leavesNoOwner(caller: ModelCaller, leaving: readonly ModelRecord[]): boolean {
    if (caller.operator) return false
    const roots = new Set(leaving.filter((binding) => this.makesOwner(binding)).map((binding) => parentOf(binding.uid)))
    // A person who never signed in owns nothing yet.
    const stays = (binding: ModelRecord): boolean =>
      this.makesOwner(binding) && !leaving.includes(binding) && this.get('Identity', binding.filters['identity'] ?? '') !== undefined
    return [...roots].some((root) => !this.all('RoleBinding').some((binding) => parentOf(binding.uid) === root && stays(binding)))
  }

  bindingsOf(filter: 'identity' | 'role', uid: string): ModelRecord[] {
    return this.all('RoleBinding').filter((binding) => binding.filters[filter] === uid)
  }

  /** What deleting a record that may be deleted answers, by the state of the others (docs/spec/conventions.md#deletion-order). */
  canRemove(caller: ModelCaller, record: ModelRecord): number {
    if (record.kind === 'Group') return [...this.records.values()].some((other) => parentOf(other.uid) === record.uid && other.kind !== 'RoleBinding') ? 9 : 0
    if (record.kind === 'Role') return this.bindingsOf('role', record.uid).length > 0 ? 9 : 0
    const leaving = record.kind === 'Identity' ? this.bindingsOf('identity', record.uid) : [record]
    return this.leavesNoOwner(caller, leaving) ? 9 : 0
  }

  /** Removes a record and what goes with it. */
  remove(record: ModelRecord): void {
    this.records.delete(`${record.kind} ${record.uid}`)
    for (const binding of this.all('RoleBinding')) {
      const goes = record.kind === 'Group' ? parentOf(binding.uid) === record.uid : record.kind === 'Identity' && binding.filters['identity'] === record.uid
      if (goes) this.records.delete(`RoleBinding ${binding.uid}`)
    }
  }
}
