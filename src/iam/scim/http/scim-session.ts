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

/** A directory that was let in. */
export interface ScimSession extends ScimWriting {
  /** The address of the provider's SCIM server. */
  readonly endpoint: string
}

/** A directory has no rights at all: it says who its people are. */
const reach: EffectivePermissions = { operator: false, grants: [] }
/** Whose token no one has. */
const nobody = trustedUid('0'.repeat(40))
/** Read anew where a provider has no credentials: as much work as where it has. */
const noState = toBinary(ScimStateSchema, create(ScimStateSchema, { etag: '0'.repeat(16), enabled: true, digest: new Uint8Array(32).fill(1) }))

/** One answer for a token that does not work, SCIM that is off, and a provider that is missing or another's (docs/spec/scim.md#scim-server). */
function refused(): DomainError {
  return new DomainError(16, 'the bearer is no SCIM token that works here')
}

/** Throws code 16 unless the token works at this provider now. Does the same whether the provider is there or not. */
function assertWorks(services: Services, provider: Uid, token: string): void {
  const { snapshot } = services.replica
  const row = snapshot.get('IdentityProvider', provider)
  const state = scimStateOf(snapshot, provider)
  const works = checkScimToken(state ?? fromBinary(ScimStateSchema, noState), token, services.clock.now())
  if (!works || row === undefined || state?.enabled !== true) throw refused()
}

/** Lets a directory in by its SCIM token. Throws code 16; code 7 where its organisation is suspended; StoreError. */
export async function openSession(services: Services, asked: { provider: string; token: string }, signal: AbortSignal): Promise<ScimSession> {
  const { token } = asked
  // Before anything is asked of the store.
  if (!isScimToken(token)) throw refused()
  const provider = isUid(asked.provider) ? asked.provider : nobody
  await services.replica.barrier(signal)
  const authorize = (): void => {
    assertWorks(services, provider, token)
    assertNotSuspended(services.replica.snapshot, reach, provider)
  }
  authorize()
  const { ownIssuer } = services.settings
  const context: MutationContext = {
    caller: { identity: provider, operator: false, actor: { iss: ownIssuer, sub: `scim:${provider}` }, restrictions: {}, reach: () => reach },
    signal,
    validateOnly: false,
    authorize,
    ownership: apiOwnership,
  }
  return { services, provider, context, endpoint: scimEndpoint(ownIssuer, provider) }
}
