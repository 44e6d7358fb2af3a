import type { TokenRestrictions } from './token-restrictions.ts'
import { SignJWT } from 'jose'
import type { JWTPayload } from 'jose'
import { encodeCapabilities } from '../../base/capability.ts'
import type { CapabilitySet } from '../../base/capability.ts'
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

/** Purpose of a platform token. Every verifier accepts exactly one use (docs/spec/tokens.md#token-uses). */
export type TokenUse = 'access' | 'registry'

/** Content of an access token to mint. */
export interface AccessGrant {
  readonly identityUid: Uid
  /** The token is not issued before this: keeps it valid where this replica's clock is behind the one that made the identity. */
  readonly notBeforeMs?: number
  readonly audiences: readonly string[]
  readonly act: Actor
  readonly restrictions: TokenRestrictions
  /** Capabilities that the identity holds now, by group uid, for information only. Omitted if they are long or do not fit into the token. */
  readonly held?: ReadonlyMap<Uid, CapabilitySet>
}

/** Content of a verified platform token. */
export interface PlatformClaims {
  readonly identityUid: Uid
  readonly audiences: readonly string[]
  readonly act: Actor
  readonly restrictions: TokenRestrictions
  readonly issuedAtMs: number
  readonly expiresAtMs: number
}

/** Mints and verifies platform tokens. */
export interface PlatformTokens {
  /** Mints a token that is short enough for every endpoint. Throws code 9 `TOKEN_TOO_LARGE` if it would be too long. */
  mint(grant: AccessGrant): Promise<{ readonly token: string; readonly expiresAtMs: number }>
  /** Throws as `mint` would. */
  check(grant: AccessGrant): void
  /**
   * Checks signature (live keys only), issuer, use and times; throws TokenError, which is code 16. Throws DomainError code 7 where all that is right but none of
   * `audiences` is meant. Whether the identity still exists, and since when, is the caller's question.
   */
  verify(token: DecodedToken, accept: Acceptance, signal: AbortSignal): Promise<PlatformClaims>
  /** The same without waiting; undefined where the signature has to be checked first. */
  verifyRemembered(token: DecodedToken, accept: Acceptance): PlatformClaims | undefined
}

/** What a verifier takes a token for. */
export interface Acceptance {
  readonly use: TokenUse
  readonly audiences: readonly string[]
}

/** What platform tokens are made of. */
export interface PlatformTokensOptions {
  /** `iss` of our tokens: the base URL. */
  readonly issuer: string
  readonly keys: SigningKeys
  readonly checks: SignatureChecks
  readonly clock: Clock
  readonly random: Random
}

/** How long an access token lives, in seconds (docs/spec/tokens.md#access-tokens). */
export const accessTokenSeconds = 3600

/** A token that would name more groups has no `cap`. */
export const maxHeldGroups = 50
/** Characters of `cap` as JSON: the token has to fit into a header. */
const maxHeldLength = 4096
/** Maximum size of the payload as JSON, in bytes. The header and signature take less than 1024 characters, so endpoints accept the token's length. */
const maxPayloadBytes = ((maxTokenLength - 1024) * 3) / 4

/** See PlatformTokens. */
export function createPlatformTokens(options: PlatformTokensOptions): PlatformTokens {
  const { issuer, keys, checks, clock, random } = options
  const claims = new WeakMap<DecodedToken, PlatformClaims>()

  /** What the token says; a function of its text alone, so that it is read once. */
  function claimsOf(token: DecodedToken): PlatformClaims {
    const known = claims.get(token)
    if (known !== undefined) return known
    const read = readClaims(token)
    claims.set(token, read)
    return read
  }

  /** What a token with a good signature says, where it is meant for this and valid now. */
  function accepted(token: DecodedToken, accept: Acceptance): PlatformClaims {
    checkTimes(token, clock.now())
    if (token.claims['use'] !== accept.use) throw new TokenError('unreadable')
    if (!token.audiences.some((audience) => accept.audiences.includes(audience))) throw new DomainError(7, 'the token is for another audience')
    return claimsOf(token)
  }

  /** The payload of a token that begins now, and its end in seconds. */
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

/** Returns the payload, with the held capabilities if they fit. Throws code 9 if the rest does not fit. */
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

/** Undefined where it is long. */
function heldClaim(held: ReadonlyMap<Uid, CapabilitySet>): Readonly<Record<string, string>> | undefined {
  if (held.size > maxHeldGroups) return undefined
  const claim = Object.fromEntries([...held].map(([uid, set]) => [uid, encodeCapabilities(set)]))
  return JSON.stringify(claim).length > maxHeldLength ? undefined : claim
}
