import type { JsonObject } from '@bufbuild/protobuf'
import fc from 'fast-check'
import { indexType, manifestOf } from '../registry/oci/oci-client.ts'

/** The values of a record, the same for both versions. Absent ones are the defaults. */
export type Values = Readonly<Record<string, Value>>

type Value = string | boolean | readonly string[]

/** A kind of record: its methods, and its values as random texts and as each version writes them. */
export interface BothKind {
  readonly plural: string
  readonly v1: {
    readonly create: string
    readonly parent: string
    readonly held: string
    readonly update: string
    readonly list: string
    readonly remove: string
  }
  readonly v2: { readonly kind: string; readonly held: string }
  readonly values: Readonly<Record<string, fc.Arbitrary<Value>>>
  /** Fields that every write in version 1 has, and every create. */
  readonly required: readonly string[]
  /** Fields that no update has. */
  readonly fixed?: readonly string[]
  /** Fields that an update in version 1 may leave out, which keeps their values. */
  readonly kept?: readonly string[]
  /** True if version 2 has no update: a create with the name of a record replaces its other values. */
  readonly moves?: true
  readonly toV1: (values: Values) => JsonObject
  readonly toV2: (values: Values) => JsonObject
}

const name = fc.stringMatching(/^[a-z0-9]{12}$/)
const description = fc.stringMatching(/^[a-z]{1,8}$/)
const same = (values: Values): JsonObject => ({ ...values }) as JsonObject

const capabilities = { 'groups.list': 'CAP_IAM_GROUPS_LIST', 'repo.list': 'CAP_REPO_LIST', 'tag.list': 'CAP_TAG_LIST' } as const
const tiers = { APPLICATION: 'CATALOG_TIER_APPLICATION', BASE: 'CATALOG_TIER_BASE', FIPS: 'CATALOG_TIER_FIPS' } as const

function service(of: string): Pick<BothKind['v1'], 'create' | 'update' | 'list' | 'remove'> {
  return { create: `${of}/Create`, update: `${of}/Update`, list: `${of}/List`, remove: `${of}/Delete` }
}

/** What tags point to: two indexes without images. */
export const targets = ['one', 'two'].map((title) => manifestOf({ schemaVersion: 2, mediaType: indexType, manifests: [], annotations: { title } }))

export const kinds: Readonly<Record<string, BothKind>> = {
  group: {
    plural: 'groups',
    v1: { ...service('Groups'), parent: 'parent', held: 'group' },
    v2: { kind: 'Group', held: 'group' },
    values: { name, description },
    required: ['name'],
    toV1: same,
    toV2: same,
  },
  role: {
    plural: 'roles',
    v1: { ...service('Roles'), parent: 'parentId', held: 'role' },
    v2: { kind: 'Role', held: 'role' },
    values: { name, description, capabilities: fc.subarray(Object.keys(capabilities), { minLength: 1 }) },
    required: ['name', 'capabilities'],
    toV1: same,
    toV2: ({ capabilities: held, ...values }) => ({
      ...same(values),
      ...(held === undefined ? {} : { capabilities: (held as readonly (keyof typeof capabilities)[]).map((one) => capabilities[one]) }), // their texts
    }),
  },
  identity: {
    plural: 'identities',
    v1: { ...service('Identities'), parent: 'parentId', held: 'identity' },
    v2: { kind: 'Identity', held: 'identity' },
    values: { name, description, subject: fc.stringMatching(/^[a-z]{3,9}$/) },
    required: ['name', 'subject'],
    toV1: withMatch,
    toV2: withMatch,
  },
  repo: {
    plural: 'repos',
    v1: {
      create: 'Registry/CreateRepo',
      update: 'Registry/UpdateRepo',
      list: 'Registry/ListRepos',
      remove: 'Registry/DeleteRepo',
      parent: 'parentId',
      held: 'repo',
    },
    v2: { kind: 'Repo', held: 'repo' },
    values: {
      name,
      description,
      catalogTier: fc.constantFrom(...Object.keys(tiers)),
      activeTags: fc.uniqueArray(fc.stringMatching(/^[a-z0-9]{1,5}$/), { maxLength: 3 }),
    },
    required: ['name'],
    toV1: same,
    toV2: ({ catalogTier, ...values }) => ({
      ...same(values),
      ...(catalogTier === undefined ? {} : { catalogTier: tiers[catalogTier as keyof typeof tiers] }), // one of the keys
    }),
  },
  tag: {
    plural: 'tags',
    v1: { create: 'Registry/CreateTag', update: 'Registry/UpdateTag', list: 'Registry/ListTags', remove: 'Registry/DeleteTag', parent: 'repoId', held: 'tag' },
    v2: { kind: 'Tag', held: 'tag' },
    values: {
      name,
      digest: fc.constantFrom(...targets.map(({ digest }) => digest)),
      deprecated: fc.boolean(),
      bundles: fc.subarray(['application', 'base', 'fips']),
    },
    required: ['name', 'digest', 'deprecated'],
    fixed: ['name'],
    kept: ['digest'],
    moves: true,
    toV1: same,
    toV2: same,
  },
}

export function kindOf(kind: string): BothKind {
  const found = kinds[kind]
  if (found === undefined) throw new Error(`no kind ${kind}`)
  return found
}

/** Returns the values of new records. */
export function valuesOf(kind: string): fc.Arbitrary<Values> {
  const { values, required } = kindOf(kind)
  return fc.record(values, { requiredKeys: [...required] })
}

/** Returns the values of updates, which have those that version 1 needs, and any of the others. */
export function changesOf(kind: string): fc.Arbitrary<Values> {
  const { values, required, fixed = [], kept = [] } = kindOf(kind)
  const changeable = Object.fromEntries(Object.entries(values).filter(([field]) => !fixed.includes(field)))
  return fc.record(changeable, { requiredKeys: required.filter((field) => !fixed.includes(field) && !kept.includes(field)) })
}

interface Update {
  readonly version: 'v1' | 'v2'
  readonly values: Values
}

/** Returns the values after an update. Version 1, and creates that move a record, replace all except the fixed and kept ones. */
export function updated(kind: string, state: Values, { version, values }: Update): Values {
  const { fixed = [], kept = [], moves = false } = kindOf(kind)
  const lasting =
    version === 'v2' && !moves ? state : Object.fromEntries(Object.entries(state).filter(([field]) => fixed.includes(field) || kept.includes(field)))
  return { ...lasting, ...values }
}

/** Returns the values that an update sends for a record with these values: a create that moves it names the kept ones too. */
export function sentValues(kind: string, before: Values, { version, values }: Update): Values {
  const { kept = [], moves = false } = kindOf(kind)
  if (version === 'v1' || !moves) return values
  return { ...Object.fromEntries(Object.entries(before).filter(([field]) => kept.includes(field))), ...values }
}

/** Returns the method and the request of an update. `before` are the values of the record when the update was made. */
export function updateCall(kind: string, { version, values }: Update, record: { id: string; parent: string; before: Values }): [string, JsonObject] {
  const { v1, v2, toV1, toV2, moves = false } = kindOf(kind)
  if (version === 'v1') return [v1.update, { id: record.id, ...toV1(values) }]
  if (moves) return [`Create${v2.kind}`, { parent: record.parent, [v2.held]: toV2(updated(kind, record.before, { version, values })) }]
  const change = toV2(values)
  return [`Update${v2.kind}`, { [v2.held]: { uid: record.id, ...change }, updateMask: Object.keys(change).join(',') }]
}

/** Returns the values of a record with the defaults of those that are not set. */
export function withDefaults(kind: string, values: Values): Values {
  const defaults: Values = { activeTags: [], bundles: [], deprecated: false }
  return Object.fromEntries(Object.keys(kindOf(kind).values).map((field) => [field, values[field] ?? defaults[field] ?? '']))
}

function withMatch({ subject, ...values }: Values): JsonObject {
  return { ...same(values), ...(subject === undefined ? {} : { claimMatch: { issuer: 'https://issuer.example', subject: String(subject) } }) }
}

/** Returns the values of a record in one form for both versions, with the defaults of those that are not set. */
export function inOneForm(kind: string, values: Values): string {
  return JSON.stringify(Object.values(withDefaults(kind, values)))
}

/** Returns the values that an answer has. */
export function valuesIn(record: JsonObject): Values {
  const { claimMatch, catalogTier, capabilities: held, ...plain } = record
  const names = Object.entries(capabilities).flatMap(([name, number]) => [[name, name] as const, [number, name] as const])
  const tier = String(catalogTier ?? '').replace('CATALOG_TIER_', '')
  return {
    ...(plain as Values), // the fields of a kind are texts and lists of them
    ...(claimMatch === undefined || claimMatch === null ? {} : { subject: String((claimMatch as JsonObject)['subject']) }), // of an identity
    ...(Object.hasOwn(tiers, tier) ? { catalogTier: tier } : {}),
    ...(Array.isArray(held) ? { capabilities: held.map((one) => new Map<string, string>(names).get(String(one)) ?? String(one)) } : {}),
  }
}
