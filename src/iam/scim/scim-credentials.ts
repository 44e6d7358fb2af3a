import { createHash, timingSafeEqual } from 'node:crypto'
import { create } from '@bufbuild/protobuf'
import { IdentityProvider_SCIM_CredentialState as CredentialState } from '../../gen/taproot/iam/v2/identity_providers_pb.ts'
import { ScimStateSchema, type ScimState } from '../../gen/taproot/store/v1/scim_pb.ts'

/**
 * The life of a provider's SCIM tokens (docs/spec/scim.md#scim-tokens). There is one newest token, and for the length of an overlap the one before it.
 *
 * | state       | means                                                       | left by                                          |
 * | ----------- | ----------------------------------------------------------- | ------------------------------------------------ |
 * | NOT_ISSUED  | there never was a token                                     | generate -> LIVE                                 |
 * | LIVE        | the newest token works, no other does                       | its expiry -> EXPIRED, regenerate, revoke        |
 * | ROTATING    | the token before works still; the newest until it expires   | the overlap's end -> LIVE or EXPIRED, revoke     |
 * | EXPIRED     | no token works: the newest ran out                          | regenerate -> LIVE, revoke -> REVOKED            |
 * | REVOKED     | no token works: they were ended                             | regenerate -> LIVE                               |
 *
 * Regenerating a token that works leads to ROTATING, or with an overlap of 0 to LIVE. A token that does not work any more never works again. All functions here are pure.
 */
export interface ScimChange {
  /** Etag of the new state. */
  readonly etag: string
  readonly nowMs: number
}

/** Digest and expiry of a new token. */
export interface NewToken {
  readonly digest: Uint8Array
  /** Time of expiry in milliseconds since 1970; undefined if it does not expire. */
  readonly expireMs: number | undefined
}

/** Default overlap of the old and the new token, in milliseconds. */
export const defaultOverlapMs = 3_600_000
/** Maximum overlap in milliseconds. */
const maxOverlapMs = 24 * 3_600_000

const tokenPattern = /^cgscim_[0-9a-f]{64}$/

/** Returns the text of a SCIM token from 32 random bytes. */
export function scimToken(bytes: Uint8Array): string {
  return `cgscim_${Buffer.from(bytes).toString('hex')}`
}

/** True if the text has the form of a SCIM token. */
export function isScimToken(text: string): boolean {
  return tokenPattern.test(text)
}

/** Returns the digest that is stored for a token. */
export function scimTokenDigest(token: string): Uint8Array {
  return createHash('sha256').update(token).digest()
}

function ms(time: bigint | undefined): number | undefined {
  return time === undefined ? undefined : Number(time)
}

/** Returns when the newest token expires, in milliseconds since 1970. Undefined if it does not. */
export function tokenExpireMs(state: ScimState): number | undefined {
  return ms(state.expireTimeMs)
}

/** Returns when the newest token was revoked. Undefined if it was not. */
export function revokeMs(state: ScimState): number | undefined {
  return ms(state.revokeTimeMs)
}

/** Returns the end of the previous token's overlap. Undefined if that token does not work. */
export function overlapEndMs(state: ScimState, nowMs: number): number | undefined {
  const endMs = Number(state.previousExpireTimeMs)
  return state.previousDigest.length > 0 && nowMs < endMs ? endMs : undefined
}

function newestWorks(state: ScimState, nowMs: number): boolean {
  const expireMs = tokenExpireMs(state)
  return state.revokeTimeMs === undefined && (expireMs === undefined || nowMs < expireMs)
}

/** Returns the state in the table at ScimChange. */
export function credentialState(state: ScimState | undefined, nowMs: number): CredentialState {
  if (state === undefined) return CredentialState.NOT_ISSUED
  if (state.revokeTimeMs !== undefined) return CredentialState.REVOKED
  if (overlapEndMs(state, nowMs) !== undefined) return CredentialState.ROTATING
  return newestWorks(state, nowMs) ? CredentialState.LIVE : CredentialState.EXPIRED
}

function expireTime({ expireMs }: NewToken): Partial<Pick<ScimState, 'expireTimeMs'>> {
  return expireMs === undefined ? {} : { expireTimeMs: BigInt(expireMs) }
}

/** Returns the state with the first token. SCIM stays off until it is turned on. */
export function generated(token: NewToken, { etag }: Pick<ScimChange, 'etag'>): ScimState {
  return create(ScimStateSchema, { etag, enabled: false, digest: token.digest, ...expireTime(token) })
}

/**
 * Returns the state with another token. The previous newest token works during the overlap, 24 h at most, but not beyond its expiry. Tokens that do not work
 * stay invalid.
 */
export function regenerated(state: ScimState, token: NewToken, change: ScimChange & { readonly overlapMs: number }): ScimState {
  const { etag, nowMs } = change
  const overlapMs = newestWorks(state, nowMs) ? Math.min(change.overlapMs, maxOverlapMs) : 0
  const endMs = Math.min(nowMs + overlapMs, tokenExpireMs(state) ?? Infinity)
  const previous = overlapMs > 0 ? { previousDigest: state.digest, previousExpireTimeMs: BigInt(endMs) } : {}
  return create(ScimStateSchema, { etag, enabled: state.enabled, digest: token.digest, ...expireTime(token), ...previous })
}

/** Returns the state with all tokens revoked. An earlier revocation keeps its time. */
export function revoked(state: ScimState, { etag, nowMs }: ScimChange): ScimState {
  const { enabled, digest, expireTimeMs, revokeTimeMs = BigInt(nowMs) } = state
  return create(ScimStateSchema, { etag, enabled, digest, revokeTimeMs, ...(expireTimeMs === undefined ? {} : { expireTimeMs }) })
}

/** Returns the state with SCIM turned on or off. Tokens do not change. */
export function switched(state: ScimState, enabled: boolean, { etag }: Pick<ScimChange, 'etag'>): ScimState {
  return create(ScimStateSchema, { ...state, etag, enabled })
}

function isSame(one: Uint8Array, other: Uint8Array): boolean {
  return one.length === other.length && timingSafeEqual(one, other)
}

/**
 * True if `token` works now: the newest one, or the previous one during the overlap. The duration does not reveal the digests. `state.enabled` is checked
 * separately.
 */
export function checkScimToken(state: ScimState | undefined, token: string, nowMs: number): boolean {
  if (state === undefined || !isScimToken(token)) return false
  const digest = scimTokenDigest(token)
  const isNewest = isSame(digest, state.digest)
  const isPrevious = isSame(digest, state.previousDigest)
  return (isNewest && newestWorks(state, nowMs)) || (isPrevious && state.revokeTimeMs === undefined && overlapEndMs(state, nowMs) !== undefined)
}
