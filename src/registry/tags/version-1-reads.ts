import { create } from '@bufbuild/protobuf'
import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import { DomainError } from '../../base/errors.ts'
import { setOf } from '../../base/capability.ts'
import { isBefore, millisecondFrom } from '../../base/schema/whole-milliseconds.ts'
import {
  RepoCountSchema,
  RepoTagsSummarySchema,
  TagHistoryListSchema,
  TagHistorySchema,
  type GetRepoCountBySourceRequest,
  type GetRepoTagsSummaryRequest,
  type ListTagHistoryRequest,
} from '../../gen/taproot/registry/v1/registry_pb.ts'
import { notFound } from '../../engine/errors.ts'
import { prepared, visibility } from '../../engine/read.ts'
import type { Handler } from '../../engine/services.ts'
import { sourceFilter } from '../records/synced-repos.ts'
import { readHistory } from './tag-history.ts'

/** Maximum number of records in one answer, the same as at the registry host (docs/spec/registry.md#tag-history). */
const maxRecords = 1_000

/** ListTagHistory of version 1: lists the moves of an existing tag, oldest first (docs/spec/version-1.md#tags). */
export const listTagHistoryV1: Handler = async (services, context, message) => {
  const { parentId, start, end } = message as ListTagHistoryRequest
  const record = services.cache.tables.get('Tag', parentId)
  if (record === undefined) throw notFound('Tag', parentId)
  const from = start ?? timestampFromMs(0)
  if (end !== undefined && !isBefore(from, end)) throw DomainError.invalid('end', 'must be later than start')
  const limits = { startMs: millisecondFrom(from), limit: maxRecords, ...(end === undefined ? {} : { endMs: millisecondFrom(end) }) }
  const found = await readHistory(services, { repo: record.parent, name: record.name, ...limits }, context.signal)
  const items = (found?.records ?? []).map(({ timeMs, digest }) => create(TagHistorySchema, { updateTimestamp: timestampFromMs(timeMs), digest }))
  return { message: create(TagHistoryListSchema, { items }) }
}

/** GetRepoTagsSummary of version 1: only answers which repo it is, for a caller who may list its tags. Version 1 adds the rest from lists of tags. */
export const summarizeTags: Handler = (_services, _context, message) => {
  const { repoId } = message as GetRepoTagsSummaryRequest
  return Promise.resolve({ message: create(RepoTagsSummarySchema, { id: repoId }) })
}

const listsRepos = setOf(['repo.list'])

/** GetRepoCountBySource of version 1: counts the repos with this source among those that the caller can see. */
export const getRepoCountBySource: Handler = async (services, context, message) => {
  const { id } = message as GetRepoCountBySourceRequest
  await prepared(context, listsRepos)
  const { tables } = services.cache
  const uidp = { descendantsOf: '', childrenOf: '', ancestorsOf: '', inRoot: false, ids: [id] }
  const { everywhere, groups } = visibility('Repo', { tables, context, uidp }, listsRepos)
  const repos = tables.table('Repo')
  const count = everywhere ? repos.matching(sourceFilter, id).size : groups.reduce((sum, group) => sum + repos.matching(sourceFilter, id, group).size, 0)
  return { message: create(RepoCountSchema, { count: BigInt(count) }) }
}
