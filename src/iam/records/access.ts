import { create } from '@bufbuild/protobuf'
import { accessThrough, BindingSight } from '../../authz/access.ts'
import { setOf } from '../../base/capability.ts'
import { hashQuery } from '../../base/page-token.ts'
import { resources, type ResourceRow } from '../../base/schema/schema.ts'
import { trustedUid } from '../../base/uid.ts'
import {
  AccessSchema,
  ListAccessResponseSchema,
  TestCapabilitiesResponseSchema,
  type Access,
  type ListAccessRequest,
  type TestCapabilitiesRequest,
} from '../../gen/taproot/iam/v2/access_pb.ts'
import { parseOrder } from '../../cache/lists/order.ts'
import type { CachedRecord } from '../../cache/records/cached-record.ts'
import { heldAt } from '../../engine/authorize.ts'
import { continuationOf, nextToken, pageLimit } from '../../engine/read.ts'
import { callerOf, type Handler, type Services } from '../../engine/services.ts'
import { capabilityNamed, shownBinding } from './explain.ts'

function bindingSchema(): ResourceRow {
  const row = resources.get('RoleBinding')
  if (row === undefined) throw new TypeError('RoleBinding is not a resource of the schema')
  return row
}

const sortable = bindingSchema()

function accessOf(services: Services, record: CachedRecord): Access {
  const { uid, identity, group, role, createTime } = shownBinding(services, record)
  return create(AccessSchema, {
    uid,
    registered: services.cache.tables.get('Identity', identity?.uid ?? '') !== undefined,
    ...(identity && { identity }),
    ...(group && { group }),
    ...(role && { role }),
    ...(createTime && { createTime }),
  })
}

/**
 * ListAccess: lists the identities with access to a resource, one result per role binding. If the caller cannot list the role bindings of
 * a group above, the results lack them, and the response names that group. A page costs as much as reading all role bindings at the
 * resource and above.
 */
export const listAccess: Handler = async (services, context, message) => {
  const request = message as ListAccessRequest
  const resource = trustedUid(request.resource)
  const capability = request.capability === '' ? undefined : capabilityNamed(request.capability).name
  const order = parseOrder(request.orderBy.trim() === '' ? sortable.defaultOrder : request.orderBy, sortable)
  const queryHash = hashQuery([context.method.rpc, resource, capability ?? '', order.id, callerOf(context).identity])
  const { after, restarted } = await continuationOf(services, context, { text: request.pageToken, queryHash, order })
  // Records may have changed since the first access check. From here on, everything is read at one commit, including this second access
  // check.
  context.authorize()
  const { tables } = services.cache
  const { open, withheld } = new BindingSight(callerOf(context).permissions()).split(resource)
  const found = accessThrough(tables, open, capability === undefined ? undefined : setOf([capability]))
  const rest = (after === undefined ? found : found.filter((record) => order.compare(record, after) > 0)).sort(order.compare)
  const limit = pageLimit(request.pageSize)
  const page = rest.slice(request.skip, request.skip + limit)
  const last = page.at(-1)
  const hasMore = last !== undefined && rest.length > request.skip + limit
  const answer = create(ListAccessResponseSchema, {
    access: page.map((record) => accessOf(services, record)),
    nextPageToken: hasMore ? nextToken(services, { order, record: last, queryHash }) : '',
    totalCount: BigInt(found.length),
    skipped: request.skip,
    withheldGroups: [...withheld],
  })
  return { message: answer, subject: resource, ...(restarted ? { pageTokenRestarted: true } : {}) }
}

/**
 * TestCapabilities: returns those of the requested capabilities that the caller holds at a resource. It decides like the methods that need
 * them, so the restrictions of a token and the roles of a sign-in count. An unknown capability is code 3.
 */
export const testCapabilities: Handler = (services, context, message) => {
  const request = message as TestCapabilitiesRequest
  const wanted = request.capabilities.map((text) => ({ text, name: capabilityNamed(text, 'capabilities').name }))
  // The schema checked the uid.
  const resource = trustedUid(request.resource)
  const held = heldAt(services.cache.tables, callerOf(context).permissions(), { resource, capabilities: wanted.map(({ name }) => name) })
  const capabilities = wanted.filter(({ name }) => held.has(name)).map(({ text }) => text)
  return Promise.resolve({ message: create(TestCapabilitiesResponseSchema, { capabilities }), subject: resource })
}
