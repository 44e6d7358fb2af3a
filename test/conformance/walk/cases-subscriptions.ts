import type { JsonObject } from '@bufbuild/protobuf'
import { inCreate, inUpdate, long, type BadField } from './bad-fields.ts'
import type { MethodCase } from './method-case.ts'
import { made, plainCapability, type World } from './world.ts'

const groupEvents = 'dev.taproot.api.iam.group.'
const sink = 'https://hooks.example.com/taproot'

const badSubscription: readonly BadField[] = [
  { what: 'no sink', breaks: ['sink:required'], clear: ['sink'] },
  { what: 'a sink over http', breaks: ['sink:string.pattern'], set: { sink: 'http://hooks.example.com' } },
  { what: 'a sink longer than 2048 characters', breaks: ['sink:string.max_len'], set: { sink: `https://hooks.example.com/${long(2048)}` } },
  { what: 'a sink with a user', set: { sink: 'https://me:secret@hooks.example.com' }, fields: ['sink'] },
  { what: 'a sink with a fragment', set: { sink: 'https://hooks.example.com/#here' }, fields: ['sink'] },
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

/** SubscriptionsService. */
export const subscriptionCases: Readonly<Record<string, MethodCase>> = {
  'SubscriptionsService/GetSubscription': byUid,
  'SubscriptionsService/DeleteSubscription': byUid,
  'SubscriptionsService/PauseSubscription': byUid,
  'SubscriptionsService/ResumeSubscription': byUid,
  'SubscriptionsService/TestSubscription': byUid,
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
