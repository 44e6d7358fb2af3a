import { create, type Message, type MessageInitShape } from '@bufbuild/protobuf'
import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import { personUid } from '../../src/auth/oidc/issuer-name.ts'
import { builtInRoles } from '../../src/base/roles.ts'
import { trustedUid, type Uid } from '../../src/base/uid.ts'
import { GroupSchema, OrgStatus } from '../../src/gen/taproot/iam/v2/groups_pb.ts'
import { IdentitySchema } from '../../src/gen/taproot/iam/v2/identities_pb.ts'
import { RoleBindingSchema } from '../../src/gen/taproot/iam/v2/role_bindings_pb.ts'
import type { AnyKind } from '../../src/engine/kind.ts'
import { groupKind } from '../../src/iam/records/groups.ts'
import { identityKind } from '../../src/iam/records/identities.ts'
import { roleBindingKind } from '../../src/iam/records/role-bindings.ts'
import type { Resource } from '../../src/cache/records/cached-record.ts'
import { Numbers } from './numbers.ts'

/** Version of the generated records. A change makes the next run create its datasets again. */
export const datasetVersion = 1

/** Issuer of the benchmark's sign-ins. It is configured with keys that the benchmark serves. */
export const benchIssuer = 'https://issuer.bench.example'

/** Subjects of the people in every dataset. `operator` is an operator by configuration. */
export const subjects = { operator: 'operator', member: 'member', few: 'few' } as const

/** A generated record. */
export interface Made {
  readonly kind: AnyKind
  readonly uid: Uid
  readonly record: Resource
  readonly createMs: number
  readonly etag: string
}

/** Uids and counts of a dataset. */
export interface Plan {
  readonly records: number
  readonly groups: number
  readonly identities: number
  readonly bindings: number
  /** Uid of a root group in which `member` is owner. A tenth of all records are children of one parent in it. */
  readonly root: string
  /** Uids of some identities in `root`, and of some of its subgroups. */
  readonly someIdentities: readonly string[]
  readonly someGroups: readonly string[]
}

interface GroupPlace {
  readonly uid: Uid
  readonly depth: number
  readonly children: Uid[]
}

const maxDepth = 4
const sampleSize = 1000
const fewGroups = 20
const startMs = Date.UTC(2026, 0, 1)
const teams = [
  'payments',
  'platform',
  'search',
  'identity',
  'mobile',
  'data',
  'edge',
  'billing',
  'storage',
  'ml',
  'web',
  'security',
  'observability',
  'release',
]
const jobs = ['ci-deploy', 'ci-build', 'image-puller', 'image-pusher', 'backup', 'scanner', 'rollout', 'nightly']
const boundRoles = ['viewer', 'editor', 'registry.pull', 'registry.push', 'console_viewer', 'owner']
const staticKeys =
  '{"keys":[{"kty":"EC","crv":"P-256","x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4","y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM","alg":"ES256","kid":"1"}]}'

const expirationTime = timestampFromMs(startMs + 364 * 24 * 3_600_000)
const roleUids = boundRoles.map((name) => builtInRoles.find((role) => role.name === name)?.uid ?? '')

/** Returns how an identity signs in: every twentieth by static keys, the others by claim match. */
function relationshipOf(at: number, name: string): NonNullable<MessageInitShape<typeof IdentitySchema>['relationship']> {
  if (at % 20 === 0) return { case: 'staticKeys', value: { issuer: 'https://ci.example', subject: name, issuerKeys: staticKeys, expirationTime } }
  const iss = { case: 'issuer', value: 'https://token.ci.example' } as const
  return { case: 'claimMatch', value: { iss, sub: { case: 'subject', value: `repo:example/${name}:ref:refs/heads/main` } } }
}

/** Returns the number of records of each kind, and of root groups. */
function shape(records: number): { groups: number; identities: number; bindings: number; roots: number; crowded: number } {
  const groups = Math.max(4, Math.round(records * 0.05))
  const identities = Math.round(records * 0.35)
  const roots = Math.min(200, Math.max(2, Math.round(groups / 10)))
  return { groups, identities, bindings: records - groups - identities, roots, crowded: Math.round(records / 10) }
}

/**
 * Generates the records of an installation with up to 200 root groups, the same in every run. A twentieth are groups, a third identities,
 * the rest role bindings. A tenth of all are children of one group, and another tenth are role bindings of one group. `next` returns
 * parents before their children. `plan` is complete only after the last record.
 */
export class DatasetGenerator {
  readonly #numbers = new Numbers(20_260_101)
  readonly #shape: ReturnType<typeof shape>
  readonly #groups: GroupPlace[] = []
  readonly #identities: { uid: Uid; home: number }[] = []
  readonly #someIdentities: string[] = []
  #made = 0

  constructor(records: number) {
    this.#shape = shape(records)
  }

  get plan(): Plan {
    const { groups, identities, bindings } = this.#shape
    const root = this.#groups[0]
    const someGroups = (root?.children ?? []).slice(0, sampleSize)
    return { records: groups + identities + bindings, groups, identities, bindings, root: root?.uid ?? '', someIdentities: this.#someIdentities, someGroups }
  }

  *records(): Generator<Made> {
    yield* this.#makeGroups()
    yield* this.#makeIdentities()
    yield* this.#makePeople()
    yield* this.#makeBindings()
  }

  #stamp(kind: AnyKind, uid: Uid, message: Message): Made {
    this.#made++
    // a cast: messages have the schemas of their kinds
    return { kind, uid, record: message as Resource, createMs: startMs + this.#made * 10, etag: this.#numbers.hex(16) }
  }

  *#makeGroups(): Generator<Made> {
    const { groups, roots } = this.#shape
    for (let at = 0; at < groups; at++) {
      // The first subgroup of the first root group is the one with many role bindings.
      const parent = at < roots ? undefined : at === roots ? this.#groups[0] : this.#numbers.pick(this.#groups)
      const holder = parent !== undefined && parent.depth >= maxDepth ? this.#groups[at % roots] : parent
      const uid = trustedUid(holder === undefined ? this.#numbers.hex(40) : `${holder.uid}/${this.#numbers.hex(16)}`)
      holder?.children.push(uid)
      this.#groups.push({ uid, depth: (holder?.depth ?? 0) + 1, children: [] })
      const name = `${this.#numbers.pick(teams)}-${this.#numbers.pick(teams)}-${at.toString(36)}`
      const status = holder === undefined ? OrgStatus.READY : OrgStatus.UNSPECIFIED
      yield this.#stamp(groupKind, uid, create(GroupSchema, { name, description: `Team ${name}`, status }))
    }
  }

  *#makeIdentities(): Generator<Made> {
    const { identities, crowded } = this.#shape
    for (let at = 0; at < identities - 2; at++) {
      const home = at < crowded ? 0 : this.#numbers.below(this.#groups.length)
      const uid = trustedUid(`${this.#groups[home]?.uid ?? ''}/${this.#numbers.hex(16)}`)
      this.#identities.push({ uid, home })
      if (home === 0 && this.#someIdentities.length < sampleSize) this.#someIdentities.push(uid)
      const name = `${this.#numbers.pick(jobs)}-${this.#numbers.pick(teams)}-${at.toString(36)}`
      const relationship = relationshipOf(at, name)
      const lastSeenTime = timestampFromMs(startMs + at * 10)
      yield this.#stamp(identityKind, uid, create(IdentitySchema, { name, description: `Job ${name}`, relationship, lastSeenTime }))
    }
  }

  *#makePeople(): Generator<Made> {
    for (const subject of [subjects.member, subjects.few]) {
      yield this.#stamp(identityKind, personUid(benchIssuer, subject), create(IdentitySchema, { name: subject, email: `${subject}@bench.example` }))
    }
  }

  #bind(group: string, identityUid: string, role: number): Made {
    const uid = trustedUid(`${group}/${this.#numbers.hex(16)}`)
    return this.#stamp(roleBindingKind, uid, create(RoleBindingSchema, { identityUid, roleUid: roleUids[role % roleUids.length] ?? '' }))
  }

  /** Yields the role bindings of the benchmark's own people. */
  *#bindPeople(): Generator<Made> {
    const root = this.#groups[0]?.uid ?? ''
    yield this.#bind(root, personUid(benchIssuer, subjects.member), boundRoles.indexOf('owner'))
    const seen = this.#groups.slice(this.#shape.roots + 1)
    const few = Math.min(fewGroups, seen.length)
    for (let at = 0; at < few; at++) {
      const group = seen[Math.floor((at * seen.length) / few)]?.uid ?? ''
      yield this.#bind(group, personUid(benchIssuer, subjects.few), boundRoles.indexOf('viewer'))
    }
  }

  *#makeBindings(): Generator<Made> {
    const { bindings, crowded: hot, roots } = this.#shape
    const before = this.#made
    yield* this.#bindPeople()
    const left = bindings - (this.#made - before)
    const crowded = this.#groups[roots]?.uid ?? ''
    for (let at = 0; at < left; at++) {
      const { uid, home } = this.#identityAt(at)
      // Uses another role in each round, because an identity can have a role on a group only once.
      if (at < hot) yield this.#bind(crowded, uid, 0)
      else {
        const turn = Math.floor(at / this.#identities.length)
        const place = this.#groups[home]
        const group = turn === 1 ? place?.children[0] : undefined
        yield this.#bind(group ?? place?.uid ?? '', uid, 1 + turn + (at % 2) * 2)
      }
    }
  }

  #identityAt(at: number): { uid: Uid; home: number } {
    const found = this.#identities[at % this.#identities.length]
    if (found === undefined) throw new RangeError('there are no identities')
    return found
  }
}
