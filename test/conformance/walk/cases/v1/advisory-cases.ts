import type { JsonObject } from '@bufbuild/protobuf'
import { importAdvisory } from '../../../../support/import-advisories.ts'
import { freshName } from '../../../../support/test-server.ts'
import { long } from '../../bad-fields.ts'
import { anAdvisory } from '../cases-advisories.ts'
import { walkedLibrary, withArtifact } from '../cases-libraries.ts'
import { aReport } from '../cases-security-advisories.ts'
import { camelCase, type BadInput, type MethodCase } from '../method-case.ts'

const tooLong: readonly BadInput[] = [
  ...['advisory_ids', 'legacy_advisory_ids', 'artifact_name', 'artifact_type', 'artifact_architecture', 'component_name', 'component_type'],
  ...['component_location', 'aliases', 'event_author', 'exclude_event_author', 'event_reviewer'],
].map((name): BadInput => ({ what: `a value of ${name} that is too long`, request: (valid) => ({ ...valid, [camelCase(name)]: [long(513)] }), fields: [name] }))

const badToken: BadInput = { what: 'a page token that is none', request: (valid) => ({ ...valid, pageToken: 'garbage' }), fields: ['page_token'] }
const badSize: BadInput = { what: 'a negative page size', request: (valid) => ({ ...valid, pageSize: -1 }), fields: ['page_size'] }
const noEcosystem: BadInput = { what: 'no ecosystem', request: (valid) => ({ ...valid, ecosystems: [] }), fields: ['ecosystems'] }
const unknownEcosystem: BadInput = { what: 'an unknown ecosystem', request: (valid) => ({ ...valid, ecosystems: [9] }), fields: ['ecosystems'] }

/** The methods of version 1 about advisories, vulnerabilities and libraries. */
export const advisoryV1Cases: Readonly<Record<string, MethodCase>> = {
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
