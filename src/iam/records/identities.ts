import { assertCanGrant } from '../../authz/grant-check.ts'
import { create, equals } from '@bufbuild/protobuf'
import { timestampFromMs, timestampMs } from '@bufbuild/protobuf/wkt'
import { checkPatterns, matchesPattern } from '../../auth/oidc/claim-match.ts'
import { isSameIssuer, issuerNameError, personUid } from '../../auth/oidc/issuer-name.ts'
import { KeySetError } from '../../auth/keys/key-set.ts'
import { assertVerifying } from '../../auth/keys/static-keys.ts'
import { DomainError } from '../../base/errors.ts'
import { trustedUid, type Uid } from '../../base/uid.ts'
import {
  IdentitySchema,
  LookupIdentityResponseSchema,
  RelationshipType,
  type Identity,
  type Identity_AWSIdentity,
  type Identity_ClaimMatch,
  type Identity_StaticKeys,
  type LookupIdentityRequest,
} from '../../gen/taproot/iam/v2/identities_pb.ts'
import type { KindIndex, Resource, CachedRecord } from '../../cache/records/cached-record.ts'
import { cascadeKey, usedByPrefix } from '../../store/keys.ts'
import { bindingOf, makesOwner, mergeExtras, ownersLeave } from '../../engine/organisation-owners.ts'
import { defineKind, type MutationDraft, type Extra, type Planning } from '../../engine/kind.ts'
import { isPerson } from '../../engine/membership.ts'
import type { Handler } from '../../engine/services.ts'

type IdentityRecord = Identity & Resource

const relationshipTypes: Readonly<Record<string, string>> = {
  claim_match: String(RelationshipType.CLAIM_MATCH),
  static_keys: String(RelationshipType.STATIC),
  aws_identity: String(RelationshipType.AWS_IDENTITY),
  service_principal: String(RelationshipType.SERVICE_PRINCIPAL),
}

const index: KindIndex = {
  kind: 'Identity',
  desc: IdentitySchema,
  name: 'name',
  filters: { relationship_type: { oneof: 'relationship', values: relationshipTypes } },
  removedWith: [],
}

/** Default and maximum lifetime of static keys, from the creation of the identity, in milliseconds (docs/spec/identities.md#static-keys). */
const staticKeysLifeMs = 365 * 24 * 3600 * 1000

function refuseOwnIssuer(planning: Planning, issuer: string, field: string): void {
  if (isSameIssuer(issuer, planning.services.settings.ownIssuer)) throw DomainError.invalid(field, 'must not be the issuer of this platform')
}

/** Checks the issuer of an identity. An unchanged issuer is accepted, even if a later rule would refuse it. */
function checkIssuer(planning: Planning, issuer: string, current: Identity | undefined): void {
  const { development, privateIssuers } = planning.services.settings
  refuseOwnIssuer(planning, issuer, 'claim_match.issuer')
  const before = current?.relationship.case === 'claimMatch' ? current.relationship.value.iss.value : undefined
  const error = before === issuer ? undefined : issuerNameError(issuer, development || privateIssuers.has(issuer))
  if (error !== undefined) throw DomainError.invalid('claim_match.issuer', error)
}

function checkClaimMatch(planning: Planning, match: Identity_ClaimMatch, current: Identity | undefined): void {
  const { iss, sub, aud } = match
  if (iss.case === 'issuer') checkIssuer(planning, iss.value, current)
  checkPatterns([
    ...(iss.case === 'issuerPattern' ? [['claim_match.issuer_pattern', iss.value] as const] : []),
    ...(sub.case === 'subjectPattern' ? [['claim_match.subject_pattern', sub.value] as const] : []),
    ...(aud.case === 'audiencePattern' ? [['claim_match.audience_pattern', aud.value] as const] : []),
    ...Object.entries(match.claimPatterns).map(([claim, pattern]) => [`claim_match.claim_patterns[${JSON.stringify(claim)}]`, pattern] as const),
  ])
  if (iss.case === 'issuerPattern' && matchesPattern(iss.value, planning.services.settings.ownIssuer))
    throw DomainError.invalid('claim_match.issuer_pattern', 'must not match the issuer of this platform')
}

function checkKeys(jwks: string): void {
  try {
    assertVerifying(jwks)
  } catch (error) {
    if (!(error instanceof KeySetError)) throw error
    throw DomainError.invalid('static_keys.issuer_keys', error.message, { cause: error })
  }
}

function checkStaticKeys(planning: Planning, keys: Identity_StaticKeys, createMs: number): void {
  refuseOwnIssuer(planning, keys.issuer, 'static_keys.issuer')
  checkKeys(keys.issuerKeys)
  const latestMs = createMs + staticKeysLifeMs
  keys.expirationTime ??= timestampFromMs(latestMs)
  if (timestampMs(keys.expirationTime) > latestMs)
    throw DomainError.invalid('static_keys.expiration_time', 'must be at most 365 days after the creation of the identity')
}

function checkAws(aws: Identity_AWSIdentity): void {
  if (aws.awsArn.case === undefined) throw DomainError.invalid('aws_identity.arn', 'one of `arn`, `arn_pattern` is required')
  if (aws.awsUserId.case === undefined) throw DomainError.invalid('aws_identity.user_id', 'one of `user_id`, `user_id_pattern` is required')
  checkPatterns([
    ...(aws.awsArn.case === 'arnPattern' ? [['aws_identity.arn_pattern', aws.awsArn.value] as const] : []),
    ...(aws.awsUserId.case === 'userIdPattern' ? [['aws_identity.user_id_pattern', aws.awsUserId.value] as const] : []),
  ])
}

function checkRelationship(planning: Planning, record: Identity, current: Identity | undefined): void {
  const { relationship } = record
  const createMs = current?.createTime === undefined ? planning.nowMs : timestampMs(current.createTime)
  switch (relationship.case) {
    case 'claimMatch':
      return checkClaimMatch(planning, relationship.value, current)
    case 'staticKeys':
      return checkStaticKeys(planning, relationship.value, createMs)
    case 'awsIdentity':
      return checkAws(relationship.value)
    case 'servicePrincipal':
      throw DomainError.invalid('service_principal', 'is not a known service principal')
    case undefined:
      throw DomainError.invalid('claim_match', 'one of `claim_match`, `static_keys`, `aws_identity` is required')
  }
}

/**
 * Throws code 7 unless the caller holds all capabilities of the identity, since a caller who changes its sign-in can act as it
 * (docs/spec/iam.md#no-escalation).
 */
function assertHoldsWhatItConfers(planning: Planning, draft: MutationDraft<IdentityRecord>): void {
  for (const grant of planning.services.grants.of(draft.uid).grants) assertCanGrant(planning.permissions, grant.group, grant.capabilities)
}

function sameRelationship(one: Identity, other: Identity): boolean {
  const bare = (identity: Identity): Identity => create(IdentitySchema, { relationship: identity.relationship })
  return equals(IdentitySchema, bare(one), bare(other))
}

/** Returns the root groups that the identity owns by role bindings. A person can own several. */
function ownedBy(bindings: readonly CachedRecord[]): Set<Uid> {
  // Decodes only role bindings on root groups.
  const atRoots = bindings.filter((binding) => !binding.parent.includes('/'))
  return new Set(atRoots.filter((binding) => makesOwner(binding.parent, bindingOf(binding).roleUid)).map((binding) => trustedUid(binding.parent)))
}

/** Plans the deletion of the role bindings of an identity. Each root group that it owns must have another owner. */
function removal(planning: Planning, record: CachedRecord): Extra {
  const bindings = [...planning.tables.table('RoleBinding').matching('identity', record.uid)]
  const owners = [...ownedBy(bindings)].map((root) => ownersLeave(planning, root, (binding) => bindingOf(binding).identityUid === record.uid))
  // Fails the transaction if the identity gets another role before the commit, such as that of an owner.
  const unbound: Extra = { guards: [{ kind: 'quiet', prefix: usedByPrefix('RoleBinding.identity', record.uid), revision: planning.services.cache.revision }] }
  // A person may be pending in organisations; the cascade finds these entries.
  const mark: Extra =
    bindings.length === 0 && !isPerson(record.uid) ? {} : { writes: [{ kind: 'put', key: cascadeKey(record.uid), value: Buffer.from(index.kind) }] }
  return mergeExtras(unbound, mark, ...owners)
}

/** The kind Identity: a person or workload, and how its tokens are matched (docs/spec/identities.md#relationships). */
export const identityKind = defineKind<IdentityRecord>({
  index,
  desc: IdentitySchema,
  uniqueName: false,
  create(planning, draft) {
    checkRelationship(planning, draft.record, undefined)
    draft.record.lastSeenTime = timestampFromMs(planning.nowMs)
    return undefined
  },
  update(planning, draft, current) {
    // The Kubernetes object that takes over an identity can later change how it signs in.
    const isAdopted = planning.ownership.kind === 'object' && current.managedBy === ''
    if (isAdopted || !sameRelationship(draft.record, current)) assertHoldsWhatItConfers(planning, draft)
    checkRelationship(planning, draft.record, current)
    return undefined
  },
  remove: removal,
  asksAbout: (_tables, { uid }) => [uid],
})

/**
 * LookupIdentity: returns the uid of the person with this issuer and subject, even before the person registers. Never 404
 * (docs/spec/identities.md#identity-lookup).
 */
export const lookupIdentity: Handler = (_services, _context, message) => {
  const { issuer, subject } = message as LookupIdentityRequest
  return Promise.resolve({ message: create(LookupIdentityResponseSchema, { uid: personUid(issuer, subject) }) })
}
