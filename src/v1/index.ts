import type { MethodRow } from '../base/schema/method.ts'
import type { Dispatch } from '../transport/call.ts'
import { limitStaticKeys, looksUp } from './identities.ts'
import { methodNamed } from './inner-call.ts'
import { bindingMap, groupFilters, groupMap, identityFilters, identityMap, roleBindingFilters, roleBindingMap, roleFilters, roleMap } from './kinds.ts'
import { creates, deletes, lists, replaces, type MappedMethod, type MethodMapping, type Version1Options } from './mapped-methods.ts'

/** How each method of version 1 is answered by methods of version 2 (ADR 0035). */
const table: Readonly<Record<string, MethodMapping>> = {
  'iam.v1.Groups/Create': creates('iam.v2.GroupsService/CreateGroup', groupMap),
  // Only operators set these fields, so other callers need not repeat them.
  'iam.v1.Groups/Update': replaces('iam.v2.GroupsService/UpdateGroup', groupMap, ['verified', 'kind']),
  'iam.v1.Groups/List': lists('iam.v2.GroupsService/ListGroups', { filters: groupFilters, items: groupMap }),
  'iam.v1.Groups/Delete': deletes('iam.v2.GroupsService/DeleteGroup'),
  'iam.v1.Identities/Create': creates('iam.v2.IdentitiesService/CreateIdentity', identityMap, limitStaticKeys),
  'iam.v1.Identities/Update': replaces('iam.v2.IdentitiesService/UpdateIdentity', identityMap),
  'iam.v1.Identities/List': lists('iam.v2.IdentitiesService/ListIdentities', { filters: identityFilters, items: identityMap }),
  'iam.v1.Identities/Lookup': looksUp,
  'iam.v1.Identities/Delete': deletes('iam.v2.IdentitiesService/DeleteIdentity'),
  'iam.v1.Roles/Create': creates('iam.v2.RolesService/CreateRole', roleMap),
  'iam.v1.Roles/Update': replaces('iam.v2.RolesService/UpdateRole', roleMap),
  'iam.v1.Roles/List': lists('iam.v2.RolesService/ListRoles', { filters: roleFilters, items: roleMap, parentField: 'parent' }),
  'iam.v1.Roles/Delete': deletes('iam.v2.RolesService/DeleteRole'),
  'iam.v1.RoleBindings/Create': creates('iam.v2.RoleBindingsService/CreateRoleBinding', roleBindingMap),
  'iam.v1.RoleBindings/Update': replaces('iam.v2.RoleBindingsService/UpdateRoleBinding', roleBindingMap),
  'iam.v1.RoleBindings/List': lists('iam.v2.RoleBindingsService/ListRoleBindings', { filters: roleBindingFilters, items: bindingMap }),
  'iam.v1.RoleBindings/Delete': deletes('iam.v2.RoleBindingsService/DeleteRoleBinding'),
}

/** The methods of version 1 that are answered by those of version 2. */
export const mappedMethods: ReadonlyMap<MethodRow, MappedMethod> = new Map(
  Object.entries(table).map(([name, mapping]) => {
    const row = methodNamed(name)
    return [row, mapping(row)]
  }),
)

/** Wraps the pipeline: it also answers methods of version 1. */
export function withVersion1(options: Version1Options): Dispatch {
  return (call) => mappedMethods.get(call.method)?.answer(call, options) ?? options.dispatch(call)
}
