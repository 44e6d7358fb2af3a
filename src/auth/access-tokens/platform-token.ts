import type { TokenRestrictions } from './token-restrictions.ts'
import { SignJWT } from 'jose'
import type { JWTPayload } from 'jose'
import { encodeCapabilities, withoutOwn, type CapabilitySet } from '../../base/capability.ts'
import { DomainError } from '../../base/errors.ts'
import { randomHex } from '../../base/runtime.ts'
import type { Clock, Random } from '../../base/runtime.ts'
import type { Uid } from '../../base/uid.ts'
import { readCallerClaims, readIdentity, writeCallerClaims } from './caller-claims.ts'
import { checkTimes, maxTokenLength, type DecodedToken } from './decoded-token.ts'
import type { Actor } from './principal.ts'
import type { SignatureChecks } from './signature-checks.ts'
import { signingAlgorithm } from '../keys/signing-keys.ts'
import type { SigningKeys } from '../keys/signing-keys.ts'
import { TokenError, tokenTooLarge } from './token-error.ts'

/** The purpose of a platform token. Every endpoint accepts exactly one (docs/spec/tokens.md#token-uses). */
export type TokenUse = 'access' | 'registry'

/** The content of an access token to issue. */
export interface AccessGrant {
  readonly identityUid: Uid
  /**
   * Earliest issue time of the token, in milliseconds since 1970. It keeps the token valid if this replica's clock is behind that of the replica which created
   * the identity.
   */
  readonly notBeforeMs?: number
  readonly audiences: readonly string[]
  readonly act: Actor
  readonly restrictions: TokenRestrictions
  /** The capabilities that the identity holds now, by group uid, for information only. Omitted if they do not fit into the token. */
  readonly held?: ReadonlyMap<Uid, CapabilitySet>
}

/** The content of a verified platform token. */
export interface PlatformClaims {
  readonly identityUid: Uid
  readonly audiences: readonly string[]
  readonly act: Actor
  readonly restrictions: TokenRestrictions
  readonly issuedAtMs: number
  readonly expiresAtMs: number
}

/** Issues and verifies platform tokens. */
export interface PlatformTokens {
  /** Issues a token that every endpoint accepts. Throws code 9 `TOKEN_TOO_LARGE` if it would be too long. */
  mint(grant: AccessGrant): Promise<{ readonly token: string; readonly expiresAtMs: number }>
  /** Throws if `mint` would throw for this content. */
  check(grant: AccessGrant): void
  /**
   * Checks signature (with live keys only), issuer, use and times. Throws TokenError, which becomes code 16. Throws DomainError code 7 if only the audience is
   * not one of `audiences`. The caller must check whether the identity exists and is older than the token.
   */
  verify(token: DecodedToken, accept: Acceptance, signal: AbortSignal): Promise<PlatformClaims>
  /** Like `verify`, without a wait. Returns undefined if the signature must be checked first. */
  verifyRemembered(token: DecodedToken, accept: Acceptance): PlatformClaims | undefined
}

/** The kind of token that an endpoint accepts. */
export interface Acceptance {
  readonly use: TokenUse
  readonly audiences: readonly string[]
}

/** The dependencies of platform tokens. */
export interface PlatformTokensOptions {
  /** `iss` of the platform's tokens: the base URL. */
  readonly issuer: string
  readonly keys: SigningKeys
  readonly checks: SignatureChecks
  readonly clock: Clock
  readonly random: Random
}

/** Lifetime of an access token in seconds (docs/spec/tokens.md#access-tokens). */
export const accessTokenSeconds = 3600

/** Maximum number of groups in the claim `cap`. A token with more groups has no such claim. */
export const maxHeldGroups = 50
/** Maximum length of the claim `cap` as JSON, in characters, because the token must fit into a header. */
const maxHeldLength = 4096
/**
 * Maximum size of the payload as JSON, in bytes. With header and signature, which take less than 1024 characters, the token has at most the length that
 * endpoints accept.
 */
const maxPayloadBytes = ((maxTokenLength - 1024) * 3) / 4

/** Creates PlatformTokens. */
export function createPlatformTokens(options: PlatformTokensOptions): PlatformTokens {
  const { issuer, keys, checks, clock, random } = options
  const claims = new WeakMap<DecodedToken, PlatformClaims>()

  /** Returns the content of a token. It depends on the token's text alone, so it is read once per token. */
  function claimsOf(token: DecodedToken): PlatformClaims {
    const known = claims.get(token)
    if (known !== undefined) return known
    const read = readClaims(token)
    claims.set(token, read)
    return read
  }

  /** Returns the content of a token whose signature is verified, if the token is valid now and for one of the audiences. Throws otherwise. */
  function accepted(token: DecodedToken, accept: Acceptance): PlatformClaims {
    checkTimes(token, clock.now())
    if (token.claims['use'] !== accept.use) throw new TokenError('unreadable')
    if (!token.audiences.some((audience) => accept.audiences.includes(audience))) throw new DomainError(7, 'the token is for another audience')
    return claimsOf(token)
  }

  /** Returns the payload of a token that is issued now. `exp` is in seconds since 1970. */
  function payloadFor(grant: AccessGrant): JWTPayload & { readonly exp: number } {
    const issuedAtMs = Math.max(clock.now(), grant.notBeforeMs ?? 0)
    const exp = Math.floor(issuedAtMs / 1000) + accessTokenSeconds
    return fitting({ iss: issuer, sub: grant.identityUid, exp, jti: randomHex(random, 16), ...payloadOf(grant, issuedAtMs) }, grant.held)
  }

  return {
    async mint(grant) {
      const payload = payloadFor(grant)
      const key = keys.current()
      const token = await new SignJWT(payload).setProtectedHeader({ alg: signingAlgorithm, kid: key.kid, typ: 'JWT' }).sign(key.privateKey)
      return { token, expiresAtMs: payload.exp * 1000 }
    },
    check: (grant) => void payloadFor(grant),
    async verify(token, accept, signal) {
      if (token.issuer !== issuer) throw new TokenError('unknown_issuer')
      if (token.algorithm !== signingAlgorithm) throw new TokenError('algorithm')
      if (token.keyId === undefined || (keys.find(token.keyId) ?? (await keys.lookup(token.keyId, signal))) === undefined) throw new TokenError('unknown_key')
      await checks.check(token, keys.keySet())
      return accepted(token, accept)
    },
    verifyRemembered(token, accept) {
      const isKnown = token.issuer === issuer && token.keyId !== undefined && keys.find(token.keyId) !== undefined && checks.isRemembered(token, keys.keySet())
      return isKnown ? accepted(token, accept) : undefined
    },
  }
}

function readClaims(token: DecodedToken): PlatformClaims {
  return {
    identityUid: readIdentity(token.subject),
    audiences: token.audiences,
    ...readCallerClaims(token.claims),
    expiresAtMs: token.expiresAtMs,
  }
}

/** Returns the payload, with the held capabilities if they fit. Throws code 9 if the payload without them does not fit. */
function fitting<P extends JWTPayload>(payload: P, held: AccessGrant['held']): P {
  const cap = held === undefined ? undefined : heldClaim(held)
  const whole = cap === undefined ? payload : { ...payload, cap }
  if (bytesOf(whole) <= maxPayloadBytes) return whole
  if (bytesOf(payload) > maxPayloadBytes) throw tokenTooLarge('the access token would be too large for a header: request fewer scopes, or map fewer groups')
  return payload
}

function bytesOf(payload: JWTPayload): number {
  return Buffer.byteLength(JSON.stringify(payload))
}

function payloadOf({ act, restrictions, audiences }: AccessGrant, issuedAtMs: number): JWTPayload {
  const [only, ...more] = audiences
  return {
    ...(only === undefined ? {} : { aud: more.length === 0 ? only : [...audiences] }),
    use: 'access' satisfies TokenUse,
    ...writeCallerClaims({ act, restrictions, issuedAtMs }),
  }
}

/** Returns the claim `cap`: the encoded capabilities by group uid. Undefined if it would be too long. */
function heldClaim(held: ReadonlyMap<Uid, CapabilitySet>): Readonly<Record<string, string>> | undefined {
  if (held.size > maxHeldGroups) return undefined
  const claim = Object.fromEntries([...held].map(([uid, set]) => [uid, encodeCapabilities(withoutOwn(set))]))
  return JSON.stringify(claim).length > maxHeldLength ? undefined : claim
}
