import { clone, equals, type Message } from '@bufbuild/protobuf'
import type { FieldMask } from '@bufbuild/protobuf/wkt'
import { isSameIssuer, issuerNameError, normalizeIssuer } from '../../auth/oidc/issuer-name.ts'
import { applyMask } from '../../base/schema/field-mask.ts'
import { DomainError } from '../../base/errors.ts'
import type { Uid } from '../../base/uid.ts'
import {
  IdentityProvider_OIDC_CorrelationRule as CorrelationRule,
  IdentityProvider_OIDCSchema,
  IdentityProviderSchema,
  type IdentityProvider,
  type IdentityProvider_OIDC,
} from '../../gen/taproot/iam/v2/identity_providers_pb.ts'
import type { KindIndex, Resource, CachedRecord } from '../../cache/records/cached-record.ts'
import { scimKey, cascadeKey } from '../../store/keys.ts'
import { defineKind, type MutationDraft, type Extra, type Planning } from '../../engine/kind.ts'
import { isSecretSet } from '../../engine/secrets.ts'
import type { Context, Handler, ResourceSettings, Services } from '../../engine/services.ts'
import { createHandler, pathsOf, resourceIn, updateHandler } from '../../engine/write.ts'
import { assertCanConfer, assertHoldsWhatProviderConfers } from './granted-capabilities.ts'
import { scimEndpoint, scimStateOf, scimStatus, scimSummary } from '../scim/scim-state.ts'

type ProviderRecord = IdentityProvider & Resource

const index: KindIndex = {
  kind: 'IdentityProvider',
  desc: IdentityProviderSchema,
  name: 'name',
  foundByPath: true,
  // Every sign-in of a person looks up providers by issuer.
  filters: { issuer: { field: 'oidc.issuer', as: normalizeIssuer } },
  removedWith: [],
}

/** Path of the client secret in the secret fields of a provider. */
export const clientSecretPath = 'oidc.client_secret'

/** Returns the OIDC settings of a provider; undefined if it has none. */
export function oidcOf(record: IdentityProvider): IdentityProvider_OIDC | undefined {
  return record.configuration.case === 'oidc' ? record.configuration.value : undefined
}

/**
 * Throws unless the issuer is an https URL. The configuration may also allow private addresses. The issuer of this platform is not allowed
 * (docs/spec/identities.md#identity-providers).
 */
function assertIssuer({ ownIssuer, privateIssuers }: ResourceSettings, issuer: string): void {
  const error = issuerNameError(issuer, privateIssuers.has(issuer))
  if (error !== undefined) throw DomainError.invalid('oidc.issuer', error)
  if (isSameIssuer(new URL(normalizeIssuer(issuer)).href, new URL(ownIssuer).href))
    throw DomainError.invalid('oidc.issuer', 'must not be the issuer of this platform')
}

/** Checks the correlation rule: after creation, a request may only repeat or omit it (docs/spec/identities.md#correlation-rules). */
function settleCorrelationRule(oidc: IdentityProvider_OIDC, current: IdentityProvider_OIDC | undefined): void {
  const fixed = current?.correlationRule
  if (oidc.correlationRule === CorrelationRule.UNSPECIFIED) oidc.correlationRule = fixed ?? CorrelationRule.SUB_EQUALS_EXTERNAL_ID
  if (fixed !== undefined && oidc.correlationRule !== fixed) throw DomainError.invalid('oidc.correlation_rule', 'cannot be changed')
}

function settleOidc({ services }: Planning, { record, secrets }: MutationDraft<ProviderRecord>, current: IdentityProvider | undefined): void {
  const oidc = oidcOf(record)
  // The schema requires it.
  if (oidc === undefined) return
  const before = current === undefined ? undefined : oidcOf(current)
  assertIssuer(services.settings, oidc.issuer)
  settleCorrelationRule(oidc, before)
  // The stored secret would be sent to an issuer that does not know it.
  if (before !== undefined && before.issuer !== oidc.issuer && secrets.get(clientSecretPath)?.kind === 'kept') {
    throw DomainError.invalid(
      clientSecretPath,
      'is required when the issuer changes: send the secret of the new issuer, or add `clientSecret` to the mask to clear it',
    )
  }
  if (!oidc.pkceEnabled && !isSecretSet(secrets, clientSecretPath)) throw DomainError.invalid(clientSecretPath, 'is required unless `pkce_enabled` is set')
}

/** Returns true if the change affects how people sign in. */
function changesSignIn({ record, secrets }: MutationDraft<ProviderRecord>, current: IdentityProvider): boolean {
  const [oidc, before] = [oidcOf(record), oidcOf(current)]
  const fate = secrets.get(clientSecretPath)?.kind ?? 'kept'
  return fate !== 'kept' || oidc === undefined || before === undefined || !equals(IdentityProvider_OIDCSchema, oidc, before)
}

/**
 * Plans the deletion of a provider. Its SCIM credentials are deleted at once, its mappings later by the cascade
 * (docs/spec/conventions.md#deletion-order).
 */
function removal(_planning: Planning, record: CachedRecord): Extra {
  return {
    writes: [
      { kind: 'put', key: cascadeKey(record.uid), value: Buffer.from(index.kind) },
      { kind: 'delete', key: scimKey(record.uid) },
    ],
  }
}

/** The kind IdentityProvider: the people of a group sign in with it (docs/spec/identities.md#identity-providers). */
export const identityProviderKind = defineKind<ProviderRecord>({
  index,
  desc: IdentityProviderSchema,
  uniqueName: true,
  create(planning, draft) {
    settleOidc(planning, draft, undefined)
    return assertCanConfer(planning, { role: draft.record.defaultRole, at: draft.parent, field: 'default_role' })
  },
  update(planning, draft, current) {
    settleOidc(planning, draft, current)
    const { defaultRole } = draft.record
    const extra = defaultRole === current.defaultRole ? undefined : assertCanConfer(planning, { role: defaultRole, at: draft.parent, field: 'default_role' })
    if (changesSignIn(draft, current)) assertHoldsWhatProviderConfers(planning, { uid: draft.uid, defaultRole })
    return extra
  },
  remove: removal,
  render(records, record) {
    const shown: ProviderRecord = clone(IdentityProviderSchema, record)
    shown.scim = scimSummary(scimStateOf(records, record.uid as Uid))
    return shown
  },
  renderAlone(records, shown, { nowMs, settings }) {
    const uid = shown.uid as Uid
    return Object.assign(shown, { scim: scimStatus(scimStateOf(records, uid), scimEndpoint(settings.ownIssuer, uid), nowMs) })
  },
  eventPayload(shown) {
    const { createTime: _created, updateTime: _updated, scim: _scim, ...rest } = shown
    return clone(IdentityProviderSchema, rest as IdentityProvider)
  },
})

/**
 * Throws code 3 if the discovery document of the issuer shows that it does not support PKCE (docs/spec/identities.md#identity-providers).
 * Does nothing if the issuer does not answer.
 */
async function assertPkce(services: Services, context: Context, oidc: IdentityProvider_OIDC): Promise<void> {
  assertIssuer(services.settings, oidc.issuer)
  if (await services.deniesPkce(oidc.issuer, context.signal)) {
    throw DomainError.invalid('oidc.pkce_enabled', 'is not possible: the discovery document of the issuer lists no code challenge method S256')
  }
}

const createProvider = createHandler(identityProviderKind)
const updateProvider = updateHandler(identityProviderKind)

/** CreateIdentityProvider: checks the discovery document of the issuer, then creates the provider. */
export const createIdentityProvider: Handler = async (services, context, message) => {
  const oidc = oidcOf(resourceIn(identityProviderKind, context, message) as ProviderRecord)
  if (oidc?.pkceEnabled === true && oidc.issuer !== '') await assertPkce(services, context, oidc)
  return await createProvider(services, context, message)
}

/**
 * UpdateIdentityProvider: updates the provider. Checks the discovery document first if PKCE is turned on, or if it is on and the issuer
 * changes.
 */
export const updateIdentityProvider: Handler = async (services, context, message) => {
  const { updateMask: mask } = message as Message & { updateMask?: FieldMask }
  const patch = resourceIn(identityProviderKind, context, message)
  const cached = services.cache.tables.get(index.kind, patch.uid)
  if (cached !== undefined) {
    const next = applyMask(IdentityProviderSchema, { current: cached.message, patch }, pathsOf(identityProviderKind, context, { patch, mask }))
    const [oidc, before] = [next, cached.message].map((record) => oidcOf(record as ProviderRecord))
    const isNew = oidc?.pkceEnabled === true && (before?.pkceEnabled !== true || before.issuer !== oidc.issuer)
    if (isNew && oidc.issuer !== '') await assertPkce(services, context, oidc)
  }
  return await updateProvider(services, context, message)
}
