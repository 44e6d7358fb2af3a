import { create, fromBinary } from '@bufbuild/protobuf'
import { DomainError } from '../../base/errors.ts'
import { hashQuery, sealCursor } from '../../base/page-token.ts'
import { resources } from '../../base/schema/schema.ts'
import { parseOrder } from '../../cache/lists/order.ts'
import { openPage, pageLimit } from '../../engine/read.ts'
import { turnOf, type Handler } from '../../engine/services.ts'
import {
  ListVulnerabilityMetadataResponseSchema,
  VulnerabilityMetadataSchema,
  type ListVulnerabilityMetadataRequest,
} from '../../gen/taproot/advisory/v2/advisory_pb.ts'

/** The number of ids that one list may name. */
const maxIds = 1_000

/** Returns the ids of a request, each once and sorted; undefined if it names none. Throws code 3 for too many. */
function idsOf({ id, ids }: ListVulnerabilityMetadataRequest): string[] | undefined {
  const all = [...new Set([id, ...ids])].filter((one) => one !== '').sort()
  if (all.length > maxIds) throw DomainError.invalid('ids', `at most ${maxIds} ids, together with id: send several requests`)
  return all.length === 0 ? undefined : all
}

/** Answers ListVulnerabilityMetadata: one page of what is known about vulnerabilities (docs/spec/vulnerability-metadata.md#metadata-lists). */
export const listVulnerabilityMetadata: Handler = async (services, context, message) => {
  const request = message as ListVulnerabilityMetadataRequest // the method's input
  const resource = resources.get('VulnerabilityMetadata')
  if (resource === undefined) throw new TypeError('the schema has no vulnerability metadata')
  const ids = idsOf(request)
  const order = parseOrder(request.orderBy.trim() === '' ? resource.defaultOrder : request.orderBy, resource)
  const queryHash = hashQuery([context.method.rpc, ids, order.id])
  const { key, restarted } = await openPage(services, context, { text: request.pageToken, queryHash })
  const query = {
    ids,
    descending: order.terms[0]?.descending === true,
    after: key === undefined ? undefined : String(key[0]),
    skip: request.skip,
    limit: pageLimit(request.pageSize),
  }
  const source = services.catalogue('vulnerabilities')
  const { vulnerabilities, hasMore, total } =
    source === undefined ? { vulnerabilities: [], hasMore: false, total: 0 } : await source.page(query, turnOf(context))
  const last = vulnerabilities.at(-1)
  const next = (): string => {
    const cursor = { key: last === undefined ? [] : [last.id], queryHash, issuedMs: services.clock.now() }
    return sealCursor(cursor, services.pageKeys.current(), services.random)
  }
  const answer = create(ListVulnerabilityMetadataResponseSchema, {
    vulnerabilityMetadata: vulnerabilities.map(({ body }) => fromBinary(VulnerabilityMetadataSchema, body)),
    nextPageToken: hasMore && last !== undefined ? next() : '',
    totalCount: BigInt(total),
    skipped: request.skip,
  })
  return { message: answer, ...(restarted ? { pageTokenRestarted: true } : {}) }
}
