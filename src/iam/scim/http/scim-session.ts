import { create, fromBinary, toBinary } from '@bufbuild/protobuf'
import type { EffectivePermissions } from '../../../authz/effective-permissions.ts'
import { DomainError } from '../../../base/errors.ts'
import { isUid, trustedUid, type Uid } from '../../../base/uid.ts'
import { ScimStateSchema } from '../../../gen/taproot/store/v1/scim_pb.ts'
import { assertNotSuspended } from '../../../engine/authorize.ts'
import { checkScimToken, isScimToken } from '../scim-credentials.ts'
import { scimEndpoint, scimStateOf } from '../scim-state.ts'
import { apiOwnership, type MutationContext, type Services } from '../../../engine/services.ts'
import type { ScimWriting } from '../scim-users.ts'

/** The session of an authenticated directory. */
export interface ScimSession extends ScimWriting {
  /** The URL of the provider's SCIM server. */
  readonly endpoint: string
}

/** A directory has no capabilities: it only manages its own users. */
const permissions: EffectivePermissions = { operator: false, grants: [] }
/** Uid used in place of a provider that does not exist. */
const noProvider = trustedUid('0'.repeat(40))
/** Used for a provider without credentials, so that the check takes the same time as with credentials. */
const noState = toBinary(ScimStateSchema, create(ScimStateSchema, { etag: '0'.repeat(16), enabled: true, digest: new Uint8Array(32).fill(1) }))

/** Returns the same error for a wrong token, for SCIM that is off, and for a missing or foreign provider (docs/spec/scim.md#scim-server). */
function invalidToken(): DomainError {
  return new DomainError(16, 'the bearer token is not a valid SCIM token of this identity provider')
}

/** Throws code 16 unless the token is currently valid for this provider. Takes the same steps for a missing provider. */
function assertWorks(services: Services, provider: Uid, token: string): void {
  const { tables } = services.cache
  const record = tables.get('IdentityProvider', provider)
  const state = scimStateOf(tables, provider)
  const works = checkScimToken(state ?? fromBinary(ScimStateSchema, noState), token, services.clock.now())
  if (!works || record === undefined || state?.enabled !== true) throw invalidToken()
}

/** Authenticates a directory by its SCIM token. Throws code 16, code 7 if its organisation is suspended, and StoreError. */
export async function openSession(services: Services, asked: { provider: string; token: string }, signal: AbortSignal): Promise<ScimSession> {
  const { token } = asked
  // Rejects other texts without a read of the store.
  if (!isScimToken(token)) throw invalidToken()
  const provider = isUid(asked.provider) ? asked.provider : noProvider
  await services.cache.barrier(signal)
  const authorize = (): void => {
    assertWorks(services, provider, token)
    assertNotSuspended(services.cache.tables, permissions, provider)
  }
  authorize()
  const { ownIssuer } = services.settings
  const context: MutationContext = {
    caller: { identity: provider, operator: false, actor: { iss: ownIssuer, sub: `scim:${provider}` }, restrictions: {}, permissions: () => permissions },
    signal,
    validateOnly: false,
    authorize,
    ownership: apiOwnership,
  }
  return { services, provider, context, endpoint: scimEndpoint(ownIssuer, provider) }
}
