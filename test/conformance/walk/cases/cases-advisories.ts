import type { JsonObject } from '@bufbuild/protobuf'
import { importAdvisory } from '../../../support/import-advisories.ts'
import { freshName } from '../../../support/test-server.ts'
import { long } from '../bad-fields.ts'
import type { World } from '../world.ts'
import { camelCase, type BadInput, type MethodCase } from './method-case.ts'

const imported = new WeakMap<World, Promise<string>>()

/** Returns an advisory of the organisation. Reads change nothing, so all requests share it. */
export function anAdvisory(world: World): Promise<string> {
  const known = imported.get(world) ?? importAdvisory(world.server, world.group, 'walk')
  imported.set(world, known)
  return known
}

/** The filters that list values, and the longest list that each accepts. */
const texts = [
  'advisory_ids',
  'legacy_advisory_ids',
  'artifact_names',
  'artifact_types',
  'artifact_architectures',
  'component_names',
  'component_types',
  'component_locations',
  'aliases',
  'event_authors',
  'exclude_event_authors',
  'event_reviewers',
] as const
const enums = ['event_review_states', 'event_types'] as const

/** Over REST, the query of a list has 8 KiB: too many values come over gRPC alone. */
const badFilters: readonly BadInput[] = [
  ...texts.flatMap((name): BadInput[] => [
    {
      what: `a value of ${name} that is too long`,
      breaks: [`${name}[]:string.max_len`],
      request: (valid) => ({ ...valid, [camelCase(name)]: [long(513)] }),
      fields: [name],
    },
    {
      what: `more than 1000 ${name}`,
      breaks: [`${name}:repeated.max_items`],
      request: (valid) => ({ ...valid, [camelCase(name)]: Array.from({ length: 1001 }, () => 'a') }),
      fields: [name],
    },
  ]),
  ...enums.flatMap((name): BadInput[] => [
    {
      what: `an unspecified value of ${name}`,
      breaks: [`${name}[]:enum.not_in`],
      request: (valid) => ({ ...valid, [camelCase(name)]: [0] }),
      fields: [name],
    },
    {
      what: `an unknown value of ${name}`,
      breaks: [`${name}[]:enum.defined_only`],
      request: (valid) => ({ ...valid, [camelCase(name)]: [99] }),
      fields: [name],
    },
    {
      what: `more than 20 ${name}`,
      breaks: [`${name}:repeated.max_items`],
      request: (valid) => ({ ...valid, [camelCase(name)]: Array.from({ length: 21 }, () => 1) }),
      fields: [name],
    },
  ]),
  {
    what: 'an unknown latest event type',
    breaks: ['latest_event_type:enum.defined_only'],
    request: (valid) => ({ ...valid, latestEventType: 99 }),
    fields: ['latest_event_type'],
  },
  { what: 'an origin that is too long', breaks: ['origin:string.max_len'], request: (valid) => ({ ...valid, origin: long(513) }), fields: ['origin'] },
  { what: 'a query that is too long', breaks: ['query:string.max_len'], request: (valid) => ({ ...valid, query: long(256) }), fields: ['query'] },
]

/** AdvisoriesService. */
export const advisoryCases: Readonly<Record<string, MethodCase>> = {
  'AdvisoriesService/GetAdvisory': { request: async (world): Promise<JsonObject> => ({ uid: await anAdvisory(world) }), badInputs: [] },
  'AdvisoriesService/ListAdvisories': {
    request: (world) => ({ uidp: { descendantsOf: world.group }, orderBy: 'updated_at desc', pageSize: 200 }),
    list: {
      item: (world, parent) => (parent === world.group ? anAdvisory(world) : importAdvisory(world.server, parent, freshName('elsewhere'))),
      filters: () => [{ artifactNames: ['walk'] }, { query: 'WALK' }, { componentNames: ['walk'] }],
    },
    badInputs: badFilters,
  },
}
