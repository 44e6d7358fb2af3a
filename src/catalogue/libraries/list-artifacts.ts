import { create, fromBinary } from '@bufbuild/protobuf'
import { timestampFromMs, type Timestamp } from '@bufbuild/protobuf/wkt'
import { DomainError } from '../../base/errors.ts'
import { hashQuery, sealCursor, type CursorKey } from '../../base/page-token.ts'
import { resources, type ResourceRow } from '../../base/schema/schema.ts'
import type { ArtifactFilter, FoundVersion, VersionKey, VersionTerm } from '../../cache/lists/library-source.ts'
import { parseOrder, parseOrderTerms, recordFields } from '../../cache/lists/order.ts'
import { notFound } from '../../engine/errors.ts'
import { continuationOf, nextToken, openPage, pageLimit } from '../../engine/read.ts'
import { callerOf, turnOf, type Handler } from '../../engine/services.ts'
import {
  ArtifactSchema,
  ArtifactVersionSchema,
  GetArtifactCountResponseSchema,
  ListArtifactsResponseSchema,
  ListArtifactVersionsResponseSchema,
  type ArtifactVersion,
  type Ecosystem,
  type GetArtifactCountRequest,
  type ListArtifactsRequest,
  type ListArtifactVersionsRequest,
} from '../../gen/taproot/libraries/v2/artifacts_pb.ts'
import { assertCatalogueReader } from '../catalogue-reader.ts'
import { cudaVersionOf } from './artifact-facts.ts'

function resourceOf(kind: 'Artifact' | 'ArtifactVersion'): ResourceRow {
  const resource = resources.get(kind)
  if (resource === undefined) throw new TypeError(`the schema has no ${kind}`)
  return resource
}

/** Returns the requested ecosystems, each once. Throws code 3 if there is none. */
function ecosystemsOf({ ecosystems }: { readonly ecosystems: readonly Ecosystem[] }): Ecosystem[] {
  if (ecosystems.length === 0) throw DomainError.invalid('ecosystems', 'is required')
  return [...new Set(ecosystems)]
}

/** Answers ListArtifacts: one page of the artifacts of the requested ecosystems. */
export const listArtifacts: Handler = async (services, context, message) => {
  const request = message as ListArtifactsRequest // the method's input
  const resource = resourceOf('Artifact')
  const { query: text = '', cudaVersion = '', remediated } = request
  const ecosystems = ecosystemsOf(request)
  const filter: ArtifactFilter = { ecosystems, text, cuda: cudaVersion === '' ? undefined : cudaVersionOf(cudaVersion), remediated }
  const order = parseOrder(request.orderBy.trim() === '' ? resource.defaultOrder : request.orderBy, resource)
  await assertCatalogueReader(services, context)
  const queryHash = hashQuery([context.method.rpc, { ...filter, ecosystems: ecosystems.toSorted() }, order.id, callerOf(context).identity])
  const { after, restarted } = await continuationOf(services, context, { text: request.pageToken, queryHash, order })
  const limit = pageLimit(request.pageSize)
  // One extra artifact shows whether another page follows.
  const query = { filter, order, after, skip: request.skip, limit: limit + 1 }
  const page = (await services.catalogue('libraries')?.artifacts(query, turnOf(context))) ?? { artifacts: [], total: 0 }
  const shown = page.artifacts.slice(0, limit)
  const last = shown.at(-1)
  const answer = create(ListArtifactsResponseSchema, {
    artifacts: shown.map(({ body }) => fromBinary(ArtifactSchema, body)),
    nextPageToken: page.artifacts.length > limit && last !== undefined ? nextToken(services, { order, record: last, queryHash }) : '',
    totalCount: BigInt(page.total),
    skipped: request.skip,
  })
  return { message: answer, ...(restarted ? { pageTokenRestarted: true } : {}) }
}

const versionFields: Readonly<Record<string, VersionTerm['field']>> = { ...recordFields, version: 'version' }

/** Parses the order of versions. It ends with the uid, which makes it total. */
function versionTerms(orderBy: string): readonly VersionTerm[] {
  const resource = resourceOf('ArtifactVersion')
  const terms = parseOrderTerms(orderBy.trim() === '' ? resource.defaultOrder : orderBy, resource, versionFields)
  const end = terms.findIndex(({ field }) => field === 'uid')
  return end < 0 ? [...terms, { field: 'uid', descending: false }] : terms.slice(0, end + 1)
}

/** Returns the place that a page token stores for these terms. */
function versionKeyOf(terms: readonly VersionTerm[], key: CursorKey): VersionKey {
  const found: Record<string, string | number> = { uid: '', version: '', createMs: 0, updateMs: 0 }
  terms.forEach(({ field }, at) => {
    found[field] = key[at] ?? ''
  })
  return found as unknown as VersionKey // the values of a token for the same terms
}

function timeOf(ms: number): Timestamp | undefined {
  return ms === 0 ? undefined : timestampFromMs(ms)
}

function versionMessage(name: string, { uid, version, description, createMs, updateMs, sizeBytes }: FoundVersion): ArtifactVersion {
  const [createTime, updateTime] = [timeOf(createMs), timeOf(updateMs)]
  return create(ArtifactVersionSchema, {
    uid,
    name,
    version,
    description,
    ...(createTime === undefined ? {} : { createTime }),
    ...(updateTime === undefined ? {} : { updateTime }),
    sizeBytes: BigInt(sizeBytes),
  })
}

/** Answers ListArtifactVersions: one page of the versions of an artifact. Throws code 5 if there is no such artifact. */
export const listArtifactVersions: Handler = async (services, context, message) => {
  const request = message as ListArtifactVersionsRequest // the method's input
  const { artifactId: artifact, skip } = request
  if (artifact === '') throw DomainError.invalid('artifact_id', 'is required')
  const terms = versionTerms(request.orderBy)
  await assertCatalogueReader(services, context)
  const queryHash = hashQuery([context.method.rpc, artifact, terms, callerOf(context).identity])
  const { key, restarted } = await openPage(services, context, { text: request.pageToken, queryHash })
  const limit = pageLimit(request.pageSize)
  const query = { artifact, terms, after: key === undefined ? undefined : versionKeyOf(terms, key), skip, limit: limit + 1 }
  const page = await services.catalogue('libraries')?.versions(query, turnOf(context))
  if (page === undefined) throw notFound('Artifact', artifact)
  const shown = page.versions.slice(0, limit)
  const last = shown.at(-1)
  const next = page.versions.length > limit && last !== undefined ? terms.map(({ field }) => (field === 'name' ? page.name : last[field])) : undefined
  const answer = create(ListArtifactVersionsResponseSchema, {
    artifactVersions: shown.map((version) => versionMessage(page.name, version)),
    nextPageToken: next === undefined ? '' : sealCursor({ key: next, queryHash, issuedMs: services.clock.now() }, services.pageKeys.current(), services.random),
    totalCount: BigInt(page.total),
    skipped: skip,
  })
  return { message: answer, ...(restarted ? { pageTokenRestarted: true } : {}) }
}

/** Answers GetArtifactCount: the number of artifacts in each requested ecosystem, also if it is 0. */
export const getArtifactCount: Handler = async (services, context, message) => {
  const ecosystems = ecosystemsOf(message as GetArtifactCountRequest) // the method's input
  await assertCatalogueReader(services, context)
  const source = services.catalogue('libraries')
  const counts = ecosystems.map((ecosystem) => ({ ecosystem, totalCount: BigInt(source?.count(ecosystem) ?? 0) }))
  return { message: create(GetArtifactCountResponseSchema, { counts }) }
}
