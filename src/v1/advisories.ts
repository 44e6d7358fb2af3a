import { DomainError } from '../base/errors.ts'
import type { ListAdvisoriesRequest, ListAdvisoryEventsRequest } from '../gen/taproot/vulnerabilities/v1/advisories_pb.ts'
import { advisoryListMaps, eventListMaps } from './advisory-maps.ts'
import { narrowed } from './lists.ts'
import { forgiving, renames, type MethodMapping, type RequestMapping } from './mapped-methods.ts'

const filters: RequestMapping = {
  toV2(request) {
    const { id, uidp } = request as ListAdvisoriesRequest // the request of this method
    return Object.assign(advisoryListMaps.request.toV2(request), { uidp: narrowed(uidp, { id }) })
  },
  pathInV1: (path) => (path.startsWith('uidp') ? path : advisoryListMaps.request.pathInV1(path)),
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

/** Maps the list of advisories, which has pages. */
export const listsAdvisories: MethodMapping = renames('vulnerabilities.v2.AdvisoriesService/ListAdvisories', {
  request: filters,
  answer: advisoryListMaps.answer,
})
