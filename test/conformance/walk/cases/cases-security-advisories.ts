import type { JsonObject } from '@bufbuild/protobuf'
import { freshName } from '../../../support/test-server.ts'
import { long } from '../bad-fields.ts'
import { made, type World } from '../world.ts'
import type { BadInput, MethodCase } from './method-case.ts'

/** Over REST, the query of a list has 8 KiB: too many values come over gRPC alone. */
const badIds: readonly BadInput[] = [
  { what: 'an id that is too long', breaks: ['id:string.max_len'], request: (valid) => ({ ...valid, id: long(513) }), fields: ['id'] },
  { what: 'an empty item of ids', only: 'grpc', breaks: ['ids[]:string.min_len'], request: (valid) => ({ ...valid, ids: [''] }), fields: ['ids'] },
  { what: 'an item of ids that is too long', breaks: ['ids[]:string.max_len'], request: (valid) => ({ ...valid, ids: [long(513)] }), fields: ['ids'] },
  {
    what: 'more than 10000 ids',
    breaks: ['ids:repeated.max_items'],
    only: 'grpc',
    request: (valid) => ({ ...valid, ids: Array.from({ length: 10_001 }, () => 'a') }),
    fields: ['ids'],
  },
  {
    what: 'more than 1000 different ids',
    only: 'grpc',
    request: (valid) => ({ ...valid, ids: Array.from({ length: 1_001 }, (_, at) => String(at)) }),
    fields: ['ids'],
  },
]

const badDocuments: readonly BadInput[] = [
  { what: 'an id that is too long', breaks: ['id:string.max_len'], request: (valid) => ({ ...valid, id: long(513) }), fields: ['id'] },
  { what: 'an empty item of cves', only: 'grpc', breaks: ['cves[]:string.min_len'], request: (valid) => ({ ...valid, cves: [''] }), fields: ['cves'] },
  { what: 'an item of cves that is too long', breaks: ['cves[]:string.max_len'], request: (valid) => ({ ...valid, cves: [long(513)] }), fields: ['cves'] },
  {
    what: 'more than 1000 cves',
    breaks: ['cves:repeated.max_items'],
    only: 'grpc',
    request: (valid) => ({ ...valid, cves: Array.from({ length: 1_001 }, () => 'a') }),
    fields: ['cves'],
  },
]

const period = { startTime: '2026-01-01T12:00:00Z', endTime: '2026-01-03T00:00:00Z' }

/** A request about a tag that never existed: no contents are needed. */
export async function aReport(world: World): Promise<JsonObject> {
  return { imageRefs: [{ repo: await made(world, 'CreateRepo', { parent: world.group, repo: { name: freshName('report') } }), tags: ['none'] }], ...period }
}

const named = (change: JsonObject): NonNullable<BadInput['request']> => {
  return (valid) => ({ ...valid, imageRefs: [{ ...((valid['imageRefs'] ?? []) as JsonObject[])[0], ...change }] })
}

const badReports: readonly BadInput[] = [
  { what: 'no images', breaks: ['image_refs:required'], request: () => period, fields: ['image_refs'] },
  { what: 'no start', breaks: ['start_time:required'], request: ({ startTime: _, ...valid }) => valid, fields: ['start_time'] },
  { what: 'no end', breaks: ['end_time:required'], request: ({ endTime: _, ...valid }) => valid, fields: ['end_time'] },
  { what: 'nothing', request: () => ({}), fields: ['image_refs', 'start_time', 'end_time'] },
  { what: 'an end before the start', request: (valid) => ({ ...valid, endTime: '2026-01-01T00:00:00Z' }), fields: ['end_time'] },
  { what: 'a period of more than 366 days', request: (valid) => ({ ...valid, endTime: '2027-01-02T00:00:00Z' }), fields: ['end_time'] },
  { what: 'an image without a repo', breaks: ['image_refs.repo:required'], request: named({ repo: '' }), fields: ['image_refs.repo'] },
  { what: 'a repo that is too long', breaks: ['image_refs.repo:string.max_len'], request: named({ repo: long(513) }), fields: ['image_refs.repo'] },
  { what: 'a tag that is none', breaks: ['image_refs.tags[]:string.pattern'], request: named({ tags: ['-'] }), fields: ['image_refs.tags'] },
  {
    what: 'more than 100 tags of an image',
    breaks: ['image_refs.tags:repeated.max_items'],
    request: named({ tags: Array.from({ length: 101 }, (_, at) => String(at)) }),
    fields: ['image_refs.tags'],
  },
  {
    what: 'more than 100 images',
    breaks: ['image_refs:repeated.max_items'],
    request: (valid) => ({ ...valid, imageRefs: Array.from({ length: 101 }, () => ({ repo: 'a' })) }),
    fields: ['image_refs'],
  },
  {
    what: 'more than 100 tags together',
    request: (valid) => {
      const [image] = (valid['imageRefs'] ?? []) as JsonObject[]
      const tags = (from: number): string[] => Array.from({ length: 51 }, (_, at) => String(from + at))
      return { ...valid, imageRefs: [0, 100].map((from) => ({ ...image, tags: tags(from) })) }
    },
    fields: ['image_refs'],
  },
  { what: 'a repo that does not exist', request: named({ repo: `${'a'.repeat(40)}/${'b'.repeat(16)}` }), code: 5 },
  { what: 'a path that leads to no repo', request: named({ repo: 'no-such/repo' }), code: 5 },
  { what: 'a repo that is no path', request: named({ repo: 'Not A Path' }), code: 5 },
]

/** SecurityAdvisoryService, and VulnReportsService, whose requests name images in the same way. */
export const securityAdvisoryCases: Readonly<Record<string, MethodCase>> = {
  'SecurityAdvisoryService/ListResolvedVulnsReports': { request: aReport, badInputs: badReports },
  'VulnReportsService/ListVulnCountReports': { request: aReport, badInputs: badReports },
  'VulnReportsService/ListCumulativeVulnCountReports': { request: aReport, badInputs: badReports },
  'SecurityAdvisoryService/ListDocuments': { request: (): JsonObject => ({ id: 'example', cves: ['CVE-2026-1', 'CVE-2026-2'] }), badInputs: badDocuments },
  'SecurityAdvisoryService/ListVulnerabilityMetadata': {
    request: () => ({ id: 'CVE-2026-1', ids: ['CVE-2026-2'], orderBy: 'id desc', pageSize: 200 }),
    badInputs: badIds,
  },
}
