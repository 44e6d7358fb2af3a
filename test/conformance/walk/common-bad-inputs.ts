import type { JsonObject } from '@bufbuild/protobuf'
import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire'
import type { MethodRow } from '../../../src/base/schema/method.ts'
import { unservedRoutes } from '../../../src/v1/index.ts'
import { long, longUid } from './bad-fields.ts'
import { camelCase, effectOf, isForgiving, movedTo, placeIn, placeOf, type BadInput, type MethodCase } from './cases/method-case.ts'
import { isMapped } from '../../support/api-clients.ts'

/** Returns a message of little more than `length` bytes whose only field is unknown to every type: field 2000, a text. */
function hugeMessage(length: number): Uint8Array {
  return new BinaryWriter().tag(2000, WireType.LengthDelimited).string(long(length)).finish()
}

/** Bad inputs of every method. */
function everywhere({ maxRequestBytes }: MethodRow): readonly BadInput[] {
  return [
    { what: 'validateOnly that is neither true nor false', only: 'rest', raw: { query: { validateOnly: 'maybe' } }, fields: ['validate_only'] },
    { what: 'validate-only that is neither true nor false', only: 'grpc', raw: { metadata: { 'validate-only': 'maybe' } }, fields: ['validate_only'] },
    // Field 1 announces more bytes than there are.
    { what: 'bytes that are no message', only: 'grpc', raw: { bytes: Uint8Array.of(0x0a, 0x7f, 0x61) }, fields: ['body'] },
    { what: 'a message over its limit', only: 'grpc', raw: { bytes: hugeMessage(maxRequestBytes) }, fields: ['body'] },
  ]
}

/** Bad inputs of every REST method of version 2: unknown names, which methods of version 1 ignore. */
function unknowns({ service, http, input }: MethodRow): readonly BadInput[] {
  if (!service.includes('.v2.')) return []
  const hasPlace = input.fields.some(({ name }) => name === 'uidp')
  const places = ['uidp.descendants_of', 'uidp.children_of', 'uidp.ancestors_of', 'uidp.in_root', 'uidp.ids']
  return [
    { what: 'an unknown query parameter', only: 'rest', raw: { query: { colour: 'red' } }, fields: ['colour'] },
    { what: 'an unknown query parameter without a value', only: 'rest', raw: { query: { colour: '' } }, fields: ['colour'] },
    ...(http[0]?.body === '' ? [] : [{ what: 'an unknown key in the body', only: 'rest', raw: { body: '{"colour":"red"}' }, fields: ['colour'] } as const]),
    ...(hasPlace ? places : []).map((name) => {
      const raw = { query: { [camelCase(name)]: '' } }
      return { what: `an empty ${name}`, only: 'rest', raw, fields: [name] } as const
    }),
  ]
}

/** Bad inputs of every method with a REST body. */
function bodies({ maxRequestBytes, http, input }: MethodRow): readonly BadInput[] {
  const isList = input.fields.some((field) => field.name === http[0]?.body && field.fieldKind === 'list')
  const tooLarge = JSON.stringify({ description: long(maxRequestBytes) })
  return [
    { what: 'malformed JSON', only: 'rest', raw: { body: '{"name":' }, fields: ['body'], httpStatus: 400 },
    { what: isList ? 'an object for a body' : 'a list for a body', only: 'rest', raw: { body: isList ? '{}' : '[]' }, fields: ['body'], httpStatus: 400 },
    { what: 'a text for a body', only: 'rest', raw: { body: '"text"' }, fields: ['body'], httpStatus: 400 },
    { what: 'another content type', only: 'rest', raw: { body: 'name: x', contentType: 'application/yaml' }, fields: ['body'], httpStatus: 415 },
    { what: 'a body over its limit', only: 'rest', raw: { body: tooLarge }, fields: ['body'], httpStatus: 413 },
    { what: 'a body that nests too deep', only: 'rest', raw: { body: `{"x":${'['.repeat(64)}${']'.repeat(64)}}` }, fields: ['body'], httpStatus: 400 },
  ]
}

function withField(name: string, value: JsonObject[string]): (valid: JsonObject) => JsonObject {
  return (valid) => ({ ...valid, [name]: value })
}

function withUidp(uidp: JsonObject): (valid: JsonObject) => JsonObject {
  return (valid) => ({ ...valid, uidp })
}

/** Bad inputs of every list. */
const lists: readonly BadInput[] = [
  { what: 'a negative page size', breaks: ['page_size:int32.gte'], request: withField('pageSize', -1), fields: ['page_size'] },
  { what: 'a page size that is no number', only: 'rest', request: withField('pageSize', 'many'), fields: ['page_size'] },
  { what: 'a page size with a fraction', only: 'rest', request: withField('pageSize', 1.5), fields: ['page_size'] },
  { what: 'a negative skip', breaks: ['skip:int32.gte'], request: withField('skip', -1), fields: ['skip'] },
  { what: 'a skip beyond 32 bits', only: 'rest', request: withField('skip', 4_294_967_296), fields: ['skip'] },
  { what: 'an order by an unknown field', request: withField('orderBy', 'colour'), fields: ['order_by'] },
  { what: 'an order with an unknown direction', request: withField('orderBy', 'uid upwards'), fields: ['order_by'] },
  { what: 'an order that is too long', breaks: ['order_by:string.max_len'], request: withField('orderBy', long(256)), fields: ['order_by'] },
  { what: 'a page token that is none', request: withField('pageToken', 'garbage'), fields: ['page_token'] },
  { what: 'a page token that is too long', breaks: ['page_token:string.max_len'], request: withField('pageToken', long(4097)), fields: ['page_token'] },
]

/** Bad inputs of every list with a filter by place. */
const placedLists: readonly BadInput[] = [
  {
    what: 'descendants of too long a text',
    breaks: ['uidp.descendants_of:string.max_len'],
    request: withUidp({ descendantsOf: long(256) }),
    fields: ['uidp.descendants_of'],
  },
  {
    what: 'children of too long a text',
    breaks: ['uidp.children_of:string.max_len'],
    request: withUidp({ childrenOf: long(256) }),
    fields: ['uidp.children_of'],
  },
  {
    what: 'ancestors of too long a text',
    breaks: ['uidp.ancestors_of:string.max_len'],
    request: withUidp({ ancestorsOf: long(256) }),
    fields: ['uidp.ancestors_of'],
  },
  { what: 'a uid that is too long', breaks: ['uidp.ids[]:string.max_len'], request: withUidp({ ids: [long(256)] }), fields: ['uidp.ids'] },
  {
    what: 'more uids than 1000',
    breaks: ['uidp.ids:repeated.max_items'],
    request: withUidp({ ids: Array.from({ length: 1001 }, () => 'a') }),
    fields: ['uidp.ids'],
  },
  { what: 'an in_root that is neither true nor false', only: 'rest', request: withUidp({ inRoot: 'maybe' }), fields: ['uidp.in_root'] },
]

/** Returns whether a path without the uid matches another method or none. The uid is part of a resource or of a deletion, or the path continues after it. */
function isRouted(method: MethodRow, place: readonly string[]): boolean {
  const { verb, template = '' } = method.http[0] ?? {}
  const path = template.replace(/\/\{.*/, '')
  const isUnserved = unservedRoutes.some((route) => route.verb === verb && route.template === path)
  return effectOf(method) === 'delete' || verb === 'PUT' || place.length > 1 || /\}[/:]/.test(template) || isUnserved
}

/** Bad inputs of a method whose request names one resource by its uid. */
function places(method: MethodRow): BadInput[] {
  const place = placeOf(method)
  const field = place?.at(-1)
  if (place === undefined || field === undefined) return []
  const at =
    (uid: string) =>
    (valid: JsonObject): JsonObject =>
      movedTo(method, valid, uid)
  const malformed: BadInput[] = isForgiving(method)
    ? []
    : [
        { what: `a ${field} that is no uid`, request: at('not-a-uid'), code: 5 },
        { what: `a ${field} in capitals`, request: (valid) => movedTo(method, valid, placeIn(method, valid).toUpperCase().replace(/^\d/, 'A')), code: 5 },
        { what: `a ${field} with an empty segment`, request: at(`${'a'.repeat(40)}//${'b'.repeat(16)}`), code: 5 },
        // The maximum length of a parent that may be a name differs.
        ...(method.scope === 'unscoped' && effectOf(method) === 'create' ? [] : [{ what: `a ${field} longer than any`, request: at(longUid), code: 5 }]),
      ]
  // Over REST a GET without uid is the list, and CreateGroup without a parent creates an organisation.
  if (method.scope !== 'scoped' || effectOf(method) === 'get') return malformed
  const breaks = place.length === 1 ? [`${field}:required`] : [`${place[0] ?? ''}:required`]
  return [
    ...malformed,
    {
      what: `no ${field}`,
      breaks,
      request: place.length === 1 ? at('') : () => ({}),
      fields: [field],
      ...(isRouted(method, place) ? { only: 'grpc' } : {}),
    },
  ]
}

/** Bad inputs of every update. */
function updates(method: MethodRow): BadInput[] {
  const resource = camelCase(method.scopePath[0] ?? '')
  return [
    { what: 'a mask with an unknown path', request: (valid) => ({ ...valid, updateMask: 'colour' }), fields: ['update_mask'] },
    { what: 'a mask with an unknown path below a field', request: (valid) => ({ ...valid, updateMask: 'etag.colour' }), fields: ['update_mask'] },
    {
      what: 'an unknown key in a whole replacement',
      only: 'rest',
      request: (valid) => ({ ...valid, updateMask: '*', [resource]: { ...(valid[resource] as JsonObject), colour: 'red' } }),
      fields: ['colour'],
    },
    { what: 'a stale If-Match', options: { ifMatch: '0123456789abcdef' }, code: 10 },
    {
      what: 'a stale etag in the body',
      request: (valid) => ({ ...valid, [resource]: { ...(valid[resource] as JsonObject), etag: '0123456789abcdef' } }),
      code: 10,
    },
  ]
}

const staleEtags: readonly BadInput[] = [{ what: 'a stale If-Match', options: { ifMatch: '0123456789abcdef' }, code: 10 }]

/** Returns all bad inputs of a method: those of its row and those that follow from its form. */
export function badInputsOf(method: MethodRow, row: MethodCase): readonly BadInput[] {
  const hasBody = method.http[0]?.body !== ''
  return [
    ...everywhere(method),
    ...unknowns(method),
    ...(hasBody ? bodies(method) : []),
    // ListAccess belongs to no kind, and has pages like a list. Requests of version 1 have no constraints of their own.
    ...(!isMapped(method) && method.input.fields.some(({ name }) => name === 'order_by') ? lists : []),
    ...(['list', 'custom'].includes(method.verb) && method.input.fields.some(({ name }) => name === 'uidp') ? placedLists : []),
    ...places(method),
    ...(method.verb === 'update' ? updates(method) : []),
    ...(method.verb === 'delete' || (isMapped(method) && ['update', 'delete'].includes(effectOf(method))) ? staleEtags : []),
    ...row.badInputs,
  ]
}
