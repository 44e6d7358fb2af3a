import type { MethodRow } from '../base/schema/method.ts'
import type { Dispatch } from '../transport/call.ts'
import { limitStaticKeys, looksUp } from './identities.ts'
import { methodNamed } from './inner-call.ts'
import * as maps from './kinds.ts'
import { repoFilters, repoMap, tagFilters, tagMap } from './registry-maps.ts'
import { createsRepo, keepDigest, replacesRepo, updatesTag, withStoredReadme } from './repos.ts'
import { creates, deletes, lists, replaces, type MappedMethod, type MethodMapping, type Version1Options } from './mapped-methods.ts'

/** How each method of version 1 is answered by methods of version 2 (ADR 0035). */
const table: Readonly<Record<string, MethodMapping>> = {
  'events.v1.Subscriptions/Create': creates('events.v2.SubscriptionsService/CreateSubscription', maps.subscriptionMap),
  'events.v1.Subscriptions/List': lists('events.v2.SubscriptionsService/ListSubscriptions', { filters: maps.subscriptionFilters, items: maps.subscriptionMap }),
  'events.v1.Subscriptions/Delete': deletes('events.v2.SubscriptionsService/DeleteSubscription'),
  'iam.v1.Groups/Create': creates('iam.v2.GroupsService/CreateGroup', maps.groupMap),
  // Only operators set these fields, so other callers need not repeat them.
  'iam.v1.Groups/Update': replaces('iam.v2.GroupsService/UpdateGroup', maps.groupMap, ['verified', 'kind']),
  'iam.v1.Groups/List': lists('iam.v2.GroupsService/ListGroups', { filters: maps.groupFilters, items: maps.groupMap }),
  'iam.v1.Groups/Delete': deletes('iam.v2.GroupsService/DeleteGroup'),
  'iam.v1.Identities/Create': creates('iam.v2.IdentitiesService/CreateIdentity', maps.identityMap, limitStaticKeys),
  'iam.v1.Identities/Update': replaces('iam.v2.IdentitiesService/UpdateIdentity', maps.identityMap),
  'iam.v1.Identities/List': lists('iam.v2.IdentitiesService/ListIdentities', { filters: maps.identityFilters, items: maps.identityMap }),
  'iam.v1.Identities/Lookup': looksUp,
  'iam.v1.Identities/Delete': deletes('iam.v2.IdentitiesService/DeleteIdentity'),
  'iam.v1.Roles/Create': creates('iam.v2.RolesService/CreateRole', maps.roleMap),
  'iam.v1.Roles/Update': replaces('iam.v2.RolesService/UpdateRole', maps.roleMap),
  'iam.v1.Roles/List': lists('iam.v2.RolesService/ListRoles', { filters: maps.roleFilters, items: maps.roleMap, parentField: 'parent' }),
  'iam.v1.Roles/Delete': deletes('iam.v2.RolesService/DeleteRole'),
  'iam.v1.RoleBindings/Create': creates('iam.v2.RoleBindingsService/CreateRoleBinding', maps.roleBindingMap),
  'iam.v1.RoleBindings/Update': replaces('iam.v2.RoleBindingsService/UpdateRoleBinding', maps.roleBindingMap),
  'iam.v1.RoleBindings/List': lists('iam.v2.RoleBindingsService/ListRoleBindings', { filters: maps.roleBindingFilters, items: maps.bindingMap }),
  'iam.v1.RoleBindings/Delete': deletes('iam.v2.RoleBindingsService/DeleteRoleBinding'),
  'registry.v1.Registry/CreateRepo': createsRepo,
  'registry.v1.Registry/UpdateRepo': replacesRepo,
  'registry.v1.Registry/ListRepos': lists('registry.v2.ReposService/ListRepos', { filters: repoFilters, items: repoMap, complete: withStoredReadme }),
  'registry.v1.Registry/DeleteRepo': deletes('registry.v2.ReposService/DeleteRepo'),
  'registry.v1.Registry/CreateTag': creates('registry.v2.TagsService/CreateTag', tagMap, keepDigest),
  'registry.v1.Registry/UpdateTag': updatesTag,
  'registry.v1.Registry/ListTags': lists('registry.v2.TagsService/ListTags', { filters: tagFilters, items: tagMap }),
  'registry.v1.Registry/DeleteTag': deletes('registry.v2.TagsService/DeleteTag'),
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
