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

/** The caller as the token describes it. Whether the identity exists, and what it may do, must be checked in the stored records. */
export interface AuthenticatedCaller {
  readonly identityUid: Uid
  /** True if the current configuration names the caller as an operator. */
  readonly operator: boolean
  readonly act: Actor
  readonly restrictions: TokenRestrictions
  /**
   * Issue time of the token in milliseconds since 1970. A token that is older than its identity belongs to an earlier owner of the uid and is refused (code
   * 16).
   */
  readonly issuedAtMs: number
  readonly expiresAtMs: number
}

/** The parts of a request that identify its caller. */
export interface CredentialInput {
  /** The raw value of the `authorization` header or metadata. */
  readonly authorization?: string | undefined
  /** Value of `taproot-identity`: the uid of the identity that the caller assumes with an external token. */
  readonly identity?: string | undefined
}

/** Verifies the credentials of requests. */
export interface Authenticator {
  /**
   * Accepts a platform access token, or an external token, which it exchanges internally. Throws DomainError 16 without a valid token.
   * Throws 7 if a valid token is for another audience or does not match its identity. Throws 3 if two identities are named.
   * Throws 14 if the issuer's keys are unavailable now.
   */
  authenticate(input: CredentialInput, signal: AbortSignal): Promise<AuthenticatedCaller>
  /** Authenticates without a wait if the signature of the platform token was checked recently. Otherwise returns undefined. Throws like `authenticate`. */
  authenticateRemembered(input: CredentialInput): AuthenticatedCaller | undefined
}

/** The dependencies of an authenticator. */
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

/** Approximate maximum size of the cache of verified credentials, in bytes. Its keys are the headers. */
const rememberedBytes = 16 * 1024 * 1024
/** Approximate memory of one cached credential, in bytes, in addition to its texts. */
const credentialBytes = 1024

/** The parsed content of a header whose token was verified before. Every request verifies everything except the parsing again. */
interface KnownCredential {
  readonly token: DecodedToken
  readonly bytes: number
}

/** Creates an Authenticator. Before the token is verified, its `iss` only decides how to verify it. */
export function createAuthenticator(options: AuthenticatorOptions): Authenticator {
  const acceptance: Acceptance = { use: 'access', audiences: options.audiences }
  const authenticatedCallers = new WeakMap<PlatformClaims, AuthenticatedCaller>()

  /** Returns the caller of verified claims. Whether the caller is an operator is read from the configuration each time. */
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
    // The token is exchanged at this moment, for the identity as it is now. Roles of mapped groups belong only to sessions
    // (docs/spec/identities.md#mapped-sessions), and this exchange starts none.
    const issuedAtMs = Math.max(options.clock.now(), createTimeMs ?? 0)
    return { identityUid, operator, act, restrictions, issuedAtMs, expiresAtMs: token.expiresAtMs }
  }

  const remembered = new RecentMap<string, KnownCredential>(rememberedBytes, ({ bytes }) => bytes, { clock: options.clock, ms: rememberMs })

  /** Caches a header. Its token must be verified, or everyone could fill the memory. */
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
