import type { JsonObject } from '@bufbuild/protobuf'
import { builtInRoles } from '../../../src/base/roles.ts'
import type { SeededRandom } from '../schedules/random.ts'
import type { HistoryKind, Seen } from './history.ts'
import { kindFacts, kinds, Place, type Known, type Versions } from './known-records.ts'
import type { Creation, RecordedCalls, Unsettled } from './recorded-calls.ts'

/** The knowledge that all clients of a workload share, like people who work together. */
export interface SharedWorld {
  /** The prefix of every tag, so that records of other runs are not mistaken. */
  readonly run: string
  readonly root: Place
  readonly places: Place[]
  /** Replaced groups. */
  readonly closed: Place[]
  readonly versions: Versions
  /** Creates without an answer. */
  readonly unsettled: Unsettled[]
  /** Whether creates have idempotency keys, and are repeated with them. */
  readonly repeatsCreations: boolean
  /** The identity of the caller, who owns the root group by creating it. */
  readonly caller: string
}

/** Number of operations in one group before it is replaced by a new one. */
const operationsPerPlace = 120
/** Few names, so that clients compete for them. */
const names = ['north', 'south', 'east', 'west']
const boundRoles = ['viewer', 'editor', 'owner'].map((name) => builtInRoles.find((role) => role.name === name)?.uid ?? '')
/** Number of attempts to empty a group before it is left as it is. */
const maxClearings = 4

/** Returns the unique name of a role binding: its identity and role. */
function claimOf(identity: string, role: string): string {
  return `${identity} ${role}`
}

/** Returns whether it is the binding of the root group's creator. */
export function isForeignTo(world: SharedWorld, place: Place): (seen: Seen) => boolean {
  return (seen) => place === world.root && seen.identity === world.caller
}

/** Returns a list request for the records of a kind in a group. Its records have no children, so both filters mean the same. */
export function queryOf(place: Place, choice: { below: boolean; orderBy?: string }): JsonObject {
  const uidp = choice.below ? { descendantsOf: place.uid } : { childrenOf: place.uid }
  return { uidp, ...(choice.orderBy === undefined ? {} : { orderBy: choice.orderBy }) }
}

/** One client, which performs random actions one after the other. */
export class WorkloadClient {
  readonly #calls: RecordedCalls
  readonly #world: SharedWorld
  readonly #random: SeededRandom
  readonly #number: number
  #made = 0

  constructor(options: { number: number; calls: RecordedCalls; world: SharedWorld; random: SeededRandom }) {
    this.#calls = options.calls
    this.#world = options.world
    this.#random = options.random
    this.#number = options.number
  }

  /** Performs one action. Returns false if it had no effect. */
  async act(): Promise<boolean> {
    const roll = this.#random.fraction()
    if (roll < 0.03) return this.#moveOwner()
    if (roll < 0.06) return (await this.#list(this.#world.root, this.#random.pick(['Group', 'RoleBinding']))) !== undefined
    const place = this.#random.pick(this.#world.places)
    place.operations += 1
    if (place.operations > operationsPerPlace && !place.isClosing) return this.#replace(place)
    return this.#actIn(place)
  }

  /** Creates a group for records. */
  async openPlace(): Promise<boolean> {
    const name = `place ${this.#world.places.length + this.#world.closed.length} ${this.#number}-${this.#made}`
    const seen = await this.#create({ ...this.#describedBy('Group', name), parent: this.#world.root.uid, name }, true)
    if (seen === undefined) return false
    this.#world.root.saw('Group', seen)
    this.#world.places.push(new Place(seen.uid, name))
    return true
  }

  /** Creates the identities between which ownership of the root group moves. */
  async appointChief(): Promise<boolean> {
    const { root } = this.#world
    const identity = await this.#create({ ...this.#describedBy('Identity', 'chief'), parent: root.uid }, true)
    if (identity === undefined) return false
    root.saw('Identity', identity)
    const binding = await this.#create(this.#bindingOf(root, identity.uid), true)
    if (binding !== undefined) root.saw('RoleBinding', binding)
    return binding !== undefined
  }

  async #actIn(place: Place): Promise<boolean> {
    const roll = this.#random.fraction()
    const known = place.any(this.#random)
    if (known === undefined || roll < 0.24) return this.#createIn(place)
    if (roll < 0.46) return this.#update(place, known)
    if (roll < 0.66) return this.#read(place, known)
    if (roll < 0.86) return (await this.#list(place, this.#random.pick(kinds))) !== undefined
    return this.#remove(place, known)
  }

  /** Returns fields that distinguish this write from every other. The caller chooses the unique name. */
  #describedBy(kind: HistoryKind, name: string): Omit<Creation, 'parent'> {
    this.#made += 1
    const tag = `${this.#world.run}-${this.#number}-${this.#made}`
    const value = `${tag} 0`
    this.#world.versions.wrote(value, name)
    const own = kind === 'Identity' ? { claimMatch: { issuer: 'https://issuer.example', subject: tag } } : {}
    const capabilities = kind === 'Role' ? { capabilities: ['CAP_IAM_GROUPS_LIST'] } : {}
    return { kind, fields: { name, description: value, ...own, ...capabilities }, value, tag }
  }

  #bindingOf(place: Place, identity: string): Creation {
    const custom = place.ofKind('Role').map(({ seen }) => seen.uid)
    const role = this.#random.pick(place === this.#world.root ? boundRoles : [...boundRoles, ...custom])
    return { kind: 'RoleBinding', parent: place.uid, fields: { identityUid: identity, roleUid: role }, value: role, identity, name: claimOf(identity, role) }
  }

  async #create(creation: Creation, isRepeated: boolean): Promise<Seen | undefined> {
    this.#made += 1
    const key = isRepeated && this.#world.repeatsCreations ? { idempotencyKey: `${this.#world.run}-${this.#number}-${this.#made}` } : {}
    return this.#calls.create({ ...creation, ...key }, (left) => this.#world.unsettled.push(left))
  }

  async #createIn(place: Place): Promise<boolean> {
    const identities = place.ofKind('Identity')
    const kind = this.#random.pick<HistoryKind>(
      identities.length === 0 ? ['Identity', 'Role', 'Group'] : ['Identity', 'Role', 'Group', 'RoleBinding', 'RoleBinding'],
    )
    let creation: Creation
    if (kind === 'RoleBinding') creation = this.#bindingOf(place, this.#random.pick(identities).seen.uid)
    else {
      const name = this.#random.pick(names)
      creation = { ...this.#describedBy(kind, name), parent: place.uid, ...(kindFacts[kind].hasUniqueName ? { name } : {}) }
    }
    const seen = await this.#create(creation, kind === 'RoleBinding' || this.#random.fraction() < 0.6)
    if (seen !== undefined) place.saw(kind, seen)
    return seen !== undefined
  }

  /** Returns the state in If-Match: often the last seen one, sometimes an older one. */
  #guardOf({ seen, before }: Known, share: number): { guard?: Seen } {
    if (this.#random.fraction() >= share) return {}
    return { guard: before !== undefined && this.#random.fraction() < 0.2 ? before : seen }
  }

  async #update(place: Place, known: Known): Promise<boolean> {
    this.#made += 1
    const { kind, seen } = known
    const guard = this.#guardOf(known, 0.6)
    const target = { kind, parent: place.uid, uid: seen.uid, ...guard }
    if (kind === 'RoleBinding') {
      const role = this.#random.pick(boundRoles)
      return this.#took(
        place,
        target,
        await this.#calls.update({ ...target, fields: { roleUid: role }, value: role, name: claimOf(seen.identity ?? '', role) }),
      )
    }
    const value = `${seen.tag} ${this.#number}-${this.#made}`
    const isRenamed = kind === 'Identity' || this.#random.fraction() < 0.25
    if (!isRenamed) return this.#took(place, target, await this.#calls.update({ ...target, fields: { description: value }, value }))
    const name = this.#random.pick(names)
    this.#world.versions.wrote(value, name)
    const claim = kindFacts[kind].hasUniqueName ? { name } : {}
    return this.#took(place, target, await this.#calls.update({ ...target, fields: { name, description: value }, value, ...claim }))
  }

  #took(place: Place, { kind, uid }: { kind: HistoryKind; uid: string }, done: Awaited<ReturnType<RecordedCalls['update']>>): boolean {
    if (done?.seen !== undefined) place.saw(kind, done.seen)
    if (done?.outcome === 'absent') place.lost(uid)
    return done !== undefined && done.outcome !== 'unknown'
  }

  async #read(place: Place, { kind, seen: { uid } }: Known): Promise<boolean> {
    const seen = await this.#calls.read({ kind, parent: place.uid, uid })
    if (seen === 'absent') place.lost(uid)
    else if (seen !== undefined) place.saw(kind, seen)
    return seen !== undefined
  }

  async #list(place: Place, kind: HistoryKind): Promise<readonly Seen[] | undefined> {
    const orderBy = this.#random.fraction() < 0.3 && kind !== 'RoleBinding' ? { orderBy: 'name desc' } : {}
    const query = queryOf(place, { below: place !== this.#world.root && this.#random.fraction() < 0.4, ...orderBy })
    const members = await this.#calls.list({ kind, parent: place.uid, query, isForeign: isForeignTo(this.#world, place) })
    for (const seen of members ?? []) place.saw(kind, seen)
    return members
  }

  async #remove(place: Place, known: Known): Promise<boolean> {
    const { kind, seen } = known
    const guard = this.#guardOf(known, 0.25)
    const outcome = await this.#calls.remove({ kind, parent: place.uid, uid: seen.uid, ...guard })
    if (outcome === 'ok' || outcome === 'absent') place.lost(seen.uid)
    return outcome !== undefined && outcome !== 'unknown'
  }

  /** Moves a role on the root group from one identity to another. */
  async #moveOwner(): Promise<boolean> {
    const { root } = this.#world
    const bindings = root.ofKind('RoleBinding')
    return bindings.length > 0 && this.#update(root, this.#random.pick(bindings))
  }

  /** Replaces a group by another, empties and removes it, while other clients may still use it. */
  async #replace(place: Place): Promise<boolean> {
    place.isClosing = true
    if (!(await this.openPlace())) {
      place.isClosing = false
      return false
    }
    const { places, closed, root } = this.#world
    places.splice(places.indexOf(place), 1)
    closed.push(place)
    for (let round = 0; round < maxClearings; round += 1) {
      // Bindings are deleted with their identities and with the group; roles can be deleted once they are not bound.
      for (const kind of ['Identity', 'RoleBinding', 'Role', 'Group'] as const) {
        if (kind === 'RoleBinding' && round === 0) continue
        for (const seen of (await this.#list(place, kind)) ?? []) await this.#remove(place, { kind, parent: place.uid, seen })
      }
      const outcome = await this.#calls.remove({ kind: 'Group', parent: root.uid, uid: place.uid })
      if (outcome !== 'ok' && outcome !== 'absent') continue
      root.lost(place.uid)
      return true
    }
    return false
  }
}
