import type { Uid } from '../../base/uid.ts'
import type { Group } from '../../gen/taproot/iam/v2/groups_pb.ts'
import type { Snapshot } from '../../cache/snapshot.ts'

/** What changes of one record add to what an organisation has; less than nothing where it gets smaller. */
export interface Growth {
  readonly root: Uid
  readonly kind: string
  readonly records: number
  /** Of stored envelopes. */
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
  Tag: 'tags',
  TermsAcceptance: 'terms_acceptances',
}

/** The limit of the bytes of all records, in MiB. */
export const recordBytesLimit = 'record_mib'

/** Names that are kept for what is not served yet: they can be set, nothing counts towards them, and no answer names them unasked. */
const reservedLimits = ['clusters', 'subscriptions']

/** The limits whose use the snapshot knows. */
export const countedLimits: readonly string[] = [...Object.values(recordLimits), recordBytesLimit]

/** The limit of the bytes of blobs, in MiB. */
export const contentLimit = 'content_mib'

/** The limit of the bytes that the store keeps of manifests, in MiB: of their records, not of the manifests themselves, which `content_mib` counts. */
export const manifestsLimit = 'manifest_mib'

/** The limit of uploads that were begun and not ended. */
export const uploadsLimit = 'uploads'

/** Every name that `resourceLimits` takes. */
export const limitNames: readonly string[] = [...countedLimits, contentLimit, manifestsLimit, uploadsLimit, ...reservedLimits].sort()

/** Bytes in a MiB: what one unit of a limit in MiB stands for. */
export const mebibyte = 2 ** 20

/** What one unit of the limit stands for: a record, or a MiB in bytes. */
export function unitOf(limit: string): number {
  return limit.endsWith('_mib') ? mebibyte : 1
}

/** The limits of an organisation by name, in their units; undefined where there is no such root group. */
export function limitsOf(snapshot: Snapshot, root: Uid): Readonly<Record<string, number>> | undefined {
  // A row of kind Group holds a Group.
  return (snapshot.get('Group', root)?.message as unknown as Group | undefined)?.resourceLimits
}

const kindOf: ReadonlyMap<string, string> = new Map(Object.entries(recordLimits).map(([kind, limit]) => [limit, kind]))

/** What the records of an organisation use of a limit as of the snapshot: a number of records, or bytes. */
export function recordUse(snapshot: Snapshot, root: Uid, limit: string): number {
  const usage = snapshot.usageOf(root)
  if (usage === undefined) return 0
  return limit === recordBytesLimit ? usage.bytes : (usage.records.get(kindOf.get(limit) ?? '') ?? 0)
}
