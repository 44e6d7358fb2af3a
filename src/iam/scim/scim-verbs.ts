import { create, type Message } from '@bufbuild/protobuf'
import { durationFromMs, durationMs, timestampMs } from '@bufbuild/protobuf/wkt'
import { DomainError } from '../../base/errors.ts'
import { errorDomainSuffix } from '../../base/schema/schema.ts'
import { rootOf, type Uid } from '../../base/uid.ts'
import {
  GenerateScimTokenResponseSchema,
  RegenerateScimTokenResponseSchema,
  RevokeScimTokenResponseSchema,
  SetScimEnabledResponseSchema,
  type GenerateScimTokenRequest,
  type RegenerateScimTokenRequest,
  type RevokeScimTokenRequest,
  type SetScimEnabledRequest,
} from '../../gen/taproot/iam/v2/identity_providers_pb.ts'
import type { ScimState } from '../../gen/taproot/store/v1/scim_pb.ts'
import type { CachedRecord } from '../../cache/records/cached-record.ts'
import { recordKey } from '../../store/keys.ts'
import { ChangeSet, newEtag } from '../../engine/change-set.ts'
import { commit, type MutationPlan } from '../../engine/commit.ts'
import { notFound, staleEtag } from '../../engine/errors.ts'
import { bindingOf, ownerBindings, ownersUnchanged } from '../../engine/organisation-owners.ts'
import type { Planning } from '../../engine/kind.ts'
import type { Context, Handler, Services } from '../../engine/services.ts'
import { assertEtag, emit, existingRecord } from '../../engine/write.ts'
import { assertHoldsWhatProviderConfers } from '../records/granted-capabilities.ts'
import { identityProviderKind } from '../records/identity-providers.ts'
import { defaultOverlapMs, generated, overlapEndMs, regenerated, revoked, revokeMs, scimToken, scimTokenDigest, switched } from './scim-credentials.ts'
import { scimEndpoint, scimStateOf, scimUnchanged, scimWrite, timeMember } from './scim-state.ts'
import { messageOf } from '../../cache/records/record-types.ts'

const tokenBytes = 32
/** Minimum number of owner role bindings in an organisation before SCIM can be turned on (docs/spec/scim.md#enabling). */
const minOwners = 2

/** Result of a change of SCIM credentials. */
interface ScimOutcome {
  readonly state: ScimState
  /** Body of the event, without the token. */
  readonly eventPayload: Message
  /** Response, if it differs from the event body. */
  readonly answer?: Message
}

/** A provider whose SCIM credentials are being changed. */
interface ScimSubject {
  readonly planning: Planning
  readonly record: CachedRecord
  readonly changes: ChangeSet
}

/**
 * Changes the SCIM credentials of a provider and writes the event, in one transaction. The transaction fails if the provider or its
 * credentials have changed since they were read.
 */
async function changeScim(services: Services, context: Context, change: { provider: string; plan: (subject: ScimSubject) => ScimOutcome }): Promise<Message> {
  return await commit(services, context, (planning): MutationPlan<Message> => {
    const record = existingRecord(identityProviderKind, planning, change.provider)
    const changes = new ChangeSet()
    changes.guard({ kind: 'exists', key: recordKey(record.kind, record.uid) })
    changes.guard(scimUnchanged(planning.tables, record.uid))
    const { state, eventPayload, answer = eventPayload } = change.plan({ planning, record, changes })
    changes.write(scimWrite(record.uid, state))
    emit(planning, context, { changes, subject: record.uid, body: { desc: context.method.output, message: eventPayload } })
    return { changes, result: context.validateOnly ? eventPayload : answer }
  })
}

/**
 * Throws code 7 unless the caller holds all capabilities that the provider confers, since people can sign in because of a valid token
 * (docs/spec/iam.md#no-escalation).
 */
function assertMayLetIn({ planning, record }: ScimSubject): void {
  const { defaultRole } = messageOf(record, 'IdentityProvider')
  assertHoldsWhatProviderConfers(planning, { uid: record.uid, defaultRole })
}

/** Returns the SCIM credentials. Throws code 5 if the provider never had a token, and code 10 if the etag differs. */
function existingState({ planning, record }: ScimSubject, etag?: string): ScimState {
  const state = scimStateOf(planning.tables, record.uid)
  if (state === undefined) throw notFound('ScimToken', record.uid, { resourceType: `iam.${errorDomainSuffix}/ScimToken` })
  if (etag !== undefined && etag !== state.etag) throw staleEtag()
  return state
}

function inYears(nowMs: number, years: number): number {
  const date = new Date(nowMs)
  return date.setUTCFullYear(date.getUTCFullYear() + years)
}

/**
 * Returns when the new token expires: after a year by default, after two years at most. Undefined if it never expires
 * (docs/spec/scim.md#scim-tokens).
 */
function expiryOf({ expireTime, neverExpires }: Pick<GenerateScimTokenRequest, 'expireTime' | 'neverExpires'>, nowMs: number): number | undefined {
  if (expireTime === undefined) return neverExpires ? undefined : inYears(nowMs, 1)
  if (neverExpires) throw DomainError.invalid('expire_time', 'must be absent if `never_expires` is set')
  const expireMs = timestampMs(expireTime)
  if (expireMs <= nowMs) throw DomainError.invalid('expire_time', 'must be in the future')
  if (expireMs > inYears(nowMs, 2)) throw DomainError.invalid('expire_time', 'must be within two years')
  return expireMs
}

/** GenerateScimToken: creates the first token of a provider. Only this response contains it. */
export const generateScimToken: Handler = async (services, context, message) => {
  const request = message as GenerateScimTokenRequest
  const provider = request.identityProviderUid
  const answered = await changeScim(services, context, {
    provider,
    plan(subject) {
      const { planning, record } = subject
      assertMayLetIn(subject)
      const expireMs = expiryOf(request, planning.nowMs)
      if (scimStateOf(planning.tables, record.uid) !== undefined) {
        const violation = { type: 'SCIM_TOKEN_EXISTS', subject: record.uid, description: 'this identity provider already had a SCIM token: regenerate it' }
        throw DomainError.precondition([violation], { reason: 'SCIM_TOKEN_EXISTS' })
      }
      const token = scimToken(services.random.bytes(tokenBytes))
      const state = generated({ digest: scimTokenDigest(token), expireMs }, { etag: newEtag(services.random) })
      const facts = { ...tokenFacts(services, record.uid, state), ...timeMember('expireTime', expireMs) }
      const of = (shown: object): Message => create(GenerateScimTokenResponseSchema, { ...facts, ...shown })
      return { state, eventPayload: of({}), answer: of({ token }) }
    },
  })
  return { message: answered, subject: provider }
}

function tokenFacts({ settings }: Services, uid: Uid, { etag }: ScimState): { endpointUrl: string; identityProviderUid: string; etag: string } {
  return { endpointUrl: scimEndpoint(settings.ownIssuer, uid), identityProviderUid: uid, etag }
}

/** RegenerateScimToken: creates another token, which only this response contains. The previous token stays valid during the overlap. */
export const regenerateScimToken: Handler = async (services, context, message) => {
  const request = message as RegenerateScimTokenRequest
  const provider = request.identityProviderUid
  const overlapMs = request.overlap === undefined ? defaultOverlapMs : durationMs(request.overlap)
  const answered = await changeScim(services, context, {
    provider,
    plan(subject) {
      const { planning, record } = subject
      assertMayLetIn(subject)
      const before = existingState(subject, request.etag)
      assertEtag(before, context.ifMatch)
      const expireMs = expiryOf(request, planning.nowMs)
      const token = scimToken(services.random.bytes(tokenBytes))
      const change = { etag: newEtag(services.random), nowMs: planning.nowMs, overlapMs }
      const state = regenerated(before, { digest: scimTokenDigest(token), expireMs }, change)
      const times = { ...timeMember('expireTime', expireMs), ...timeMember('previousTokenExpireTime', overlapEndMs(state, planning.nowMs)) }
      const facts = { ...tokenFacts(services, record.uid, state), ...times, requestedOverlap: durationFromMs(overlapMs) }
      const of = (shown: object): Message => create(RegenerateScimTokenResponseSchema, { ...facts, ...shown })
      return { state, eventPayload: of({}), answer: of({ token }) }
    },
  })
  return { message: answered, subject: provider }
}

/** RevokeScimToken: revokes all tokens of a provider. Needs no etag, so that a leaked token can always be revoked. */
export const revokeScimToken: Handler = async (services, context, message) => {
  const { identityProviderUid: provider } = message as RevokeScimTokenRequest
  const answered = await changeScim(services, context, {
    provider,
    plan(subject) {
      const { planning } = subject
      const before = existingState(subject)
      assertEtag(before, context.ifMatch)
      const state = revoked(before, { etag: newEtag(services.random), nowMs: planning.nowMs })
      const facts = { identityProviderUid: provider, etag: state.etag, enabled: state.enabled, ...timeMember('revokeTime', revokeMs(state)) }
      return { state, eventPayload: create(RevokeScimTokenResponseSchema, facts) }
    },
  })
  return { message: answered, subject: provider }
}

/** Throws code 9 if the organisation has too few owners that SCIM cannot remove. Guards that they stay owners until the commit. */
function assertEnoughOwners({ planning, record, changes }: ScimSubject): void {
  const root = rootOf(record.uid)
  const owners = ownerBindings(planning.tables, root).filter((binding) => planning.tables.get('Identity', bindingOf(binding).identityUid) !== undefined)
  if (owners.length < minOwners) {
    const violation = {
      type: 'SCIM_MIN_OWNERS',
      subject: root,
      description: `SCIM needs at least ${minOwners} owners: bind the role owner on the root group to more people or identities`,
    }
    throw DomainError.precondition([violation], { reason: 'SCIM_MIN_OWNERS' })
  }
  changes.add(ownersUnchanged(planning, root))
}

/** SetScimEnabled: turns SCIM on or off. Tokens, users and role bindings stay. */
export const setScimEnabled: Handler = async (services, context, message) => {
  const { identityProviderUid: provider, enabled, etag } = message as SetScimEnabledRequest
  const answered = await changeScim(services, context, {
    provider,
    plan(subject) {
      if (enabled) assertMayLetIn(subject)
      const before = existingState(subject, etag)
      assertEtag(before, context.ifMatch)
      if (enabled) assertEnoughOwners(subject)
      const state = switched(before, enabled, { etag: newEtag(services.random) })
      return { state, eventPayload: create(SetScimEnabledResponseSchema, { identityProviderUid: provider, enabled, etag: state.etag }) }
    },
  })
  return { message: answered, subject: provider }
}
