import { create } from '@bufbuild/protobuf'
import { setOf } from '../../base/capability.ts'
import type { Digest } from '../../base/digest.ts'
import { DomainError } from '../../base/errors.ts'
import type { MethodRow } from '../../base/schema/method.ts'
import { methods } from '../../base/schema/schema.ts'
import { isUid, type Uid } from '../../base/uid.ts'
import { millisecondFrom } from '../../base/schema/whole-milliseconds.ts'
import { isVisible } from '../../cache/lists/places.ts'
import { visibleRepo } from '../../catalogue/index.ts'
import { notFound } from '../../engine/errors.ts'
import { listHandler, prepared, uidFilterOf, visibility } from '../../engine/read.ts'
import { turnOf, type Context, type Handler, type Services } from '../../engine/services.ts'
import { ImageRefSchema } from '../../gen/taproot/advisory/v2/advisory_pb.ts'
import {
  Scanner_Name,
  type GetRawVulnReportRequest as GetRawVulnReportV1,
  type ListVulnCountReportsRequest as ListVulnCountReportsV1,
  type ListVulnReportsRequest as ListVulnReportsV1,
  type Scanner,
} from '../../gen/taproot/registry/v1/vulnerabilities_pb.ts'
import { ListReposRequestSchema, type ListReposResponse } from '../../gen/taproot/registry/v2/repos_pb.ts'
import {
  GetRawVulnReportRequestSchema,
  ListVulnCountReportsRequestSchema,
  ListVulnReportsRequestSchema,
  ListVulnReportsResponseSchema,
  type ListVulnReportsResponse,
  type RawVulnReport,
  type VulnScanner,
} from '../../gen/taproot/registry/v2/vuln_reports_pb.ts'
import { heldManifest, imageNotFound, repoKind } from '../../registry/index.ts'
import { listCumulativeVulnCountReports, listVulnCountReports } from '../counts/list-counts.ts'
import { getRawVulnReport, listVulnReports } from './report-handlers.ts'

/** Resolves with the first repo that holds a digest, among those whose reports the caller may see. All of them have the same report. */
async function repoHolding(services: Services, context: Context, digest: Digest): Promise<Uid | undefined> {
  const needed = setOf(context.method.capabilities)
  await prepared(context, needed)
  // Images that no tag points to are those of indexes. They are known once they were read.
  const read = (await services.imageContents?.reposWith(digest, turnOf(context))) ?? []
  const { tables } = services.cache
  const seen = visibility('Repo', { tables, context, uidp: uidFilterOf(undefined) }, needed)
  const tags = tables.table('Tag')
  const tagged = seen.everywhere ? [...tags.matching('digest', digest)] : seen.groups.flatMap((group) => [...tags.matching('digest', digest, group)])
  const repos = new Set([...tagged.map(({ parent }) => parent as Uid), ...read.filter((repo) => isVisible(seen, {}, repo))]) // tags are in repos
  for (const repo of [...repos].sort())
    if (tables.get('Repo', repo) !== undefined && (await heldManifest(services, { repo, digest }, context.signal)) !== undefined) return repo
  return undefined
}

/** True if a report is of the scanner that a request names. Taproot has none of the names of version 1. */
function isOf(asked: Scanner | undefined, made: VulnScanner | undefined): boolean {
  if (asked === undefined) return true
  const { name, version, dbBuildTime } = asked
  if (name !== Scanner_Name.UNKNOWN || (version !== '' && version !== made?.version)) return false
  return dbBuildTime === undefined || (made?.dbBuildTime !== undefined && millisecondFrom(dbBuildTime) === millisecondFrom(made.dbBuildTime))
}

/** ListVulnReports of version 1: a report for each image of a digest, or of a tag of a repo (docs/spec/version-1.md#vulnerability-reports). */
export const listVulnReportsV1: Handler = async (services, context, message) => {
  const { repoId, digest, tag, scanner, createdSince } = message as ListVulnReportsV1 // the method's input
  if (repoId === '' && digest === '')
    throw DomainError.invalidFields(['repo_id', 'digest'].map((field) => ({ field, description: 'is required without the other one' })))
  // The schema checked the digest.
  const repo = digest === '' ? visibleRepo(services.cache.tables, context, repoId) : await repoHolding(services, context, digest as Digest)
  if (repo === undefined) return { message: create(ListVulnReportsResponseSchema) }
  const asked = create(ListVulnReportsRequestSchema, { repoUid: repo, digest, tag, ...(createdSince === undefined ? {} : { createdSince }) })
  const { vulnReports } = (await listVulnReports(services, context, asked)).message as ListVulnReportsResponse // the answer of that method
  return { message: create(ListVulnReportsResponseSchema, { vulnReports: vulnReports.filter((report) => isOf(scanner, report.scanner)) }) }
}

/** GetRawVulnReport of version 1: the report about a digest, in any repo that the caller may see (docs/spec/version-1.md#vulnerability-reports). */
export const getRawVulnReportV1: Handler = async (services, context, message) => {
  const { digest, scanner, createdAt } = message as GetRawVulnReportV1 // the method's input
  if (digest === '') throw DomainError.invalid('digest', 'is required')
  const repo = scanner === Scanner_Name.UNKNOWN ? await repoHolding(services, context, digest as Digest) : undefined // the schema checked it
  if (repo === undefined) throw imageNotFound(digest)
  const answer = await getRawVulnReport(services, context, create(GetRawVulnReportRequestSchema, { repoUid: repo, digest }))
  const { createTime } = answer.message as RawVulnReport // the answer of that method
  const isThis = createdAt === undefined || (createTime !== undefined && millisecondFrom(createTime) === millisecondFrom(createdAt))
  if (!isThis) throw imageNotFound(digest)
  return answer
}

const listRepos = listHandler(repoKind)

function listReposMethod(): MethodRow {
  const found = methods.find(({ service, rpc }) => service === 'taproot.registry.v2.ReposService' && rpc === 'ListRepos')
  if (found === undefined) throw new TypeError('the schema has no list of repos')
  return found
}

/** Resolves with the uid or path of a repo, or the uid of the only repo with this name whose reports the caller may see. Rejects with code 3 and 5. */
async function repoNamed(services: Services, context: Context, { name, field }: { readonly name: string; readonly field: string }): Promise<string> {
  if (name === '') throw DomainError.invalid(field, 'is required')
  if (isUid(name) || name.includes('/')) return name
  const method = { ...listReposMethod(), capabilities: context.method.capabilities }
  const listed = await listRepos(services, context.with({ method }), create(ListReposRequestSchema, { name, pageSize: 2 }))
  const [only, other] = (listed.message as ListReposResponse).repos // the answer of that method
  if (only === undefined) throw notFound('Repo', name)
  if (other !== undefined) throw DomainError.invalid(field, 'names several repos: use the uid of one, or its path')
  return only.uid
}

/** Answers a method about tags by names, with the method of version 2. */
function byNames(handler: Handler): Handler {
  return async (services, context, message) => {
    const { repo, tag, from, to, references } = message as ListVulnCountReportsV1 // the method's input
    const asked = references.length > 0 ? references : [{ repo, tag }]
    const known = new Map<string, string>()
    const imageRefs = []
    for (const [at, reference] of asked.entries()) {
      const field = references.length > 0 ? `references[${at}].repo` : 'repo'
      const found = known.get(reference.repo) ?? (await repoNamed(services, context, { name: reference.repo, field }))
      known.set(reference.repo, found)
      imageRefs.push(create(ImageRefSchema, { repo: found, tags: reference.tag === '' ? [] : [reference.tag] }))
    }
    const times = { ...(from === undefined ? {} : { startTime: from }), ...(to === undefined ? {} : { endTime: to }) }
    return handler(services, context, create(ListVulnCountReportsRequestSchema, { imageRefs, ...times }))
  }
}

/** ListVulnCountReports of version 1: the vulnerabilities of tags by day (docs/spec/version-1.md#vulnerability-reports). */
export const listVulnCountReportsV1 = byNames(listVulnCountReports)

/** ListCumulativeVulnCountReports of version 1: for each day, all that a tag had since the first one (docs/spec/version-1.md#vulnerability-reports). */
export const listCumulativeVulnCountReportsV1 = byNames(listCumulativeVulnCountReports)
