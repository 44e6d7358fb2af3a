import { clone, equals, type Message } from '@bufbuild/protobuf'
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
