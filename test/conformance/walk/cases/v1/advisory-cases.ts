import type { JsonObject } from '@bufbuild/protobuf'
import { importAdvisory, ownAdvisory } from '../../../../support/import-advisories.ts'
import { freshName } from '../../../../support/test-server.ts'
import { long } from '../../bad-fields.ts'
import { anAdvisory } from '../cases-advisories.ts'
import { walkedLibrary, withArtifact } from '../cases-libraries.ts'
import { aReport } from '../cases-security-advisories.ts'
import type { World } from '../../world.ts'
import { camelCase, type BadInput, type MethodCase } from '../method-case.ts'

const tooLong: readonly BadInput[] = [
  ...['advisory_ids', 'legacy_advisory_ids', 'artifact_name', 'artifact_type', 'artifact_architecture', 'component_name', 'component_type'],
  ...['component_location', 'aliases', 'event_author', 'exclude_event_author', 'event_reviewer'],
].map((name): BadInput => ({ what: `a value of ${name} that is too long`, request: (valid) => ({ ...valid, [camelCase(name)]: [long(513)] }), fields: [name] }))

const badToken: BadInput = { what: 'a page token that is none', request: (valid) => ({ ...valid, pageToken: 'garbage' }), fields: ['page_token'] }
const badSize: BadInput = { what: 'a negative page size', request: (valid) => ({ ...valid, pageSize: -1 }), fields: ['page_size'] }
const noEcosystem: BadInput = { what: 'no ecosystem', request: (valid) => ({ ...valid, ecosystems: [] }), fields: ['ecosystems'] }
const unknownEcosystem: BadInput = { what: 'an unknown ecosystem', request: (valid) => ({ ...valid, ecosystems: [9] }), fields: ['ecosystems'] }

const manual = { detection: { manual: {} } }

/** Makes an advisory by hand, with an event. */
function newAdvisory(world: World): Promise<JsonObject> {
  return ownAdvisory(world.server, world.group, { events: [manual] })
}

async function idOf(advisory: Promise<JsonObject>): Promise<string> {
  return String((await advisory)['id'])
}

async function newEvent(world: World): Promise<string> {
  const [event] = (await newAdvisory(world))['events'] as JsonObject[] // of newAdvisory
  return String(event?.['id'])
}

/** Returns bad inputs of an advisory in the field `held`, or as the whole request. */
function badAdvisories(held?: string): readonly BadInput[] {
  const rows: readonly { readonly what: string; readonly set: JsonObject; readonly fields: readonly string[] }[] = [
    { what: 'no artifact', set: { artifactName: '' }, fields: ['artifact_name'] },
    { what: 'an author that is too long', set: { author: long(513) }, fields: ['author'] },
    { what: 'more than 100 aliases', set: { aliases: Array.from({ length: 101 }, (_, at) => String(at)) }, fields: ['aliases'] },
    { what: 'an alias with a line break', set: { aliases: ['a\nb'] }, fields: ['aliases'] },
    { what: 'an event without a type', set: { events: [{ author: 'me' }] }, fields: ['events.type'] },
    { what: 'an event with an unknown status', set: { events: [{ ...manual, status: 99 }] }, fields: ['events.status'] },
    { what: 'a note that is too long', set: { events: [{ fixNotPlanned: { note: long(4097) } }] }, fields: ['events.fix_not_planned.note'] },
  ]
  return rows.map(({ what, set, fields }) => ({
    what,
    request: (valid) => (held === undefined ? { ...valid, ...set } : { ...valid, [held]: { ...(valid[held] as JsonObject), ...set } }),
    fields,
  }))
}

/** The writes of version 1. */
const writes: Readonly<Record<string, MethodCase>> = {
  'Advisories/Create': {
    request: (world) => ({ parentId: world.group, advisory: { advisoryId: freshName('X'), artifactName: 'walked', artifactType: 'PyPI' } }),
    badInputs: [
      { what: 'no advisory', request: ({ parentId = '' }) => ({ parentId }), fields: ['artifact_name'] },
      { what: 'neither an id nor an alias', request: (valid) => ({ ...valid, advisory: { artifactName: 'a' } }), fields: ['advisory_id'] },
      {
        what: 'a second one about the same',
        code: 6,
        request: async (valid, world) => ({ ...valid, advisory: { ...(await newAdvisory(world)), events: [] } }),
      },
      ...badAdvisories('advisory'),
    ],
  },
  'Advisories/Update': {
    request: async (world) => ({ id: await idOf(newAdvisory(world)), artifactName: 'replaced', artifactType: 'npm' }),
    badInputs: [{ what: 'an imported advisory', code: 9, request: async (valid, world) => ({ ...valid, id: await anAdvisory(world) }) }, ...badAdvisories()],
  },
  'Advisories/Delete': {
    request: async (world) => ({ id: await idOf(newAdvisory(world)) }),
    badInputs: [{ what: 'an imported advisory', code: 9, request: async (_, world) => ({ id: await anAdvisory(world) }) }],
  },
  'Advisories/CreateAdvisoryEvent': {
    request: async (world) => ({ parentId: await idOf(newAdvisory(world)), advisoryEvent: manual }),
    badInputs: [
      { what: 'no event', request: ({ parentId = '' }) => ({ parentId }), fields: ['type'] },
      { what: 'an issue that is too long', request: (valid) => ({ ...valid, advisoryEvent: { ...manual, issue: long(513) } }), fields: ['issue'] },
      { what: 'an imported advisory', code: 9, request: async (valid, world) => ({ ...valid, parentId: await anAdvisory(world) }) },
      { what: 'an advisory that does not exist', code: 5, request: (valid, world) => ({ ...valid, parentId: `${world.group}/${'0'.repeat(16)}` }) },
    ],
  },
  'Advisories/ListAdvisoryEvents': { request: async (world) => ({ parentId: await idOf(newAdvisory(world)) }), badInputs: [] },
  'Advisories/UpdateAdvisoryEvent': {
    request: async (world) => ({ id: await newEvent(world), ...manual, reviewer: 'walk' }),
    badInputs: [
      { what: 'no type', request: ({ id = '' }) => ({ id }), fields: ['type'] },
      { what: 'a reviewer that is too long', request: (valid) => ({ ...valid, reviewer: long(513) }), fields: ['reviewer'] },
      {
        what: 'an event that does not exist',
        code: 5,
        request: async (valid, world) => ({ ...valid, id: `${await idOf(newAdvisory(world))}/${'0'.repeat(16)}` }),
      },
    ],
  },
}

/** The methods of version 1 about advisories, vulnerabilities and libraries. */
export const advisoryV1Cases: Readonly<Record<string, MethodCase>> = {
  ...writes,
  'Advisories/List': {
    request: async (world) => {
      await anAdvisory(world)
      return { uidp: { descendantsOf: world.group }, orderBy: 8, pageSize: '200' }
    },
    list: {
      item: (world, parent) => (parent === world.group ? anAdvisory(world) : importAdvisory(world.server, parent, freshName('elsewhere'))),
      filters: () => [{ artifactName: ['walk'] }, { componentName: ['walk'] }],
    },
    badInputs: [
      ...tooLong,
      badToken,
      { what: 'an order that version 2 does not have', request: (valid) => ({ ...valid, orderBy: 5 }), fields: ['order_by'] },
      { what: 'an unknown status', request: (valid) => ({ ...valid, eventStatuses: [99] }), fields: ['event_statuses'] },
      { what: 'a page size above 32 bits that is negative', request: (valid) => ({ ...valid, pageSize: '-5000000000' }), fields: ['page_size'] },
      { what: 'an origin that is too long', request: (valid) => ({ ...valid, origin: long(513) }), fields: ['origin'] },
    ],
  },
  'Artifacts/List': {
    request: (world) => withArtifact(world, { ecosystems: [1, 2, 3], query: walkedLibrary }),
    badInputs: [badToken, badSize, noEcosystem, unknownEcosystem, { what: 'a negative skip', request: (valid) => ({ ...valid, skip: -1 }), fields: ['skip'] }],
  },
  'Artifacts/ListVersions': {
    request: (world) => withArtifact(world, { id: `python:${walkedLibrary}` }),
    badInputs: [
      { what: 'no artifact', only: 'grpc', request: () => ({}), fields: ['id'] },
      { what: 'an artifact that does not exist', request: (valid) => ({ ...valid, id: 'npm:@no/such' }), code: 5 },
    ],
  },
  'Artifacts/GetArtifactCount': { request: (world) => withArtifact(world, { ecosystems: [2] }), badInputs: [noEcosystem, unknownEcosystem] },
  'SecurityAdvisory/ListDocuments': {
    request: (): JsonObject => ({ id: 'example', cves: ['CVE-2026-1'] }),
    badInputs: [{ what: 'an item of cves that is too long', request: (valid) => ({ ...valid, cves: [long(513)] }), fields: ['cves'] }],
  },
  'SecurityAdvisory/ListVulnerabilityMetadata': {
    request: () => ({ id: 'CVE-2026-1', ids: ['CVE-2026-2'], orderBy: 'id desc', pageSize: 200 }),
    badInputs: [
      badToken,
      badSize,
      { what: 'an id that is too long', request: (valid) => ({ ...valid, id: long(513) }), fields: ['id'] },
      { what: 'an order by another field', request: (valid) => ({ ...valid, orderBy: 'summary' }), fields: ['order_by'] },
    ],
  },
  'SecurityAdvisory/ListResolvedVulnsReports': {
    request: async (world) => {
      const { startTime = '', endTime = '', ...report } = await aReport(world)
      return { ...report, from: startTime, to: endTime }
    },
    badInputs: [
      { what: 'no images', request: ({ imageRefs: _, ...valid }) => valid, fields: ['image_refs'] },
      { what: 'an end before the start', request: (valid) => ({ ...valid, to: '2026-01-01T00:00:00Z' }), fields: ['to'] },
    ],
  },
}
