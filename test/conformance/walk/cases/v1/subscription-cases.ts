import { capabilitiesFor } from '../../../../../src/events/index.ts'
import { made, type World } from '../../world.ts'
import type { MethodCase } from '../method-case.ts'
import { badResources } from './iam-cases.ts'

const sink = 'https://hooks.example.com/taproot'

function newSubscription(world: World, parent = world.group): Promise<string> {
  return made(world, 'CreateSubscription', { parent, subscription: { sink } })
}

/** The subscriptions of version 1. */
export const subscriptionV1Cases: Readonly<Record<string, MethodCase>> = {
  'Subscriptions/Create': {
    request: (world) => ({ parentId: world.group, subscription: { sink } }),
    grants: capabilitiesFor({ types: [], includePulls: false }),
    badInputs: [
      { what: 'no subscription at all', request: ({ parentId = '' }) => ({ parentId }), fields: ['sink'] },
      ...badResources(
        [
          { what: 'a sink over http', set: { sink: 'http://hooks.example.com' }, fields: ['sink'] },
          { what: 'a sink at a private address', set: { sink: 'https://10.0.0.1/' }, fields: ['sink'] },
        ],
        'subscription',
      ),
    ],
  },
  'Subscriptions/List': {
    request: (world) => ({ uidp: { descendantsOf: world.group } }),
    list: { item: newSubscription, filters: (world) => [{ uidp: { childrenOf: world.group } }] },
    badInputs: [],
  },
  'Subscriptions/Delete': { request: async (world) => ({ id: await newSubscription(world) }), badInputs: [] },
}
