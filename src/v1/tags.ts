import { create, type Message } from '@bufbuild/protobuf'
import { RepoTagsSummarySchema, type GetRepoTagsSummaryRequest, type RepoTagsSummary, type Tag as TagV1 } from '../gen/taproot/registry/v1/registry_pb.ts'
import { UIDPFilterSchema } from '../gen/taproot/common/v2/uidp_filter_pb.ts'
import type { ListTagsRequest, ListTagsResponse, Tag } from '../gen/taproot/registry/v2/tags_pb.ts'
import type { Answer, Call, Dispatch } from '../transport/calls/call.ts'
import type { FieldMap } from './field-map.ts'
import { InnerCall, methodNamed } from './inner-call.ts'
import { forwarded, recordAnswer, type MethodMapping } from './mapped-methods.ts'
import { tagMap } from './registry-maps.ts'
import { remembering } from './repos.ts'

const same = { toV2: (request: Message): Message => request }

/** Maps a method that has a handler of its own. */
export const passes: MethodMapping = (row) => ({ method: row, answer: (call, { dispatch }) => forwarded({ call, dispatch }, row, same) })

/** Maps a method that has a handler of its own, which answers in messages of version 2. `pathInV1` renames the fields in its errors, see RequestMapping. */
export function answersWith(map: FieldMap, pathInV1 = (path: string): string => path): MethodMapping {
  return (row) => ({
    method: row,
    answer: async (call, { dispatch }) => recordAnswer(map, await forwarded({ call, dispatch }, row, { ...same, pathInV1 })),
  })
}

const list = methodNamed('registry.v2.TagsService/ListTags')

/** Number of tags that are read at once. */
const tagsAtOnce = 200

/** Reads a page of tags in version 2. */
function tagPage({ call, dispatch }: { call: Call; dispatch: Dispatch }, filter: Partial<ListTagsRequest>): Promise<Answer> {
  return dispatch(new InnerCall(call, list, Object.assign(create(list.input), filter)))
}

function tagsIn({ page }: Pick<Answer, 'page'>): Tag[] {
  return (page?.items ?? []).map(({ message }) => message as Message as Tag) // items of a list of tags
}

/** Returns the longest of the names; the first in the order of names if several have that length. */
function longest(names: readonly string[]): string {
  return names.toSorted().reduce((found, name) => (name.length > found.length ? name : found), '')
}

/** Returns the longest other name of the digest of a tag. Empty if there is none. */
async function versionOf(outer: { call: Call; dispatch: Dispatch }, tag: Tag, filter: Partial<ListTagsRequest>): Promise<string> {
  if (tag.digest === '') return ''
  let found = ''
  for (
    let answer: Pick<Answer, 'page' | 'next'> | undefined = await tagPage(outer, { ...filter, digest: tag.digest, pageSize: tagsAtOnce });
    answer !== undefined;
  ) {
    const names = tagsIn(answer).map(({ name }) => name)
    found = longest([found, ...names.filter((name) => name !== tag.name)])
    answer = await answer.next?.()
  }
  return found
}

/** Maps the summary of the tags of a repo to lists of them. The lists are not one snapshot. */
export const summarizesTags: MethodMapping = (row) => ({
  method: row,
  async answer(call, { dispatch }) {
    const requests = remembering<GetRepoTagsSummaryRequest>({ ...same, pathInV1: (path) => path })
    const { message } = await forwarded({ call, dispatch }, row, requests)
    const { id } = message as RepoTagsSummary // the answer of this method
    const { excludeReferrers, excludeDates, excludeEpochs } = requests.asked()
    const families = { includeReferrers: !excludeReferrers, includeDates: !excludeDates, includeEpochs: !excludeEpochs }
    const outer = { call, dispatch }
    const filter = { uidp: create(UIDPFilterSchema, { childrenOf: id }), ...families }
    const all = await tagPage(outer, { ...filter, pageSize: 1, orderBy: 'updated_at desc' })
    const [newest] = tagsIn(all)
    const [named] = tagsIn(await tagPage(outer, { ...filter, pageSize: 1, name: 'latest' }))
    const latest = named ?? newest
    const summary = create(RepoTagsSummarySchema, { id, tagCount: (all.message as ListTagsResponse).totalCount ?? 0n }) // the answer of a list of tags
    if (newest?.updateTime !== undefined) summary.lastUpdated = newest.updateTime
    if (latest !== undefined) {
      summary.latestTag = tagMap.toV1(latest) as TagV1 // the map makes tags
      summary.latestVersion = await versionOf(outer, latest, filter)
    }
    return { message: summary }
  },
})
