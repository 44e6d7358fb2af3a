import { create, equals, fromJson, toJson } from '@bufbuild/protobuf'
import type { DescMessage, JsonObject, JsonValue, MessageInitShape } from '@bufbuild/protobuf'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { fieldOfKey, shapeJson } from '../../src/transport/http/json-shape.ts'
import { createJsonEncoders } from '../../src/transport/json-encode.ts'
import { methods, registry } from '../../src/base/schema/schema.ts'
import { HeadlessSessionSchema, WhoAmISchema } from '../../src/gen/taproot/auth/v1/auth_pb.ts'
import { IdentitySchema as IdentityV1Schema } from '../../src/gen/taproot/iam/v1/identities_pb.ts'
import { GroupSchema, ListGroupsResponseSchema, UpdateGroupRequestSchema } from '../../src/gen/taproot/iam/v2/groups_pb.ts'
import { GroupInviteSchema } from '../../src/gen/taproot/iam/v2/group_invites_pb.ts'
import { IdentitySchema } from '../../src/gen/taproot/iam/v2/identities_pb.ts'
import { RepoSchema as RepoV1Schema } from '../../src/gen/taproot/registry/v1/registry_pb.ts'
import { RepoSchema } from '../../src/gen/taproot/registry/v2/repos_pb.ts'
import { AdvisorySchema as AdvisoryV1Schema } from '../../src/gen/taproot/vulnerabilities/v1/advisories_pb.ts'
import { randomMessage } from './harness/random-message.ts'

const encoders = createJsonEncoders()

function encode<Desc extends DescMessage>(desc: Desc, init: MessageInitShape<Desc>): JsonObject {
  return JSON.parse(encoders(desc)(create(desc, init))) as JsonObject
}

const types = [...new Set(methods.flatMap((row) => [row.input, row.output]))]

describe('JSON encoding', () => {
  test.each(types.map((desc) => [desc.typeName, desc] as const))('%s is equal after writing and reading', (_, desc) => {
    fc.assert(
      fc.property(randomMessage(desc), (message) => {
        const json = JSON.parse(encoders(desc)(message)) as JsonValue
        expect(equals(desc, fromJson(desc, json, { registry }), message)).toBe(true)
      }),
      { numRuns: 30 },
    )
  })

  test('scalars, enums, lists and maps are always present, unset messages never', () => {
    expect(encode(GroupSchema, {})).toEqual({
      uid: '',
      name: '',
      description: '',
      resourceLimits: {},
      verified: false,
      kind: 'ORG_KIND_UNSPECIFIED',
      status: 'ORG_STATUS_UNSPECIFIED',
      etag: '',
    })
  })

  test('a message of version 1 has null for an unset message, but not for a member of a oneof or an optional field', () => {
    expect(encode(RepoV1Schema, {})).toMatchObject({ id: '', sync_config: null, customOverlay: null, createTime: null })
    expect(encode(IdentityV1Schema, {})).toEqual({ id: '', name: '', description: '', createdAt: null, updatedAt: null, lastSeen: null })
    expect(encode(AdvisoryV1Schema, {})).not.toHaveProperty('deletedAt')
    expect(encode(AdvisoryV1Schema, {})).toHaveProperty('createdAt', null)
    expect(encode(WhoAmISchema, {})).not.toHaveProperty('profile')
  })

  test.each([
    [0n, 0, '1970-01-01T00:00:00.000Z'],
    [1_790_000_000n, 120_000_000, '2026-09-21T14:13:20.120Z'],
    [1_790_000_000n, 999_999_999, '2026-09-21T14:13:20.999Z'],
    [-1n, 500_000_000, '1969-12-31T23:59:59.500Z'],
  ])('the time %s s and %s ns is %s', (seconds, nanos, text) => {
    expect(encode(GroupSchema, { createTime: { seconds, nanos } }).createTime).toBe(text)
  })

  test.each([
    [3600n, 0, '3600s'],
    [1n, 500_000_000, '1.500s'],
    [0n, 5, '0.000000005s'],
    [-1n, -5_000, '-1.000005s'],
  ])('the duration %s s and %s ns is %s', (seconds, nanos, text) => {
    expect(encode(GroupInviteSchema, { ttl: { seconds, nanos } }).ttl).toBe(text)
  })

  test('an unset oneof has no key, a set one has the key of its member', () => {
    expect(encode(IdentitySchema, {})).not.toHaveProperty('claimMatch')
    const identity = encode(IdentitySchema, { relationship: { case: 'claimMatch', value: { iss: { case: 'issuer', value: '' } } } })
    expect(identity.claimMatch).toEqual({ issuer: '', claims: {}, claimPatterns: {} })
  })

  test('a list is an envelope with items, total and page token', () => {
    expect(encode(ListGroupsResponseSchema, { totalCount: 0n })).toEqual({ groups: [], totalCount: '0', skipped: 0 })
    expect(encode(ListGroupsResponseSchema, { totalCount: 9_007_199_254_740_993n, nextPageToken: 't', skipped: 2 })).toEqual({
      groups: [],
      nextPageToken: 't',
      totalCount: '9007199254740993',
      skipped: 2,
    })
  })

  test('an unknown enum number is written as a number', () => {
    expect(encode(GroupSchema, { kind: 99 as never }).kind).toBe(99)
  })

  test('masks are in camel case, and syncConfig too', () => {
    expect(encode(UpdateGroupRequestSchema, { updateMask: { paths: ['resource_limits', 'name'] } }).updateMask).toBe('resourceLimits,name')
    expect(encode(RepoSchema, { syncConfig: {} })).toHaveProperty('syncConfig')
    expect(fieldOfKey(RepoSchema, 'sync_config')).toBe(fieldOfKey(RepoSchema, 'syncConfig'))
  })

  test('managedBy is written only if it is set', () => {
    expect(encode(GroupSchema, {})).not.toHaveProperty('managedBy')
    expect(encode(GroupSchema, { managedBy: 'c/ns/n' }).managedBy).toBe('c/ns/n')
  })

  test('keys and values are escaped', () => {
    expect(encode(GroupSchema, { name: '"\\\n\u2028', resourceLimits: { '"': 1 } })).toMatchObject({ name: '"\\\n\u2028', resourceLimits: { '"': 1 } })
  })
})

describe('the check of JSON before protobuf', () => {
  test.each(types.map((desc) => [desc.typeName, desc] as const))('%s: JSON written by protobuf-es is accepted unchanged', (_, desc) => {
    fc.assert(
      fc.property(randomMessage(desc), fc.boolean(), (message, useProtoFieldName) => {
        const json = toJson(desc, message, { registry, useProtoFieldName }) as JsonObject
        const shaped = shapeJson(desc, json, { strict: true })
        expect(shaped.violations).toEqual([])
        expect(equals(desc, fromJson(desc, shaped.json, { registry }), message)).toBe(true)
      }),
      { numRuns: 20 },
    )
  })

  test.each([
    ['', true],
    ['AA==', true],
    ['AA', true],
    ['_-8', true],
    ['A', false],
    ['hVk-5', false],
    ['A=A=', false],
    ['%', false],
  ])('bytes given as %j are valid: %s', (text, readable) => {
    const { json, violations } = shapeJson(HeadlessSessionSchema, { encryptedIdtoken: text }, { strict: false })
    expect(violations.length === 0).toBe(readable)
    expect(() => fromJson(HeadlessSessionSchema, json)).not.toThrow()
  })

  test('JSON without a violation can always be decoded', () => {
    fc.assert(
      fc.property(fc.constantFrom(...types), fc.infiniteStream(fc.jsonValue()), (desc, values) => {
        const keys = desc.fields.flatMap(({ name, jsonName }) => [name, jsonName])
        const json = Object.fromEntries(keys.map((key) => [key, values.next().value as JsonValue]))
        const shaped = shapeJson(desc, json, { strict: false })
        // Faults are dropped from the JSON, so the rest must be readable in every case.
        expect(() => fromJson(desc, shaped.json, { registry })).not.toThrow()
      }),
      { numRuns: 500 },
    )
  })
})
