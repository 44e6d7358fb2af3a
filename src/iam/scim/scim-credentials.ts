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
  /** The etag of the state that comes of it. */
  readonly etag: string
  readonly nowMs: number
}

/** A new token: its digest and its end. */
export interface NewToken {
  readonly digest: Uint8Array
  /** Undefined where it does not expire. */
  readonly expireMs: number | undefined
}

/** How long the old token works beside a new one where nothing is said, in milliseconds. */
export const defaultOverlapMs = 3_600_000
/** How long it does at most. */
const maxOverlapMs = 24 * 3_600_000

const tokenPattern = /^cgscim_[0-9a-f]{64}$/

/** The text of a SCIM token, of 32 random bytes. */
export function scimToken(bytes: Uint8Array): string {
  return `cgscim_${Buffer.from(bytes).toString('hex')}`
}

/** Whether a text can be a SCIM token at all. */
export function isScimToken(text: string): boolean {
  return tokenPattern.test(text)
}

/** What is kept of a token. */
export function scimTokenDigest(token: string): Uint8Array {
  return createHash('sha256').update(token).digest()
}

function ms(time: bigint | undefined): number | undefined {
  return time === undefined ? undefined : Number(time)
}

/** When the newest token expires, in milliseconds since 1970; undefined where it does not. */
export function tokenExpireMs(state: ScimState): number | undefined {
  return ms(state.expireTimeMs)
}

/** When the newest token was revoked; undefined where it was not. */
export function revokeMs(state: ScimState): number | undefined {
  return ms(state.revokeTimeMs)
}

/** Until when the token before the newest works; undefined where it does not any more. */
export function overlapEndMs(state: ScimState, nowMs: number): number | undefined {
  const endMs = Number(state.previousExpireTimeMs)
  return state.previousDigest.length > 0 && nowMs < endMs ? endMs : undefined
}

function newestWorks(state: ScimState, nowMs: number): boolean {
  const expireMs = tokenExpireMs(state)
  return state.revokeTimeMs === undefined && (expireMs === undefined || nowMs < expireMs)
}

/** See ScimChange. */
export function credentialState(state: ScimState | undefined, nowMs: number): CredentialState {
  if (state === undefined) return CredentialState.NOT_ISSUED
  if (state.revokeTimeMs !== undefined) return CredentialState.REVOKED
  if (overlapEndMs(state, nowMs) !== undefined) return CredentialState.ROTATING
  return newestWorks(state, nowMs) ? CredentialState.LIVE : CredentialState.EXPIRED
}

function expireTime({ expireMs }: NewToken): Partial<Pick<ScimState, 'expireTimeMs'>> {
  return expireMs === undefined ? {} : { expireTimeMs: BigInt(expireMs) }
}

/** The first token; SCIM is off until it is turned on. */
export function generated(token: NewToken, { etag }: Pick<ScimChange, 'etag'>): ScimState {
  return create(ScimStateSchema, { etag, enabled: false, digest: token.digest, ...expireTime(token) })
}

/** Another token. The newest one before works for the overlap, 24 h at most, but not beyond its own end; one that does not work stays so, and so does the one before it. */
export function regenerated(state: ScimState, token: NewToken, change: ScimChange & { readonly overlapMs: number }): ScimState {
  const { etag, nowMs } = change
  const overlapMs = newestWorks(state, nowMs) ? Math.min(change.overlapMs, maxOverlapMs) : 0
  const endMs = Math.min(nowMs + overlapMs, tokenExpireMs(state) ?? Infinity)
  const previous = overlapMs > 0 ? { previousDigest: state.digest, previousExpireTimeMs: BigInt(endMs) } : {}
  return create(ScimStateSchema, { etag, enabled: state.enabled, digest: token.digest, ...expireTime(token), ...previous })
}

/** No token works any more. What is revoked already keeps its time. */
export function revoked(state: ScimState, { etag, nowMs }: ScimChange): ScimState {
  const { enabled, digest, expireTimeMs, revokeTimeMs = BigInt(nowMs) } = state
  return create(ScimStateSchema, { etag, enabled, digest, revokeTimeMs, ...(expireTimeMs === undefined ? {} : { expireTimeMs }) })
}

/** SCIM turned on or off; tokens stay as they are. */
export function switched(state: ScimState, enabled: boolean, { etag }: Pick<ScimChange, 'etag'>): ScimState {
  return create(ScimStateSchema, { ...state, etag, enabled })
}

function isSame(one: Uint8Array, other: Uint8Array): boolean {
  return one.length === other.length && timingSafeEqual(one, other)
}

/**
 * Whether `token` works now: the newest one, or the one before it during the overlap. How long it takes says nothing about the digests. Whether SCIM is on is another
 * question: `state.enabled`.
 */
export function checkScimToken(state: ScimState | undefined, token: string, nowMs: number): boolean {
  if (state === undefined || !isScimToken(token)) return false
  const digest = scimTokenDigest(token)
  const isNewest = isSame(digest, state.digest)
  const isPrevious = isSame(digest, state.previousDigest)
  return (isNewest && newestWorks(state, nowMs)) || (isPrevious && state.revokeTimeMs === undefined && overlapEndMs(state, nowMs) !== undefined)
}
