import { clone, create, equals, type DescField, type Message } from '@bufbuild/protobuf'
import { reflect } from '@bufbuild/protobuf/reflect'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { capabilities } from '../../src/base/capability.ts'
import type { GroupInvite } from '../../src/gen/taproot/iam/v1/group_invites_pb.ts'
import type { Role } from '../../src/gen/taproot/iam/v1/roles_pb.ts'
import * as advisoryMaps from '../../src/v1/advisory-maps.ts'
import { OrderBy, type ListAdvisoriesRequest } from '../../src/gen/taproot/vulnerabilities/v1/advisories_pb.ts'
import type { FieldMap } from '../../src/v1/field-map.ts'
import * as maps from '../../src/v1/kinds.ts'
import * as libraryMaps from '../../src/v1/library-maps.ts'
import * as organisationMaps from '../../src/v1/organisation-maps.ts'
import * as registryMaps from '../../src/v1/registry-maps.ts'
import * as reportMaps from '../../src/v1/report-maps.ts'
import { randomMessage } from '../transport/harness/random-message.ts'

function isMap(value: object): value is FieldMap {
  return 'pathInV1' in value
}

/** All maps that the modules export, alone or as the parts of a method. */
const tables = Object.entries({
  ...maps,
  ...registryMaps,
  ...reportMaps,
  ...advisoryMaps,
  ...libraryMaps,
  ...organisationMaps,
  ...organisationMaps.scimMaps,
}).flatMap(([name, value]) =>
  isMap(value)
    ? [[name, value] as const]
    : Object.entries(value as object).flatMap(([part, map]: [string, unknown]) =>
        typeof map === 'object' && map !== null && isMap(map) ? [[`${name}, ${part}`, map] as const] : [],
      ),
)

/** All maps, also those of the fields in others. */
const allMaps = new Set<FieldMap>()
function collect(map: FieldMap): void {
  if (allMaps.has(map)) return
  allMaps.add(map)
  map.nested.forEach(collect)
}
for (const [, map] of tables) collect(map)

/** The fields with another name in version 2, from the documents of the wire contract: the name in version 2, and those in version 1. */
const renamed: Readonly<Record<string, string>> = {
  uid: 'id group parent_id',
  create_time: 'created_at accepted_at timestamp report_generation',
  update_time: 'updated_at last_updated',
  delete_time: 'deleted_at',
  expiration_time: 'expiration',
  last_seen_time: 'last_seen',
  grace_period_expiry_time: 'grace_period_expiry_date',
  start_time: 'from',
  end_time: 'to',
  parent: 'parent_id',
  artifact_id: 'id',
  digest: 'id',
  names: 'ids',
  group_uid: 'group_id',
  identity_uid: 'identity',
  identity_provider_uid: 'identity_provider_id identity_provider_uidp',
  repo_uid: 'repo_id',
  role_uid: 'role role_uidp',
  static_keys: 'static',
  provider_type: 'account_type',
  status: 'ready',
  architecture: 'arch',
  architectures: 'archs',
  requests: 'role_bindings',
  matches: 'vulnerability_matches',
  severities: 'severity',
  severity_level: 'severity',
  total_count: 'total_artifacts',
  subpackage: 'subpackage_name',
  component: 'component_name',
  review_state: 'status',
  event_review_states: 'event_statuses',
  legacy_advisory_id: 'legacyAdvisoryID',
  ...Object.fromEntries(['dates', 'epochs', 'referrers'].map((family) => [`include_${family}`, `exclude_${family}`])),
  ...Object.fromEntries(['artifact_architecture', 'artifact_name', 'artifact_type', 'component_location'].map((filter) => [`${filter}s`, filter])),
  ...Object.fromEntries(['component_name', 'component_type', 'event_author', 'event_reviewer', 'exclude_event_author'].map((filter) => [`${filter}s`, filter])),
  ...Object.fromEntries(
    [
      ...['advisories', 'artifacts', 'documents', 'eol_tags', 'events', 'external_group_role_mappings', 'resolved_vulns_reports', 'vuln_count_reports'],
      ...['vuln_reports', 'vulnerability_metadata'],
    ].map((list) => [list, 'items']),
  ),
}

/** Filters that only the code of a method maps. */
const ofMethods = ['id', 'group', 'parent', 'offset', 'page', 'page_size', 'include_upstream']

/** The other fields that a way to version 2 and back loses, by the messages of the map. Requests ignore them, and answers compute them or leave them empty. */
const lost: Readonly<Record<string, readonly string[]>> = {
  ArtifactVersion: ['malware_malicious', 'malware_scanned', 'source_type', 'upstream_published_date'],
  'AdvisoriesList and ListAdvisoriesResponse': ['id'],
  'Binding and RoleBinding': ['claim_match_issuer', 'claim_match_subject', 'email', 'email_unverified'],
  // Of the group and the role of a binding, version 2 has the uid, the name and the description.
  'Group and RoleBindingGroup': ['kind', 'resource_limits', 'status', 'verified'],
  'Role and RoleBindingRole': ['capabilities'],
  RoleBinding: ['group'],
  'RoleBinding and CreateRoleBindingRequest': ['group'],
  Repo: ['readme'],
  SyncConfig: ['sync_apks'],
  EolTag: ['main_package_version'],
  'ImageVulnReport and VulnReport': ['last_seen', 'raw_vuln_report', 'vulnerability_db_last_build_time'],
  'VulnerabilityMatch and VulnMatch': ['pkg', 'vulnerability'],
  VulnReport: ['vulnerabilities'],
  'Scanner and VulnScanner': ['name'],
  RawVulnReport: ['raw_report', 'raw_report_url'],
  VulnCountReport: ['crit_cve_ids', 'cve_ids', 'high_cve_ids', 'low_cve_ids', 'med_cve_ids', 'negligible_cve_ids', 'unknown_cve_ids'],
}

/** Returns the names of the messages of a map: one if they are the same. */
function nameOf({ v1, v2 }: FieldMap): string {
  return v1.name === v2.name ? v1.name : `${v1.name} and ${v2.name}`
}

/** Returns the fields of a message of version 1 that its map loses. */
function lostBy({ v1: { name }, computed }: FieldMap): string[] {
  return computed.filter((field) => !(/Request$/.test(name) && ofMethods.includes(field))).toSorted()
}

/** Values of enums with another name in version 2. */
const renamedValues: Readonly<Record<string, string>> = {
  JAVASCRIPT: 'ECOSYSTEM_NPM',
  // The orders of lists are texts in version 2. Withdrawn advisories are in no list.
  ...{ ID_ASC: 'UID_ASC', ID_DESC: 'UID_DESC', DELETED_AT_ASC: 'UID_ASC', DELETED_AT_DESC: 'UID_DESC' },
}

/** Returns the name of an enum's value in version 2, without the name of the enum. */
function valueName(name: string): string {
  return name.replaceAll(/(?<=[a-z])(?=[A-Z])/g, '_').toUpperCase()
}

/** Returns a message of version 1 in which only this field is set. */
function only({ v1 }: FieldMap, field: DescField, value: unknown): Message {
  const reflected = reflect(v1, create(v1))
  if (field.fieldKind === 'list') reflected.get(field).add(value)
  else if (field.fieldKind === 'enum') reflected.set(field, value)
  return reflected.message
}

/** Returns the names of the pairs of values that a map makes of the values of a field. */
function valuePairs(map: FieldMap, field: DescField): [name: string, inV2: string | undefined][] {
  const inV2 = map.v2.fields.find(({ name }) => map.pathInV1(name) === field.name)
  return (field.enum?.values ?? [])
    .filter(({ number }) => number !== 0)
    .map(({ name, number }) => {
      const there = reflect(map.v2, map.toV2(only(map, field, number)))
      const value = inV2?.fieldKind === 'list' ? there.get(inV2).get(0) : inV2 && there.get(inV2)
      return [name, inV2?.enum?.values.find((one) => one.number === value)?.name ?? String(value).replace(' ', '_').toUpperCase()]
    })
}

/** Returns the message without the fields that a map says it loses. */
function kept({ v1, computed, nested }: FieldMap, message: Message): Message {
  const reflected = reflect(v1, clone(v1, message))
  for (const field of v1.fields) {
    const inner = nested.get(field.name)
    if (computed.includes(field.name)) reflected.clear(field)
    else if (inner !== undefined && field.fieldKind === 'message' && reflected.isSet(field))
      reflected.set(field, reflect(inner.v1, kept(inner, reflected.get(field).message)))
    else if (inner !== undefined && field.fieldKind === 'list') {
      const list = reflected.get(field)
      // The items of a list with a map are messages.
      for (const [at, item] of [...list].entries()) list.set(at, reflect(inner.v1, kept(inner, (item as { readonly message: Message }).message)))
    }
  }
  return reflected.message
}

/** Returns the role with capabilities that version 2 knows. */
function withKnown(role: Role): Role {
  return { ...role, capabilities: capabilities.slice(0, role.capabilities.length).map(({ name }) => name) }
}

/** Messages with values that version 2 does not take as they are. */
const known: Readonly<Record<string, (message: Message) => Message>> = {
  // Version 2 has page sizes of 32 bits, and no order by the time of the withdrawal.
  'taproot.vulnerabilities.v1.ListAdvisoriesRequest': (message) => {
    const { pageSize, orderBy } = message as ListAdvisoriesRequest
    return { ...message, pageSize: BigInt.asIntN(8, pageSize) & 127n, orderBy: orderBy % OrderBy.DELETED_AT_ASC } as Message
  },
  'taproot.iam.v1.Role': (message) => withKnown(message as Role),
  ...Object.fromEntries(
    ['GroupInvite', 'StoredGroupInvite'].map((kind) => [
      `taproot.iam.v1.${kind}`,
      (message: Message) => {
        const { role } = message as GroupInvite
        return role === undefined ? message : ({ ...message, role: withKnown(role) } as Message)
      },
    ]),
  ),
}

/** Returns messages of version 1 that version 2 can have. */
function messagesOf({ v1 }: FieldMap): fc.Arbitrary<Message> {
  return randomMessage(v1).map((message) => known[v1.typeName]?.(message) ?? message)
}

describe('maps between the versions', () => {
  test.each(tables)('%s: a message of version 1 is the same after the way to version 2 and back', (_, map) => {
    fc.assert(
      fc.property(messagesOf(map), (message) => {
        expect(equals(map.v1, kept(map, map.toV1(map.toV2(message))), kept(map, message))).toBe(true)
      }),
    )
  })

  test('fields have the names in version 2 that the wire contract says', () => {
    const wrong = [...allMaps].flatMap((map) =>
      map.v2.fields
        .map(({ name }) => [map.pathInV1(name), name] as const)
        .filter(([inV1, name]) => inV1 !== name && renamed[name]?.split(' ').includes(inV1) !== true)
        .map(([inV1, name]) => `${map.v1.name}.${inV1} -> ${name}`),
    )
    // A request for a batch has a list of bindings in another list.
    expect(wrong).toEqual(['RoleBinding. -> role_binding'])
  })

  test('no other fields are lost', () => {
    const found = [...allMaps].map((map): [string, string[]] => [nameOf(map), lostBy(map)]).filter(([, fields]) => fields.length > 0)
    expect(found.toSorted()).toEqual(Object.entries(lost).toSorted())
  })

  test('values of enums have their names in version 2', () => {
    const fields = [...allMaps].flatMap((map) =>
      map.v1.fields.filter((field) => field.enum !== undefined && !map.computed.includes(field.name)).map((field) => ({ map, field })),
    )
    expect(fields.length).toBeGreaterThan(20)
    for (const { map, field } of fields)
      for (const [name, inV2] of valuePairs(map, field)) {
        const expected = renamedValues[name] ?? valueName(name)
        expect(inV2 === expected || inV2?.endsWith(`_${expected}`), `${map.v1.name}.${field.name}: ${name} -> ${String(inV2)}`).toBe(true)
      }
  })

  test.each(tables)('%s: no field of version 1 has a row without effect', (_, map) => {
    const changed = new Set<string>()
    for (const message of fc.sample(messagesOf(map), 200)) {
      const there = reflect(map.v2, map.toV2(message))
      for (const field of map.v2.fields) if (there.isSet(field)) changed.add(map.pathInV1(field.name))
    }
    expect([...changed].toSorted()).toEqual(
      map.v1.fields
        .map(({ name }) => name)
        .filter((name) => !map.computed.includes(name))
        .toSorted(),
    )
  })
})
