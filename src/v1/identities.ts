import { create, type Message } from '@bufbuild/protobuf'
import { timestampFromMs, timestampMs } from '@bufbuild/protobuf/wkt'
import { DomainError } from '../base/errors.ts'
import { notFound } from '../engine/errors.ts'
import type { Services } from '../engine/services.ts'
import { IdentitySchema as IdentityV1, type LookupIdentityRequest } from '../gen/taproot/iam/v1/identities_pb.ts'
import type { Identity, LookupIdentityResponse } from '../gen/taproot/iam/v2/identities_pb.ts'
import { InnerCall, methodNamed } from './inner-call.ts'
import { identityMap } from './kinds.ts'
import { forwarded, type MethodMapping } from './mapped-methods.ts'

/** Default lifetime of static keys, and their maximum in a create, in milliseconds (docs/spec/version-1.md#identities). */
const staticKeysLifeMs = 30 * 24 * 3600 * 1000

/** Sets the end of static keys in an identity, if it has none. */
export function endStaticKeys(record: Message, { clock }: Pick<Services, 'clock'>): void {
  const { relationship } = record as Identity // the record of a write of identities
  if (relationship.case === 'staticKeys') relationship.value.expirationTime ??= timestampFromMs(clock.now() + staticKeysLifeMs)
}

/** Limits the life of static keys in a new identity. Throws code 3 if it is longer. */
export function limitStaticKeys(record: Message, services: Pick<Services, 'clock'>): void {
  endStaticKeys(record, services)
  const { relationship } = record as Identity // see endStaticKeys
  const end = relationship.case === 'staticKeys' ? relationship.value.expirationTime : undefined
  if (end !== undefined && timestampMs(end) > services.clock.now() + staticKeysLifeMs)
    throw DomainError.invalid('static_keys.expiration_time', 'must be at most 30 days from now')
}

const lookup = methodNamed('iam.v2.IdentitiesService/LookupIdentity')
const list = methodNamed('iam.v2.IdentitiesService/ListIdentities')

/**
 * Maps the lookup of a person. Callers who may not list the person get the uid and what they asked with. Code 5 if the person never signed in
 * (docs/spec/version-1.md#identities).
 */
export const looksUp: MethodMapping = () => ({
  method: lookup,
  async answer(call, { dispatch, services }) {
    let asked = { issuer: '', subject: '' }
    const toV2 = (request: Message): Message => {
      const { issuer, subject } = request as LookupIdentityRequest // the request of this method
      asked = { issuer, subject }
      return create(lookup.input, asked)
    }
    const { message } = await forwarded({ call, dispatch }, lookup, { toV2 })
    const { uid } = message as LookupIdentityResponse // the answer of this method
    if (services.cache.tables.get('Identity', uid) === undefined) throw notFound('Identity', '')
    const { page } = await dispatch(new InnerCall(call, list, create(list.input, { uidp: { ids: [uid] } })))
    const seen = page?.items[0]
    if (seen !== undefined) return { message: identityMap.toV1(seen.message) }
    const { issuer, subject } = asked
    const value = { iss: { case: 'issuer', value: issuer }, sub: { case: 'subject', value: subject } } as const
    return { message: create(IdentityV1, { id: uid, relationship: { case: 'claimMatch', value } }) }
  },
})
