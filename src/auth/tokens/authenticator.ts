import type { TokenRestrictions } from './token-restrictions.ts'
import { DomainError } from '../../base/errors.ts'
import { RecentMap } from '../../base/recent-map.ts'
import type { Clock } from '../../base/runtime.ts'
import type { Uid } from '../../base/uid.ts'
import { parseAuthorization } from './authorization-header.ts'
import { decodeToken } from './decoded-token.ts'
import type { DecodedToken } from './decoded-token.ts'
import type { ExternalSignIn } from '../oidc/external-sign-in.ts'
import type { Acceptance, PlatformClaims, PlatformTokens } from './platform-token.ts'
import { isOperator } from './principal.ts'
import type { Actor, Operator } from './principal.ts'
import { rememberMs } from './signature-checks.ts'
import { tokenFailure } from './token-error.ts'

/** Who calls, as far as the token says. Whether the identity exists, and what it may do, is asked of the records. */
export interface AuthenticatedCaller {
  readonly identityUid: Uid
  /** By the configuration as it is now. */
  readonly operator: boolean
  readonly act: Actor
  readonly restrictions: TokenRestrictions
  /** A token issued before its identity's createTime belongs to an earlier holder of the uid and is refused (code 16). */
  readonly issuedAtMs: number
  readonly expiresAtMs: number
}

/** What one request says about its caller. */
export interface CredentialInput {
  /** The raw `authorization` header or metadata. */
  readonly authorization?: string | undefined
  /** `taproot-identity`: the identity that an external token is meant for. */
  readonly identity?: string | undefined
}

/** Verifies the credential of a request. */
export interface Authenticator {
  /**
   * Accepts a platform access token, or an external token, which it exchanges internally. Throws DomainError 16 without a valid token.
   * Throws 7 if a valid token is for another audience or does not match its identity. Throws 3 if two identities are named.
   * Throws 14 if the issuer's keys are unavailable now.
   */
  authenticate(input: CredentialInput, signal: AbortSignal): Promise<AuthenticatedCaller>
  /** Authenticates synchronously a platform token whose signature was checked recently. Otherwise returns undefined. Throws like `authenticate`. */
  authenticateRemembered(input: CredentialInput): AuthenticatedCaller | undefined
}

/** What an authenticator is made of. */
export interface AuthenticatorOptions {
  readonly tokens: PlatformTokens
  readonly signIn: ExternalSignIn
  /** `iss` of platform tokens. */
  readonly ownIssuer: string
  /** Audiences of platform tokens that this endpoint accepts. */
  readonly audiences: readonly string[]
  readonly operators: readonly Operator[]
  readonly clock: Clock
}

/** Approximate cache size, in bytes, for verified credentials, keyed by header. */
const rememberedBytes = 16 * 1024 * 1024
/** Approximate overhead of one cached credential, in bytes, in addition to its texts. */
const credentialBytes = 1024

/** A header whose token was verified once. Only the parsing is reused: each request verifies everything else again. */
interface KnownCredential {
  readonly token: DecodedToken
  readonly bytes: number
}

/** See Authenticator. The unverified `iss` only decides how the token is verified. */
export function createAuthenticator(options: AuthenticatorOptions): Authenticator {
  const acceptance: Acceptance = { use: 'access', audiences: options.audiences }
  const authenticatedCallers = new WeakMap<PlatformClaims, AuthenticatedCaller>()

  /** What the token says is verified by now; whether it is an operator's is asked of the configuration each time. */
  function callerOf(claims: PlatformClaims): AuthenticatedCaller {
    const { identityUid, act, restrictions, issuedAtMs, expiresAtMs } = claims
    const operator = isOperator(options.operators, identityUid, act)
    const known = authenticatedCallers.get(claims)
    if (known?.operator === operator) return known
    const caller = { identityUid, operator, act, restrictions, issuedAtMs, expiresAtMs }
    authenticatedCallers.set(claims, caller)
    return caller
  }

  async function byExternalToken(token: DecodedToken, identity: string | undefined, signal: AbortSignal): Promise<AuthenticatedCaller> {
    const { identityUid, operator, act, createTimeMs, restrictions } = await options.signIn.signIn(token, { identity }, signal)
    // The exchange happens now, with the identity as it is now. Roles of mapped groups are a session's alone (docs/spec/identities.md#mapped-sessions): here none begins.
    const issuedAtMs = Math.max(options.clock.now(), createTimeMs ?? 0)
    return { identityUid, operator, act, restrictions, issuedAtMs, expiresAtMs: token.expiresAtMs }
  }

  const remembered = new RecentMap<string, KnownCredential>(rememberedBytes, ({ bytes }) => bytes, { clock: options.clock, ms: rememberMs })

  /** Only what is verified by now: else anybody could fill the memory. */
  function remember(authorization: string, token: DecodedToken): void {
    remembered.set(authorization, { token, bytes: authorization.length + token.text.length + credentialBytes })
  }

  return {
    authenticateRemembered(input) {
      const known = input.identity === undefined && input.authorization !== undefined ? remembered.get(input.authorization) : undefined
      if (known === undefined) return undefined
      try {
        const claims = options.tokens.verifyRemembered(known.token, acceptance)
        return claims === undefined ? undefined : callerOf(claims)
      } catch (error) {
        throw tokenFailure(error, 'direct')
      }
    },
    async authenticate(input, signal) {
      try {
        const credential = parseAuthorization(input.authorization)
        const named = input.identity === '' ? undefined : input.identity
        if (named !== undefined && credential.identity !== undefined && named !== credential.identity) {
          throw DomainError.invalid('taproot-identity', 'differs from the user name of the credentials')
        }
        const token = decodeToken(credential.token)
        if (credential.identity === undefined && token.issuer === options.ownIssuer) {
          const claims = await options.tokens.verify(token, acceptance, signal)
          if (input.authorization !== undefined) remember(input.authorization, token)
          return callerOf(claims)
        }
        return await byExternalToken(token, named ?? credential.identity, signal)
      } catch (error) {
        throw tokenFailure(error, 'direct')
      }
    },
  }
}
