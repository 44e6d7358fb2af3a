import { create, equals, type Message } from '@bufbuild/protobuf'
import { DomainError } from '../base/errors.ts'
import {
  AdvisoriesListSchema,
  ListAdvisoriesRequestSchema,
  type AdvisoriesList,
  type Advisory,
  type ListAdvisoriesRequest,
  type ListAdvisoryEventsRequest,
} from '../gen/taproot/vulnerabilities/v1/advisories_pb.ts'
import type { Answer, Call, Dispatch } from '../transport/call.ts'
import { advisoryListMaps, advisoryMap, eventListMaps } from './advisory-maps.ts'
import { InnerCall, methodNamed } from './inner-call.ts'
import { narrowed } from './lists.ts'
import { forgiving, forwarded, recordAnswer, renames, type MethodMapping, type RequestMapping } from './mapped-methods.ts'
import { remembering } from './repos.ts'

const get = methodNamed('vulnerabilities.v2.AdvisoriesService/GetAdvisory')
const list = methodNamed('vulnerabilities.v2.AdvisoriesService/ListAdvisories')

const filters: RequestMapping = {
  toV2(request) {
    const { id, uidp } = request as ListAdvisoriesRequest // the request of this method
    return Object.assign(advisoryListMaps.request.toV2(request), { uidp: narrowed(uidp, { id }) })
  },
  pathInV1: (path) => (path.startsWith('uidp') ? path : advisoryListMaps.request.pathInV1(path)),
}

/** Returns the advisory of a get; an empty list if there is none, or if the caller may not see it. */
async function withdrawn({ call, dispatch }: { call: Call; dispatch: Dispatch }, uid: string): Promise<Message> {
  try {
    const { message } = await dispatch(new InnerCall(call, get, create(get.input, { uid })))
    return create(AdvisoriesListSchema, { items: [advisoryMap.toV1(message) as Advisory], totalCount: 1n }) // what the map makes
  } catch (error) {
    if (error instanceof DomainError && [5, 7].includes(error.code)) return create(AdvisoriesListSchema, { totalCount: 0n })
    throw error
  }
}

/** Maps the delete of an advisory, which has a handler of its own. */
export const deletesAdvisory: MethodMapping = (row) => forgiving(row, { toV2: (request) => request, pathInV1: (path) => path })(row)

/** Maps the list of the events of an advisory to a get. */
export const listsAdvisoryEvents: MethodMapping = renames('vulnerabilities.v2.AdvisoriesService/GetAdvisory', {
  request: {
    toV2(request) {
      if ((request as ListAdvisoryEventsRequest).parentId === '') throw DomainError.invalid('parent_id', 'is required') // the request of this method
      return eventListMaps.request.toV2(request)
    },
    pathInV1: eventListMaps.request.pathInV1,
  },
  answer: eventListMaps.answer,
})

/** Maps the list of advisories. A list by `id` alone also has an advisory that is withdrawn, as the get of version 2. */
export const listsAdvisories: MethodMapping = () => ({
  method: list,
  async answer(call, { dispatch }): Promise<Answer> {
    const requests = remembering<ListAdvisoriesRequest>(filters)
    const answer = recordAnswer(advisoryListMaps.answer, await forwarded({ call, dispatch }, list, requests))
    const { id } = requests.asked()
    const isGet = id !== '' && equals(ListAdvisoriesRequestSchema, requests.asked(), create(ListAdvisoriesRequestSchema, { id }))
    const { items } = answer.message as AdvisoriesList // of the map
    return isGet && items.length === 0 ? { message: await withdrawn({ call, dispatch }, id) } : answer
  },
})
