import type { Uid } from '../../base/uid.ts'
import type { RecordTables } from '../../cache/record-tables.ts'

/** The usage that changes of one record add to an organisation; negative if it decreases. */
export interface Growth {
  readonly root: Uid
  readonly kind: string
  readonly records: number
  /** Bytes of stored envelopes. */
  readonly bytes: number
}

/** The limit of the number of records of each kind. */
export const recordLimits: Readonly<Record<string, string>> = {
  AccountAssociation: 'account_associations',
  ExternalGroupRoleMapping: 'external_group_role_mappings',
  Group: 'groups',
  GroupInvite: 'group_invites',
  Identity: 'identities',
  IdentityProvider: 'idps',
  Repo: 'repositories',
  Role: 'roles',
  RoleBinding: 'role_bindings',
  ScimUser: 'scim_users',
  Subscription: 'subscriptions',
  Tag: 'tags',
  TermsAcceptance: 'terms_acceptances',
}

/** The limit of the bytes of all records, in MiB. */
export const recordBytesLimit = 'record_mib'

/** Reserved names of future limits: clients can set them, no usage counts towards them, and answers omit them unless requested. */
const reservedLimits = ['clusters']

/** The limits whose usage the snapshot counts. */
export const countedLimits: readonly string[] = [...Object.values(recordLimits), recordBytesLimit]

/** The limit of the bytes of blobs, in MiB. */
export const contentLimit = 'content_mib'

/** The limit of the bytes of stored manifest records, in MiB. The manifests themselves count towards `content_mib`. */
export const manifestsLimit = 'manifest_mib'

/** The limit of open uploads. */
export const uploadsLimit = 'uploads'

/** Every name that `resourceLimits` accepts. */
export const limitNames: readonly string[] = [...countedLimits, contentLimit, manifestsLimit, uploadsLimit, ...reservedLimits].sort()

/** Bytes in a MiB, the unit of limits in MiB. */
export const mebibyte = 2 ** 20

/** Returns the unit of the limit: one record, or a MiB in bytes. */
export function unitOf(limit: string): number {
  return limit.endsWith('_mib') ? mebibyte : 1
}

/** Returns the limits of an organisation by name, in their units; undefined if the root group does not exist. */
export function limitsOf(tables: RecordTables, root: Uid): Readonly<Record<string, number>> | undefined {
  return tables.get('Group', root)?.message?.resourceLimits
}

const kindOf: ReadonlyMap<string, string> = new Map(Object.entries(recordLimits).map(([kind, limit]) => [limit, kind]))

/** Returns an organisation's usage of a limit as of the snapshot: a number of records, or bytes. */
export function recordUse(tables: RecordTables, root: Uid, limit: string): number {
  const usage = tables.usageOf(root)
  if (usage === undefined) return 0
  return limit === recordBytesLimit ? usage.bytes : (usage.records.get(kindOf.get(limit) ?? '') ?? 0)
}
