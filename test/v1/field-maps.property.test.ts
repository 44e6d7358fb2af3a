import { clone, equals, type Message } from '@bufbuild/protobuf'
import { reflect } from '@bufbuild/protobuf/reflect'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { capabilities } from '../../src/base/capability.ts'
import type { Role } from '../../src/gen/taproot/iam/v1/roles_pb.ts'
import type { FieldMap } from '../../src/v1/field-map.ts'
import * as maps from '../../src/v1/kinds.ts'
import * as registryMaps from '../../src/v1/registry-maps.ts'
import { randomMessage } from '../transport/harness/random-message.ts'

const tables = Object.entries({ ...maps, ...registryMaps }).filter((entry): entry is [string, FieldMap] => 'pathInV1' in entry[1])

/** Returns the message without the fields that a map says it loses. */
function kept({ v1, computed, nested }: FieldMap, message: Message): Message {
  const reflected = reflect(v1, clone(v1, message))
  for (const field of v1.fields) {
    const inner = nested.get(field.name)
    if (computed.includes(field.name)) reflected.clear(field)
    else if (inner !== undefined && field.fieldKind === 'message' && reflected.isSet(field))
      reflected.set(field, reflect(inner.v1, kept(inner, reflected.get(field).message)))
  }
  return reflected.message
}

/** Values that version 2 knows, for fields that it does not take as they are. */
const known: Readonly<Record<string, (message: Message) => Message>> = {
  'taproot.iam.v1.Role': (message) =>
    ({ ...message, capabilities: capabilities.slice(0, (message as Role).capabilities.length).map(({ name }) => name) }) as Message,
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
