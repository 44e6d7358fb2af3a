import type { JsonObject } from '@bufbuild/protobuf'
import { long } from '../bad-fields.ts'
import type { BadInput, MethodCase } from './method-case.ts'

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
