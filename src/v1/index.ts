import type { MethodRow } from '../base/schema/method.ts'
import type { Dispatch } from '../transport/call.ts'
import { methodNamed } from './inner-call.ts'
import { groupFilters, groupMap } from './kinds.ts'
import { creates, deletes, lists, replaces, type MappedMethod, type MethodMapping } from './mapped-methods.ts'

/** How each method of version 1 is answered by methods of version 2 (ADR 0035). */
const table: Readonly<Record<string, MethodMapping>> = {
  'iam.v1.Groups/Create': creates('iam.v2.GroupsService/CreateGroup', groupMap),
  // Only operators set these fields, so other callers need not repeat them.
  'iam.v1.Groups/Update': replaces('iam.v2.GroupsService/UpdateGroup', groupMap, ['verified', 'kind']),
  'iam.v1.Groups/List': lists('iam.v2.GroupsService/ListGroups', { filters: groupFilters, items: groupMap }),
  'iam.v1.Groups/Delete': deletes('iam.v2.GroupsService/DeleteGroup'),
}

/** The methods of version 1 that are answered by those of version 2. */
export const mappedMethods: ReadonlyMap<MethodRow, MappedMethod> = new Map(
  Object.entries(table).map(([name, mapping]) => {
    const row = methodNamed(name)
    return [row, mapping(row)]
  }),
)

/** Wraps the pipeline: it also answers methods of version 1. */
export function withVersion1(dispatch: Dispatch): Dispatch {
  return (call) => mappedMethods.get(call.method)?.answer(call, dispatch) ?? dispatch(call)
}
