import { create } from '@bufbuild/protobuf'
import type { AccountCheck, CloudAccount } from '../../auth/account-checks.ts'
import { DomainError, type FieldViolation } from '../../base/errors.ts'
import { trustedUid } from '../../base/uid.ts'
import {
  AccountAssociationSchema,
  AccountProviderType,
  CheckAccountAssociationResponseSchema,
  CheckStatus,
  type AccountAssociation,
  type CheckAccountAssociationRequest,
} from '../../gen/taproot/iam/v2/account_associations_pb.ts'
import { ServicePrincipalSchema, type Identity } from '../../gen/taproot/iam/v2/identities_pb.ts'
import type { KindIndex, Resource, CachedRecord } from '../../cache/records/cached-record.ts'
import { recordKey } from '../../store/keys.ts'
import { notFound } from '../../engine/errors.ts'
import { defineKind, type MutationDraft, type Extra, type Planning } from '../../engine/kind.ts'
import { callerOf, type Handler } from '../../engine/services.ts'
import { messageOf } from '../../cache/records/record-types.ts'

type AssociationRecord = AccountAssociation & Resource

const index: KindIndex = {
  kind: 'AccountAssociation',
  desc: AccountAssociationSchema,
  name: 'name',
  seenAtUid: true,
  filters: {},
  removedWith: [],
}

/** Returns the service principal of the identity in this record, by its name in the schema; undefined if it has none. */
function principalOf(record: CachedRecord | undefined): string | undefined {
  // a cast: a record of kind Identity contains an Identity
  const relationship = (record?.message as Identity | undefined)?.relationship
  if (relationship?.case !== 'servicePrincipal' || relationship.value === 0) return undefined
  return ServicePrincipalSchema.value[relationship.value]?.name
}

/**
 * Checks the service bindings: each names an identity directly in the group with that service principal (docs/spec/iam.md#account-associations). Missing,
 * foreign and unsuitable identities get the same error.
 */
function bindServices(planning: Planning, { uid, record }: MutationDraft<AssociationRecord>): Extra | undefined {
  const bindings = Object.entries(record.platform?.serviceBindings ?? {})
  const violations: FieldViolation[] = []
  const guards: Extra['guards'] = bindings.flatMap(([service, identity]) => {
    const record = planning.tables.get('Identity', identity)
    if (record?.parent === uid && principalOf(record) === service)
      return [{ kind: 'unchanged', key: recordKey('Identity', record.uid), revision: record.revision }]
    violations.push({
      field: `platform.service_bindings[${JSON.stringify(service)}]`,
      description: 'is not an identity in this group for this service principal',
    })
    return []
  })
  if (violations.length > 0) throw DomainError.invalidFields(violations)
  return { guards }
}

/**
 * Account associations: the accounts of a group at cloud providers. A group has at most one, with the uid of the group (docs/spec/iam.md#account-associations).
 */
export const accountAssociationKind = defineKind<AssociationRecord>({
  index,
  desc: AccountAssociationSchema,
  uniqueName: false,
  create: bindServices,
  update: bindServices,
  omitDeletePayload: true,
})

/** Returns the account of an association at a provider. Undefined if there is none. */
function accountAt({ amazon, google, azure }: AccountAssociation, provider: AccountProviderType): CloudAccount | undefined {
  switch (provider) {
    case AccountProviderType.AMAZON:
      return amazon === undefined ? undefined : { provider: 'amazon', account: amazon.account }
    case AccountProviderType.GOOGLE:
      return google === undefined ? undefined : { provider: 'google', projectNumber: google.projectNumber }
    case AccountProviderType.AZURE:
      return azure === undefined ? undefined : { provider: 'azure', tenantId: azure.tenantId, clientIds: azure.clientIds }
    case AccountProviderType.UNSPECIFIED:
      return undefined
  }
}

/** Results of a check. */
const answers = {
  ready: { status: CheckStatus.READY, reason: '' },
  not_configured: { status: CheckStatus.NOT_READY, reason: 'not configured' },
  refused: { status: CheckStatus.NOT_READY, reason: 'error exchanging credentials' },
} as const satisfies Record<AccountCheck['kind'], { status: CheckStatus; reason: string }>

/**
 * CheckAccountAssociation: tries to exchange credentials with one cloud provider. A failed exchange is a result, not an error
 * (docs/spec/iam.md#account-checks).
 */
export const checkAccountAssociation: Handler = async (services, context, message) => {
  const { uid, providerType } = message as CheckAccountAssociationRequest
  const record = services.cache.tables.get(index.kind, uid)
  if (record === undefined) throw notFound(index.kind, uid)
  const account = accountAt(messageOf(record, 'AccountAssociation'), providerType)
  const outcome: AccountCheck =
    account === undefined
      ? { kind: 'not_configured', message: 'the association has no account at this provider' }
      : await services.accountChecks.check(trustedUid(uid), account, context.signal)
  services.log.info('account checked', { group: uid, provider: account?.provider, outcome: outcome.kind, identity: callerOf(context).identity })
  const details = outcome.kind === 'ready' ? '' : outcome.message
  return { message: create(CheckAccountAssociationResponseSchema, { ...answers[outcome.kind], message: details }), subject: uid }
}
