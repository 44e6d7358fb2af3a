import type { JsonObject } from '@bufbuild/protobuf'
import { long } from '../bad-fields.ts'
import type { BadInput, MethodCase } from './method-case.ts'

/** Over REST, the query of a list has 8 KiB: too many values come over gRPC alone. */
const badIds: readonly BadInput[] = [
  { what: 'an id that is too long', breaks: ['id:string.max_len'], request: (valid) => ({ ...valid, id: long(256) }), fields: ['id'] },
  { what: 'an empty item of ids', only: 'grpc', breaks: ['ids[]:string.min_len'], request: (valid) => ({ ...valid, ids: [''] }), fields: ['ids'] },
  { what: 'an item of ids that is too long', breaks: ['ids[]:string.max_len'], request: (valid) => ({ ...valid, ids: [long(256)] }), fields: ['ids'] },
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
  { what: 'an id that is too long', breaks: ['id:string.max_len'], request: (valid) => ({ ...valid, id: long(256) }), fields: ['id'] },
  { what: 'an empty item of cves', only: 'grpc', breaks: ['cves[]:string.min_len'], request: (valid) => ({ ...valid, cves: [''] }), fields: ['cves'] },
  { what: 'an item of cves that is too long', breaks: ['cves[]:string.max_len'], request: (valid) => ({ ...valid, cves: [long(256)] }), fields: ['cves'] },
  {
    what: 'more than 1000 cves',
    breaks: ['cves:repeated.max_items'],
    only: 'grpc',
    request: (valid) => ({ ...valid, cves: Array.from({ length: 1_001 }, () => 'a') }),
    fields: ['cves'],
  },
]

/** SecurityAdvisoryService. */
export const securityAdvisoryCases: Readonly<Record<string, MethodCase>> = {
  'SecurityAdvisoryService/ListDocuments': { request: (): JsonObject => ({ id: 'example', cves: ['CVE-2026-1', 'CVE-2026-2'] }), badInputs: badDocuments },
  'SecurityAdvisoryService/ListVulnerabilityMetadata': {
    request: () => ({ id: 'CVE-2026-1', ids: ['CVE-2026-2'], orderBy: 'id desc', pageSize: 200 }),
    badInputs: badIds,
  },
}
