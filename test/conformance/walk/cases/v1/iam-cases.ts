import type { JsonObject } from '@bufbuild/protobuf'
import { freshName } from '../../../../support/test-server.ts'
import { made, type World } from '../../world.ts'
import { long } from '../../bad-fields.ts'
import type { BadInput, MethodCase } from '../method-case.ts'

/** Bad inputs of the resource in a create (in the field `held`) or, without a field, in an update. Fields have the names of version 1. */
export function badResources(
  rows: readonly { readonly what: string; readonly set: JsonObject; readonly fields: readonly string[] }[],
  held?: string,
): BadInput[] {
  return rows.map(({ what, set, fields }) => ({
    what,
    fields,
    request: (valid) => (held === undefined ? { ...valid, ...set } : { ...valid, [held]: { ...(valid[held] as JsonObject), ...set } }), // a create has its resource
  }))
}

const badGroup = [
  { what: 'an empty name', set: { name: '' }, fields: ['name'] },
  { what: 'a name with capitals', set: { name: 'Platform' }, fields: ['name'] },
  { what: 'a description of 513 characters', set: { description: long(513) }, fields: ['description'] },
  { what: 'a kind whose number is unknown', set: { kind: 99 }, fields: ['kind'] },
]

function newGroup(world: World): Promise<string> {
  return made(world, 'CreateGroup', { parent: world.group, group: { name: freshName('group') } })
}

/** The groups of version 1. */
export const groupV1Cases: Readonly<Record<string, MethodCase>> = {
  'Groups/Create': {
    request: (world) => ({ parent: world.group, group: { name: freshName('made') } }),
    badInputs: [
      { what: 'no group at all', request: ({ parent = '' }) => ({ parent }), fields: ['name'] },
      { what: 'a parent that is too long', request: (valid) => ({ ...valid, parent: long(256) }), fields: ['parent'] },
      { what: 'no parent, for a caller who is no operator', request: ({ group = {} }) => ({ group }), code: 7 },
      { what: 'a name that a sibling has', request: ({ parent = '' }) => ({ parent, group: { name: 'team' } }), code: 6 },
      ...badResources(badGroup, 'group'),
    ],
  },
  'Groups/Update': {
    request: async (world) => ({ id: await newGroup(world), name: freshName('renamed'), description: 'changed' }),
    badInputs: [
      { what: 'a name that a sibling has', request: (valid) => ({ ...valid, name: 'team' }), code: 6 },
      { what: 'verified, by a customer', request: (valid, world) => ({ ...valid, id: world.group, verified: true, kind: 'ORG_KIND_CUSTOMER' }), code: 7 },
      ...badResources(badGroup),
    ],
  },
  'Groups/List': {
    request: (world) => ({ uidp: { descendantsOf: world.group } }),
    list: {
      item: (world, parent) => made(world, 'CreateGroup', { parent, group: { name: freshName('listed') } }),
      filters: (world) => [{ name: 'team' }, { id: world.subgroup }, { id: world.subgroup, uidp: { ids: [world.group, world.subgroup] } }],
    },
    badInputs: [{ what: 'a name that is too long', request: (valid) => ({ ...valid, name: long(256) }), fields: ['name'] }],
  },
  'Groups/Delete': { request: async (world) => ({ id: await newGroup(world) }), badInputs: [] },
}
