import type { Uid } from '../../base/uid.ts'
import type { RecordTables } from '../../cache/record-tables.ts'

/** The usage that the change of a record adds to an organisation. Its numbers are negative if the usage decreases. */
export interface Growth {
  readonly root: Uid
  readonly kind: string
  readonly records: number
  /** Change of the size of stored envelopes, in bytes. */
  readonly bytes: number
}

/** The name of the limit for the number of records of each kind. */
export const recordLimits: Readonly<Record<string, string>> = {
  AccountAssociation: 'account_associations',
  Advisory: 'advisories',
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

/** The name of the limit for the size of all records, in MiB. */
export const recordBytesLimit = 'record_mib'

/** Names of future limits. Clients can set them, but no usage counts towards them. Answers omit them unless the request asks for them. */
const reservedLimits = ['clusters']

/** The limits whose usage is counted in memory, from the snapshot. */
export const countedLimits: readonly string[] = [...Object.values(recordLimits), recordBytesLimit]

/** The name of the limit for the size of blobs, in MiB. */
export const contentLimit = 'content_mib'

/** The name of the limit for the size of stored manifest records, in MiB. The manifests themselves count towards `content_mib`. */
export const manifestsLimit = 'manifest_mib'

/** The name of the limit for the number of open uploads. */
export const uploadsLimit = 'uploads'

/** The name of the limit for the size of the copies of events that were given up, in MiB. */
export const deadLettersLimit = 'dead_letter_mib'

/** All names that `resourceLimits` accepts, sorted. */
export const limitNames: readonly string[] = [...countedLimits, contentLimit, deadLettersLimit, manifestsLimit, uploadsLimit, ...reservedLimits].sort()

/** Number of bytes in a MiB. */
export const mebibyte = 2 ** 20

/** Returns what one unit of the limit stands for: one record, or the number of bytes in a MiB. */
export function unitOf(limit: string): number {
  return limit.endsWith('_mib') ? mebibyte : 1
}

/** Returns the limits of an organisation by name, each in its own unit; undefined if the root group does not exist. */
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
