import type { AuthenticatedCaller, Authenticator } from '../../auth/access-tokens/authenticator.ts'
import { isOperator, type Operator } from '../../auth/access-tokens/principal.ts'
import { TokenError } from '../../auth/access-tokens/token-error.ts'
import { DomainError } from '../../base/errors.ts'
import { callerOfToken, type Caller, type Services } from '../../engine/services.ts'
import type { Presented } from '../gate.ts'
import { createCounts, type RegistryLimits, type RequestSort } from './request-counts.ts'
import type { RegistryClaims } from './registry-claims.ts'
import type { GrantBearer } from './registry-minter.ts'
import type { RegistryTokens } from './registry-tokens.ts'

/** Dependencies of the authenticator of the registry host. */
export interface RegistryAuthenticatorOptions {
  readonly services: Services
  /**
   * Verifies access tokens and external tokens for the registry host. It reads identities from the current snapshot, so the barrier must
   * come first.
   */
  readonly authenticator: Authenticator
  readonly tokens: RegistryTokens
  readonly operators: readonly Operator[]
  /** `bounded` skips the query to the store before a read (docs/spec/storage.md#consistent-reads). */
  readonly reads: 'linearizable' | 'bounded'
  /** Undefined if requests are not rate-limited. */
  readonly limits: RegistryLimits | undefined
}

/** A credential whose signature and claims are valid. Its identity is not yet checked. */
export type VerifiedCredential =
  | { readonly kind: 'none' }
  | { readonly kind: 'platform'; readonly token: AuthenticatedCaller }
  | { readonly kind: 'registry'; readonly claims: RegistryClaims }

/**
 * Verifies the credential of a request. When it resolves, the snapshot contains all changes acknowledged before the request arrived. This
 * takes one query to the store, which requests share.
 */
export interface RegistryAuthenticator {
  /** Verifies a credential for the token endpoint: an access token or external token. The request counts as a read. Throws DomainError. */
  platformCredential(input: Presented): Promise<Exclude<VerifiedCredential, { kind: 'registry' }>>
  /** Verifies a credential for any other path: also accepts registry tokens. Throws DomainError. */
  credential(input: Presented, sort: RequestSort): Promise<VerifiedCredential>
  /** Counts a request that lacks a required credential for the rate limit. Throws DomainError code 8. */
  refused(input: Presented): void
  /** Returns the caller as of the current snapshot; undefined for an anonymous credential. Throws code 16 if the identity is gone. */
  callerOf(credential: VerifiedCredential): Caller | undefined
}

/** Creates a RegistryAuthenticator. */
export function createRegistryAuthenticator(options: RegistryAuthenticatorOptions): RegistryAuthenticator {
  const { services, authenticator, tokens, operators, reads } = options
  const counts = createCounts(options.limits)

  async function barrier(): Promise<void> {
    if (reads === 'bounded') services.cache.assertLive()
    else await services.cache.barrier()
  }

  /**
   * Waits for the barrier and returns the bearer's rights as of then. For a bearer with very many role bindings, this takes several turns
   * of the event loop.
   */
  async function upToDate({ identityUid, restrictions }: Pick<AuthenticatedCaller, 'identityUid' | 'restrictions'>): Promise<void> {
    await barrier()
    await services.grants.prepare(identityUid, restrictions)
  }

  async function platform(input: Presented, sort: RequestSort): Promise<Exclude<VerifiedCredential, { kind: 'registry' }>> {
    if (isEmpty(input.authorization)) {
      if (sort === 'read') await counts.turn(input)
      await barrier()
      return { kind: 'none' }
    }
    const remembered = authenticator.authenticateRemembered(input)
    await barrier()
    const token = remembered ?? (await authenticator.authenticate(input, input.signal))
    await counts.ofPrincipal(input, token.identityUid, sort)
    await services.grants.prepare(token.identityUid, token.restrictions)
    return { kind: 'platform', token }
  }

  async function registry(authorization: string, input: Presented, sort: RequestSort): Promise<RegistryClaims | undefined> {
    const remembered = tokens.verifyRemembered(authorization)
    const claims = remembered ?? (await tokens.verify(authorization, input.signal))
    if (claims === undefined) return undefined
    const { bearer } = claims
    if (bearer !== undefined) await counts.ofPrincipal(input, bearer.identityUid, sort)
    await (bearer === undefined ? barrier() : upToDate(bearer))
    return claims
  }

  function callerIn(credential: VerifiedCredential): Caller | undefined {
    if (credential.kind === 'none') return undefined
    if (credential.kind === 'platform') return callerOfToken(services, credential.token)
    const { bearer } = credential.claims
    return bearer === undefined ? undefined : callerOfToken(services, { ...bearer, operator: isOperator(operators, bearer.identityUid, bearer.act) })
  }

  return {
    refused: (input) => counts.refused(input),
    platformCredential: (input) => explained(input, () => counts.byAddress(input, 'read', () => platform(input, 'read'))),
    credential: (input, sort) =>
      explained(input, () =>
        counts.byAddress(input, sort, async () => {
          const { authorization = '' } = input
          const claims = isEmpty(authorization) ? undefined : await registry(authorization, input, sort)
          return claims === undefined ? await platform(input, sort) : { kind: 'registry', claims }
        }),
      ),
    callerOf(credential) {
      const caller = callerIn(credential)
      if (caller !== undefined) services.tracing?.annotate({ 'taproot.identity_uid': caller.identity })
      return caller
    },
  }
}

/** Returns the bearer for a registry token, from a verified platform credential. */
export function bearerOf(services: Services, { identityUid, act, restrictions }: AuthenticatedCaller): GrantBearer {
  // The clock of this replica may be behind the clock of the one that created the identity.
  const notBeforeMs = services.cache.tables.get('Identity', identityUid)?.createMs ?? 0
  return { identityUid, act, restrictions, notBeforeMs }
}

/** Runs `work`. Rewords its errors for what the client entered. */
async function explained<T>(input: Presented, work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    throw isBasic(input.authorization) ? aboutPassword(error) : error
  }
}

function isBasic(authorization: string | undefined): boolean {
  return /^\s*basic\b/i.test(authorization ?? '')
}

/** Rewords an error for a client that sent a user name and a password. Its user does not know that the password must be a JWT. */
function aboutPassword(error: unknown): unknown {
  const isUnreadable = error instanceof DomainError && error.cause instanceof TokenError && error.cause.reason === 'unreadable'
  if (!isUnreadable) return error
  return new DomainError(16, 'use _token or the uid of an identity as user name, and a token of this platform or a known issuer as password', { cause: error })
}

function isEmpty(authorization: string | undefined): boolean {
  return authorization === undefined || authorization.trim() === ''
}
