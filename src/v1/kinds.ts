import { GroupSchema as GroupV1, ListGroupsRequestSchema as ListGroupsV1 } from '../gen/taproot/iam/v1/groups_pb.ts'
import { GroupSchema, ListGroupsRequestSchema } from '../gen/taproot/iam/v2/groups_pb.ts'
import { defineMap, type FieldRow } from './field-map.ts'

/** A filter that the list maps itself. */
const elsewhere: FieldRow = { read: () => undefined }

/** A group. */
export const groupMap = defineMap(GroupV1, GroupSchema, {
  id: 'uid',
  name: 'name',
  description: 'description',
  resource_limits: 'resource_limits',
  verified: 'verified',
  kind: 'kind',
  status: 'status',
})

/** The filters of a list of groups. */
export const groupFilters = defineMap(ListGroupsV1, ListGroupsRequestSchema, { id: elsewhere, uidp: 'uidp', name: 'name' })
