/** Generates a platform of any size for measurements: 5 % groups, 35 % identities, 60 % role bindings, the same in every run. */
import { create } from '@bufbuild/protobuf'
import { builtInRoles } from '../src/base/roles.ts'
import { trustedUid } from '../src/base/uid.ts'
import { GroupSchema } from '../src/gen/taproot/iam/v2/groups_pb.ts'
import { IdentitySchema } from '../src/gen/taproot/iam/v2/identities_pb.ts'
import { RoleBindingSchema } from '../src/gen/taproot/iam/v2/role_bindings_pb.ts'
import { indexKeysOf } from '../src/engine/change-set.ts'
import { kinds } from '../src/domains/kinds.ts'
import { envelopeBytes, envelopeOf } from '../src/engine/record-codec.ts'
import type { Resource } from '../src/cache/records/cached-record.ts'
import { recordKey } from '../src/store/keys.ts'

/** A stored record, and the further keys that are written with it. */
export interface StoredRecord {
  readonly kind: string
  readonly uid: string
  readonly key: string
  readonly value: Uint8Array
  readonly indexKeys: readonly string[]
}

/** Returns a function for pseudorandom numbers below `bound`, the same in every run (mulberry32). */
export function createNumbers(seed: number): (bound: number) => number {
  let state = seed | 0
  return (bound) => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return Math.floor((((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32) * bound)
  }
}

const groupsPerRoot = 250
const firstMs = Date.UTC(2026, 0, 1)

/** Generates `count` records. Parents and identities come before the records that refer to them. */
export function* generateRecords(count: number): Generator<StoredRecord> {
  const numbers = createNumbers(7)
  const hex = (digits: number): string => {
    let text = ''
    while (text.length < digits)
      text += numbers(2 ** 32)
        .toString(16)
        .padStart(8, '0')
    return text.slice(0, digits)
  }
  const pick = <E>(list: readonly E[]): E => list[numbers(list.length)] as E
  const record = (kind: string, uid: string, message: unknown, indexed: boolean): StoredRecord => {
    const found = kinds.get(kind)
    if (found === undefined) throw new TypeError(`unknown kind ${kind}`)
    const resource = message as Resource
    const createMs = firstMs + numbers(20_000_000_000)
    const facts = { etag: hex(16), createMs, updateMs: createMs + (numbers(4) === 0 ? numbers(1_000_000_000) : 0), managedBy: '' }
    const value = envelopeBytes(envelopeOf(found.desc, resource, facts))
    resource.uid = uid
    return { kind, uid, key: recordKey(kind, trustedUid(uid)), value, indexKeys: indexed ? indexKeysOf(found, trustedUid(uid), resource) : [] }
  }
  const groups: string[][] = []
  for (let made = 0; made < count * 0.05; made++) {
    const isRoot = made % groupsPerRoot === 0
    if (isRoot) groups.push([])
    const organisation = groups.at(-1) ?? []
    const above = isRoot ? '' : `${organisation[Math.floor(numbers(organisation.length) / 3)] ?? ''}/`
    const uid = `${above}${hex(isRoot ? 40 : 16)}`
    organisation.push(uid)
    yield record('Group', uid, create(GroupSchema, { name: `team-${made}`, description: `Team number ${made} of this organisation` }), true)
  }
  const identities = groups.map((): string[] => [])
  for (let made = 0; made < count * 0.35; made++) {
    const at = numbers(groups.length)
    const uid = `${pick(groups[at] ?? [])}/${hex(16)}`
    identities[at]?.push(uid)
    const subject = `repo:organisation-${at}/repository-${made}:ref:refs/heads/main`
    const match = { iss: { case: 'issuer', value: 'https://token.actions.example.com' }, sub: { case: 'subject', value: subject } } as const
    yield record(
      'Identity',
      uid,
      create(IdentitySchema, { name: `robot-${made}`, description: `Builds repository ${made}`, relationship: { case: 'claimMatch', value: match } }),
      true,
    )
  }
  const roles = builtInRoles.map((role) => role.uid)
  const owned = groups.map((organisation, at) => ({ organisation, identities: identities[at] ?? [] })).filter((one) => one.identities.length > 0)
  for (let made = 0; made < count * 0.6; made++) {
    const one = pick(owned)
    const uid = `${pick(one.organisation)}/${hex(16)}`
    yield record('RoleBinding', uid, create(RoleBindingSchema, { identityUid: pick(one.identities), roleUid: pick(roles) }), true)
  }
}
