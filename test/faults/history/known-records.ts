import type { JsonObject } from '@bufbuild/protobuf'
import type { SeededRandom } from '../schedules/random.ts'
import type { HistoryKind, Seen } from './history.ts'

/** The differences between kinds in calls. */
export const kindFacts = {
  Group: { field: 'group', plural: 'groups', list: 'ListGroups', hasUniqueName: true },
  Identity: { field: 'identity', plural: 'identities', list: 'ListIdentities', hasUniqueName: false },
  Role: { field: 'role', plural: 'roles', list: 'ListRoles', hasUniqueName: true },
  RoleBinding: { field: 'roleBinding', plural: 'roleBindings', list: 'ListRoleBindings', hasUniqueName: true },
} as const satisfies Record<HistoryKind, { field: string; plural: string; list: string; hasUniqueName: boolean }>

/** All kinds that the workload writes. */
export const kinds: readonly HistoryKind[] = ['Group', 'Identity', 'Role', 'RoleBinding']

/** A record that some client saw. */
export interface Known {
  readonly kind: HistoryKind
  readonly parent: string
  /** The last seen state. Others may have changed it since. */
  seen: Seen
  /** The seen state before that, if it differed. */
  before?: Seen
}

/** A group for records. It is replaced after a while, so that the parts of a history stay small. */
export class Place {
  readonly uid: string
  readonly name: string
  operations = 0
  /** True while it is emptied and removed: clients create nothing here deliberately. */
  isClosing = false
  readonly #records = new Map<string, Known>()
  readonly #gone: Known[] = []

  constructor(uid: string, name: string) {
    this.uid = uid
    this.name = name
  }

  saw(kind: HistoryKind, seen: Seen): Known {
    const known = this.#records.get(seen.uid)
    if (known !== undefined && known.seen.etag !== seen.etag) known.before = known.seen
    if (known !== undefined) known.seen = seen
    const record = known ?? { kind, parent: this.uid, seen }
    if (!this.#gone.some((gone) => gone.seen.uid === seen.uid)) this.#records.set(seen.uid, record)
    return record
  }

  lost(uid: string): void {
    const record = this.#records.get(uid)
    if (record === undefined) return
    this.#records.delete(uid)
    this.#gone.push(record)
  }

  all(): readonly Known[] {
    return [...this.#records.values()]
  }

  gone(): readonly Known[] {
    return this.#gone
  }

  ofKind(kind: HistoryKind): readonly Known[] {
    return this.all().filter((known) => known.kind === kind)
  }

  /** Returns a random known record, sometimes a deleted one. */
  any(random: SeededRandom): Known | undefined {
    const from = random.fraction() < 0.07 ? this.#gone.slice(-10) : this.all()
    return from.length === 0 ? undefined : random.pick(from)
  }
}

/** The names of written versions. After a partial write, a version would have another name. */
export class Versions {
  readonly #names = new Map<string, string>()

  wrote(value: string, name: string): void {
    this.#names.set(value, name)
  }

  /** Returns the record in an answer. A state that no write made has a value that no write has. */
  seenOf(kind: HistoryKind, body: JsonObject): Seen {
    const uid = String(body['uid'])
    const etag = String(body['etag'])
    if (kind === 'RoleBinding') {
      // The answer of a role binding contains its identity and role (docs/spec/iam.md#role-binding-fields).
      const [identity, role] = [body['identity'], body['role']] as JsonObject[]
      return { uid, etag, value: String(role?.['uid']), identity: String(identity?.['uid']) }
    }
    const description = String(body['description'])
    const name = this.#names.get(description)
    const value = name === undefined || name === body['name'] ? description : `${description} under the name ${String(body['name'])}`
    return { uid, etag, value, tag: description.split(' ')[0] ?? '' }
  }
}
