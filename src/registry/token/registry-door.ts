import type { Authenticated, Authenticator } from '../../authn/authenticator.ts'
import { isOperator, type Operator } from '../../authn/principal.ts'
import { TokenError } from '../../authn/token-error.ts'
import { DomainError } from '../../core/errors.ts'
import { callerOfToken } from '../../resources/caller-of-token.ts'
import type { Caller, Services } from '../../resources/services.ts'
import type { Presented } from '../gate.ts'
import type { RegistryClaims } from './registry-claims.ts'
import type { GrantBearer } from './registry-minter.ts'
import type { RegistryTokens } from './registry-tokens.ts'

/** How much one principal, or one address, may ask. Each throws DomainError code 8 where it is too much. */
export interface RegistryLimits {
  principal(uid: string): void
  address(address: string): void
}

/** What the registry host's doors are made of. */
export interface RegistryDoorOptions {
  readonly services: Services
  /** For access tokens and external ones that are meant for the registry host. It reads identities from the snapshot as it is: the barrier comes before. */
  readonly authenticator: Authenticator
  readonly tokens: RegistryTokens
  readonly operators: readonly Operator[]
  /** `bounded` leaves out the question to the store (architecture 5). */
  readonly reads: 'linearizable' | 'bounded'
  /** Undefined where requests are not limited. */
  readonly limits: RegistryLimits | undefined
}

/** A credential that was verified, as far as it goes without the records. */
export type Credential =
  { readonly kind: 'none' } | { readonly kind: 'platform'; readonly token: Authenticated } | { readonly kind: 'registry'; readonly claims: RegistryClaims }

/** Verifies what comes with a request. When it resolves the snapshot holds what was acknowledged before the request came: one shared question to the store, nothing more. */
export interface RegistryDoor {
  /** Access tokens and external tokens: what the token endpoint takes. Throws DomainError. */
  platformCredential(input: Presented): Promise<Exclude<Credential, { kind: 'registry' }>>
  /** Those and registry tokens. Throws DomainError. */
  credential(input: Presented): Promise<Credential>
  /** Who that is as of the current snapshot; undefined for nobody. Throws code 16 where the identity is gone. */
  callerOf(credential: Credential): Caller | undefined
}

/** See RegistryDoor. */
export function createRegistryDoor(options: RegistryDoorOptions): RegistryDoor {
  const { services, authenticator, tokens, operators, reads, limits } = options

  async function barrier(): Promise<void> {
    if (reads === 'bounded') services.replica.assertLive()
    else await services.replica.barrier()
  }

  async function platform(input: Presented): Promise<Exclude<Credential, { kind: 'registry' }>> {
    if (isEmpty(input.authorization)) {
      await barrier()
      return { kind: 'none' }
    }
    const remembered = authenticator.authenticateRemembered(input)
    await barrier()
    const token = remembered ?? (await authenticator.authenticate(input, input.signal))
    limits?.principal(token.identityUid)
    return { kind: 'platform', token }
  }

  async function registry(authorization: string, input: Presented): Promise<RegistryClaims | undefined> {
    const remembered = tokens.verifyRemembered(authorization)
    const claims = remembered ?? (await tokens.verify(authorization, input.signal))
    if (claims === undefined) return undefined
    if (claims.bearer !== undefined) limits?.principal(claims.bearer.identityUid)
    await barrier()
    return claims
  }

  /** Refused credentials are counted by address, as the API does. Requests below `/v2/` without one are not: every pull begins with one. */
  async function counted<T>(input: Presented, work: () => Promise<T>): Promise<T> {
    try {
      return await work()
    } catch (error) {
      if (error instanceof DomainError && (error.code === 16 || error.code === 7) && input.remoteAddress !== undefined) limits?.address(input.remoteAddress)
      throw isBasic(input.authorization) ? aboutPassword(error) : error
    }
  }

  return {
    platformCredential(input) {
      // A token for anybody is made for whoever asks.
      const { remoteAddress } = input
      return counted(input, () => {
        if (isEmpty(input.authorization) && remoteAddress !== undefined) limits?.address(remoteAddress)
        return platform(input)
      })
    },
    credential: (input) =>
      counted(input, async () => {
        const { authorization = '' } = input
        const claims = isEmpty(authorization) ? undefined : await registry(authorization, input)
        return claims === undefined ? await platform(input) : { kind: 'registry', claims }
      }),
    callerOf(credential) {
      if (credential.kind === 'none') return undefined
      if (credential.kind === 'platform') return callerOfToken(services, credential.token)
      const { bearer } = credential.claims
      return bearer === undefined ? undefined : callerOfToken(services, { ...bearer, operator: isOperator(operators, bearer.identityUid, bearer.act) })
    },
  }
}

/** What a registry token says of its bearer: what a platform credential said. */
export function bearerOf(services: Services, { identityUid, act, narrowing }: Authenticated): GrantBearer {
  // This replica's clock may be behind the one that made the identity.
  const notBeforeMs = services.replica.snapshot.get('Identity', identityUid)?.createMs ?? 0
  return { identityUid, act, narrowing, notBeforeMs }
}

function isBasic(authorization: string | undefined): boolean {
  return /^\s*basic\b/i.test(authorization ?? '')
}

/** Who typed a user name and a password is told of those: that a password is no JWT says nothing to them. */
function aboutPassword(error: unknown): unknown {
  const isUnreadable = error instanceof DomainError && error.cause instanceof TokenError && error.cause.fault === 'unreadable'
  if (!isUnreadable) return error
  return new DomainError(16, 'the user name must be _token, or the uid of an identity, and the password a token that is known here', { cause: error })
}

function isEmpty(authorization: string | undefined): boolean {
  return authorization === undefined || authorization.trim() === ''
}
