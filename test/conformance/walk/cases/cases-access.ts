import type { JsonObject } from '@bufbuild/protobuf'
import { long, longUid } from '../bad-fields.ts'
import { makeMember } from '../../../support/test-server.ts'
import type { BadInput, MethodCase } from './method-case.ts'
import { missingSibling, type World } from '../world.ts'

function withValue(field: string, value: JsonObject[string] | ((world: World) => Promise<string> | string)): NonNullable<BadInput['request']> {
  return async (valid, world) => ({ ...valid, [field]: typeof value === 'function' ? await value(world) : value })
}

/** Unknown names of capabilities. */
const badCapabilities: readonly BadInput[] = [
  { what: 'an unknown capability', request: withValue('capability', 'groups.paint'), fields: ['capability'] },
  { what: 'a capability in capitals', request: withValue('capability', 'GROUPS.LIST'), fields: ['capability'] },
  { what: 'the capability that is none', request: withValue('capability', 'CAP_UNSPECIFIED'), fields: ['capability'] },
  { what: 'a member of every object for a capability', request: withValue('capability', 'constructor'), fields: ['capability'] },
  { what: 'a capability by its number', request: withValue('capability', '103'), fields: ['capability'] },
  { what: 'too long a capability', breaks: ['capability:string.max_len'], request: withValue('capability', long(256)), fields: ['capability'] },
]

/** AccessService. The subject may be a record of any kind: here it is a role of the organisation. */
export const accessCases: Readonly<Record<string, MethodCase>> = {
  'AccessService/Explain': {
    request: (world): JsonObject => ({ identity: world.owner, capability: 'roles.list', resource: world.plainRole }),
    badInputs: [
      ...badCapabilities,
      { what: 'no capability', breaks: ['capability:required'], request: withValue('capability', ''), fields: ['capability'] },
      { what: 'no identity', breaks: ['identity:required'], request: withValue('identity', ''), fields: ['identity'] },
      { what: 'an identity that is no uid', breaks: ['identity:string.pattern'], request: withValue('identity', 'ann'), fields: ['identity'] },
      { what: 'an identity longer than any uid', breaks: ['identity:string.max_len'], request: withValue('identity', longUid), fields: ['identity'] },
      { what: 'an identity that is missing', request: withValue('identity', (world) => missingSibling(world.owner)), code: 5 },
      { what: 'an identity of another tenant', request: withValue('identity', (world) => world.other.owner), code: 5 },
      {
        what: 'an identity without a binding here, for a caller who may not read it',
        request: withValue('identity', async (world) => (await makeMember(world.server, world.group)).uid),
        code: 5,
      },
      { what: 'a group for an identity', request: withValue('identity', (world) => world.subgroup), code: 5 },
    ],
  },
  'AccessService/ListAccess': {
    request: (world): JsonObject => ({ resource: world.plainRole, capability: 'CAP_IAM_ROLES_LIST', orderBy: 'created_at desc', pageSize: 200 }),
    badInputs: badCapabilities,
  },
  'AccessService/TestCapabilities': {
    request: (world): JsonObject => ({ resource: world.plainRole, capabilities: ['roles.list', 'CAP_IAM_ROLES_UPDATE'] }),
    badInputs: [
      { what: 'an unknown capability', request: withValue('capabilities', ['roles.list', 'groups.paint']), fields: ['capabilities'] },
      { what: 'an empty name of a capability', only: 'grpc', request: withValue('capabilities', ['']), fields: ['capabilities'] },
      {
        what: 'too many capabilities',
        breaks: ['capabilities:repeated.max_items'],
        request: withValue(
          'capabilities',
          Array.from({ length: 101 }, () => 'roles.list'),
        ),
        fields: ['capabilities'],
      },
      {
        what: 'too long a capability',
        breaks: ['capabilities[]:string.max_len'],
        request: withValue('capabilities', [long(256)]),
        fields: ['capabilities'],
      },
      { what: 'no resource', breaks: ['resource:required'], request: withValue('resource', ''), fields: ['resource'] },
      { what: 'a resource that is no uid', breaks: ['resource:string.pattern'], request: withValue('resource', 'acme'), fields: ['resource'] },
      { what: 'a resource longer than any uid', breaks: ['resource:string.max_len'], request: withValue('resource', longUid), fields: ['resource'] },
    ],
  },
}

/** A filter that is longer than any text that it could find. */
const tooLong = (field: string): BadInput => ({
  what: `too long a filter by ${field}`,
  breaks: [`${field}:string.max_len`],
  request: (valid) => ({ ...valid, [field]: long(256) }),
  fields: [field],
})

/** AuditService. */
export const auditCases: Readonly<Record<string, MethodCase>> = {
  'AuditService/ListAuditEvents': {
    request: (world): JsonObject => ({ uidp: { descendantsOf: world.group }, outcome: 'DONE', orderBy: 'time asc', pageSize: 1 }),
    badInputs: [
      ...['actor', 'resource', 'capability', 'method'].map(tooLong),
      {
        what: 'an outcome that does not exist',
        only: 'grpc',
        breaks: ['outcome:enum.defined_only'],
        request: (valid) => ({ ...valid, outcome: 9 }),
        fields: ['outcome'],
      },
      { what: 'the name of no outcome', only: 'rest', request: (valid) => ({ ...valid, outcome: 'LOST' }), fields: ['outcome'] },
      { what: 'a negative page size', breaks: ['page_size:int32.gte'], request: (valid) => ({ ...valid, pageSize: -1 }), fields: ['page_size'] },
      {
        what: 'too long a page token',
        breaks: ['page_token:string.max_len'],
        request: (valid) => ({ ...valid, pageToken: long(4097) }),
        fields: ['page_token'],
      },
      { what: 'a page token of another list', request: (valid) => ({ ...valid, pageToken: 'nonsense' }), fields: ['page_token'] },
      { what: 'too long an order', breaks: ['order_by:string.max_len'], request: (valid) => ({ ...valid, orderBy: long(256) }), fields: ['order_by'] },
      { what: 'an order that events do not have', request: (valid) => ({ ...valid, orderBy: 'name' }), fields: ['order_by'] },
      { what: 'a negative skip', breaks: ['skip:int32.gte'], request: (valid) => ({ ...valid, skip: -1 }), fields: ['skip'] },
      { what: 'a filter that events do not have', request: (valid) => ({ ...valid, uidp: { inRoot: true } }), fields: ['uidp'] },
      { what: 'a place that is no uid', request: (valid) => ({ ...valid, uidp: { descendantsOf: 'acme' } }), fields: ['uidp.descendants_of'] },
    ],
  },
}
