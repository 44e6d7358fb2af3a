import type { JsonObject } from '@bufbuild/protobuf'
import { inCreate, inUpdate, long, type BadField } from '../bad-fields.ts'
import type { MethodCase } from './method-case.ts'
import { made, plainCapability, type World } from '../world.ts'

const groupEvents = 'dev.taproot.api.iam.group.'
const sink = 'https://hooks.example.com/taproot'

const badSubscription: readonly BadField[] = [
  { what: 'no sink', breaks: ['sink:required'], clear: ['sink'] },
  { what: 'a sink over http', breaks: ['sink:cel'], set: { sink: 'http://hooks.example.com' } },
  { what: 'a sink with a space', set: { sink: 'https://hooks.example.com/a b' }, fields: ['sink'] },
  { what: 'a sink longer than 2048 characters', breaks: ['sink:string.max_len'], set: { sink: `https://hooks.example.com/${long(2048)}` } },
  { what: 'a sink with a user', set: { sink: 'https://me:secret@hooks.example.com' }, fields: ['sink'] },
  { what: 'a sink with a fragment', set: { sink: 'https://hooks.example.com/#here' }, fields: ['sink'] },
  { what: 'a sink with a control character', set: { sink: 'https://hooks.example.com/\u001b[2J' }, fields: ['sink'] },
  { what: 'a sink at port 0', set: { sink: 'https://hooks.example.com:0/' }, fields: ['sink'] },
  { what: 'a sink whose name has an empty label', set: { sink: 'https://hooks..example.com/' }, fields: ['sink'] },
  { what: 'a sink whose name is too long', set: { sink: `https://${'a.'.repeat(127)}example.com/` }, fields: ['sink'] },
  { what: 'a sink at a private address', set: { sink: 'https://10.0.0.1/' }, fields: ['sink'] },
  { what: 'a sink at the loopback address', set: { sink: 'https://[::1]/' }, fields: ['sink'] },
  { what: 'a sink at a private name', set: { sink: 'https://hooks.internal/' }, fields: ['sink'] },
  { what: 'a sink at a metadata service', set: { sink: 'https://metadata.google.internal/' }, fields: ['sink'] },
  { what: 'a type that no event has', set: { types: ['dev.taproot.api.iam.grup.'] }, fields: ['types'] },
  { what: 'an empty type', breaks: ['types[]:string.min_len'], set: { types: [''] }, fields: ['types'] },
  { what: 'a type longer than 255 characters', breaks: ['types[]:string.max_len'], set: { types: [long(256)] }, fields: ['types'] },
  { what: 'a type twice', breaks: ['types:repeated.unique'], set: { types: [groupEvents, groupEvents] } },
  {
    what: 'more than 64 types',
    breaks: ['types:repeated.max_items'],
    set: { types: Array.from({ length: 65 }, (_, at) => `${groupEvents}${at}`) },
    fields: ['types'],
  },
  { what: 'a text for types', only: 'rest', set: { types: groupEvents }, fields: ['types'] },
  { what: 'a signing whose number is unknown', breaks: ['signing:enum.defined_only'], set: { signing: 99 } },
  { what: 'a signing whose name is unknown', only: 'rest', set: { signing: 'NONE' }, fields: ['signing'] },
  { what: 'a text for a flag', only: 'rest', set: { ordered: 'yes' }, fields: ['ordered'] },
  { what: 'types whose records the caller may not list', set: { types: ['dev.taproot.api.platform.registry.'] }, code: 7 },
  { what: 'all types, which need more than the caller holds', set: { types: [] }, code: 7 },
]

function newSubscription(world: World, parent = world.group): Promise<string> {
  return made(world, 'CreateSubscription', { parent, subscription: { sink, types: [groupEvents] } })
}

const byUid: Pick<MethodCase, 'request' | 'badInputs'> = {
  request: async (world): Promise<JsonObject> => ({ uid: await newSubscription(world) }),
  badInputs: [],
}

/** Filters and cursors of events that are refused. */
const badEventFilters: MethodCase['badInputs'] = [
  { what: 'a type that no event has', request: (valid) => ({ ...valid, types: ['dev.taproot.api.iam.grup.'] }), fields: ['types'] },
  { what: 'an empty type', breaks: ['types[]:string.min_len'], only: 'grpc', request: (valid) => ({ ...valid, types: [''] }), fields: ['types'] },
  {
    what: 'a type longer than 255 characters',
    breaks: ['types[]:string.max_len'],
    request: (valid) => ({ ...valid, types: [long(256)] }),
    fields: ['types'],
  },
  { what: 'a type twice', breaks: ['types:repeated.unique'], request: (valid) => ({ ...valid, types: [groupEvents, groupEvents] }), fields: ['types'] },
  {
    what: 'more than 64 types',
    breaks: ['types:repeated.max_items'],
    request: (valid) => ({ ...valid, types: Array.from({ length: 65 }, (_, at) => `${groupEvents}${at}`) }),
    fields: ['types'],
  },
  { what: 'a cursor that is too long', breaks: ['cursor:string.max_len'], request: (valid) => ({ ...valid, cursor: long(4097) }), fields: ['cursor'] },
  { what: 'a cursor of something else', request: (valid) => ({ ...valid, cursor: 'nonsense' }), fields: ['cursor'] },
  { what: 'a filter that events do not have', request: (valid) => ({ ...valid, uidp: { inRoot: true } }), fields: ['uidp'] },
]

/** SubscriptionsService and EventsService. */
export const subscriptionCases: Readonly<Record<string, MethodCase>> = {
  'SubscriptionsService/GetSubscription': byUid,
  'SubscriptionsService/DeleteSubscription': byUid,
  'SubscriptionsService/PauseSubscription': byUid,
  'SubscriptionsService/ResumeSubscription': byUid,
  'SubscriptionsService/TestSubscription': byUid,
  'SubscriptionsService/ListDeliveries': {
    ...byUid,
    badInputs: [
      { what: 'a negative page size', breaks: ['page_size:int32.gte'], request: (valid) => ({ ...valid, pageSize: -1 }), fields: ['page_size'] },
      {
        what: 'a page token that is too long',
        breaks: ['page_token:string.max_len'],
        request: (valid) => ({ ...valid, pageToken: long(4097) }),
        fields: ['page_token'],
      },
      { what: 'a page token of another list', request: (valid) => ({ ...valid, pageToken: 'nonsense' }), fields: ['page_token'] },
      { what: 'a negative skip', breaks: ['skip:int32.gte'], request: (valid) => ({ ...valid, skip: -1 }), fields: ['skip'] },
      { what: 'a state that does not exist', only: 'rest', request: (valid) => ({ ...valid, state: 'LOST' }), fields: ['state'] },
    ],
  },
  'SubscriptionsService/RedeliverEvents': {
    ...byUid,
    badInputs: [
      {
        what: 'an event id that is too long',
        breaks: ['event_id:string.max_len'],
        request: (valid) => ({ ...valid, eventId: long(65) }),
        fields: ['event_id'],
      },
      { what: 'the id of no failed delivery', request: (valid) => ({ ...valid, eventId: 'none' }), code: 5 },
    ],
  },
  'SubscriptionsService/RotateSubscriptionSecret': {
    request: async (world): Promise<JsonObject> => ({
      uid: await made(world, 'CreateSubscription', { parent: world.group, subscription: { sink, types: [groupEvents], signing: 'STANDARD_WEBHOOKS' } }),
    }),
    badInputs: [
      { what: 'a negative overlap', breaks: ['overlap:duration.gte'], request: (valid) => ({ ...valid, overlap: '-1s' }), fields: ['overlap'] },
      { what: 'an overlap of more than a week', breaks: ['overlap:duration.lte'], request: (valid) => ({ ...valid, overlap: '604801s' }), fields: ['overlap'] },
      { what: 'a subscription without a secret', request: async (_valid, world) => ({ uid: await newSubscription(world) }), code: 9 },
    ],
  },
  'SubscriptionsService/ReplayEvents': {
    request: async (world): Promise<JsonObject> => ({ uid: await newSubscription(world), fromTime: '2026-01-01T00:00:00.000Z' }),
    badInputs: [
      { what: 'no start', breaks: ['from:oneof.required'], request: ({ uid = '' }) => ({ uid }), fields: ['from_time'] },
      { what: 'a time in the future', request: ({ uid = '' }) => ({ uid, fromTime: '2999-01-01T00:00:00.000Z' }), fields: ['from_time'] },
      {
        what: 'an empty event id',
        breaks: ['from_event_id:string.min_len'],
        only: 'grpc',
        request: ({ uid = '' }) => ({ uid, fromEventId: '' }),
        fields: ['from_event_id'],
      },
      {
        what: 'an event id that is too long',
        breaks: ['from_event_id:string.max_len'],
        request: ({ uid = '' }) => ({ uid, fromEventId: long(65) }),
        fields: ['from_event_id'],
      },
      { what: 'the id of no event', request: ({ uid = '' }) => ({ uid, fromEventId: 'none' }), code: 5 },
    ],
  },
  'EventsService/PullEvents': {
    request: (world): JsonObject => ({ uidp: { descendantsOf: world.group }, types: [groupEvents], cursor: 'now' }),
    badInputs: [
      ...badEventFilters,
      { what: 'a wait of more than a minute', breaks: ['wait:duration.lte'], request: (valid) => ({ ...valid, wait: '61s' }), fields: ['wait'] },
      { what: 'a negative wait', breaks: ['wait:duration.gte'], request: (valid) => ({ ...valid, wait: '-1s' }), fields: ['wait'] },
      { what: 'a negative page size', breaks: ['page_size:int32.gte'], request: (valid) => ({ ...valid, pageSize: -1 }), fields: ['page_size'] },
    ],
  },
  'EventsService/WatchEvents': {
    request: (world): JsonObject => ({ uidp: { descendantsOf: world.group }, types: [groupEvents], cursor: 'now' }),
    badInputs: badEventFilters,
  },
  'SubscriptionsService/ListSubscriptions': {
    request: (world) => ({ uidp: { descendantsOf: world.group }, orderBy: 'created_at desc', pageSize: 200 }),
    list: { item: (world, parent) => newSubscription(world, parent), filters: () => [] },
    badInputs: [],
  },
  'SubscriptionsService/CreateSubscription': {
    request: (world) => ({ parent: world.group, subscription: { sink, types: [groupEvents] } }),
    grants: [plainCapability],
    badInputs: [
      { what: 'no subscription at all', breaks: ['subscription:required'], request: ({ parent = '' }) => ({ parent }), fields: ['sink'] },
      ...inCreate('subscription', badSubscription),
    ],
  },
  'SubscriptionsService/UpdateSubscription': {
    request: async (world) => ({ subscription: { uid: await newSubscription(world), sink: `${sink}/changed` } }),
    grants: [plainCapability],
    badInputs: inUpdate('subscription', badSubscription),
  },
}
