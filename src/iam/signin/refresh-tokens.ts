import { createHash, timingSafeEqual } from 'node:crypto'
import { create, fromBinary, toBinary } from '@bufbuild/protobuf'
import { readCallerClaims, writeCallerClaims, type CallerClaims } from '../../auth/tokens/caller-claims.ts'
import { TokenError } from '../../auth/tokens/token-error.ts'
import { DomainError } from '../../base/errors.ts'
import { randomHex, type Random } from '../../base/runtime.ts'
import { isUid, type Uid } from '../../base/uid.ts'
import { commitEntries } from '../../engine/commit.ts'
import type { Services } from '../../engine/services.ts'
import { RefreshFamilySchema, type RefreshFamily } from '../../gen/taproot/store/v1/people_pb.ts'
import { admitsRefresh } from '../scim/scim-admission.ts'
import { unchangedProvider } from './sign-in-providers.ts'
import type { Entry, Put } from '../../store/store.ts'

/** What a refresh token says. Clients read `exp` of it and nothing else (docs/spec/tokens.md#refresh-tokens). */
interface RefreshToken {
  /** Seconds since 1970. */
  readonly exp: number
  readonly person: Uid
  /** 32 hex digits. All tokens that follow one another have one. */
  readonly family: string
  /** 64 hex digits, new in every token. */
  readonly secret: string
}

/** A fresh token: of a new family where none is given. */
function newRefreshToken(random: Random, of: { person: Uid; expireMs: number; family?: string }): RefreshToken {
  const { person, expireMs, family = randomHex(random, 16) } = of
  return { exp: Math.floor(expireMs / 1000), person, family, secret: randomHex(random, 32) }
}

/** Its text: standard base64 of JSON (docs/spec/tokens.md#refresh-tokens). */
function refreshTokenText({ exp, person, family, secret }: RefreshToken): string {
  return Buffer.from(JSON.stringify({ exp, sub: person, fam: family, sec: secret })).toString('base64')
}

const maxLength = 1024

function isHex(text: unknown, digits: number): text is string {
  return typeof text === 'string' && text.length === digits && /^[0-9a-f]+$/.test(text)
}

/** Reads what refreshTokenText wrote. Throws TokenError `unreadable_refresh`. */
function parseRefreshToken(text: string): RefreshToken {
  const { exp, sub, fam, sec } = jsonOf(text)
  if (typeof exp !== 'number' || typeof sub !== 'string' || !isUid(sub) || !isHex(fam, 32) || !isHex(sec, 64)) throw new TokenError('unreadable_refresh')
  return { exp, person: sub, family: fam, secret: sec }
}

function jsonOf(text: string): Readonly<Record<string, unknown>> {
  if (text.length > maxLength || !/^[A-Za-z0-9+/_-]+={0,2}$/.test(text)) throw new TokenError('unreadable_refresh')
  try {
    const value: unknown = JSON.parse(Buffer.from(text, 'base64').toString('utf8'))
    // Every member is checked by the caller.
    if (typeof value === 'object' && value !== null) return value as Readonly<Record<string, unknown>>
  } catch (error) {
    throw new TokenError('unreadable_refresh', error)
  }
  throw new TokenError('unreadable_refresh')
}

/** Families of refresh tokens: `<person uid>/<family>`. */
export const refreshPrefix = 'x/refresh/'

/** What a refresh token stands for. */
export interface RefreshGrant {
  readonly person: Uid
  readonly claims: CallerClaims
  /** The identity provider that the person came by. */
  readonly provider: Uid | undefined
  /** By what that provider's directory knows the person; empty where it can't. */
  readonly externalId: string
  /** What the access tokens that it gives are for. */
  readonly audiences: readonly string[]
}

/** A refresh token as it is handed out. */
export interface IssuedRefreshToken {
  readonly text: string
  readonly expireMs: number
}

function familyKey({ person, family }: Pick<RefreshToken, 'person' | 'family'>): string {
  return `${refreshPrefix}${person}/${family}`
}

function digestOf({ secret }: RefreshToken): Buffer {
  return createHash('sha256').update(secret).digest()
}

/** One answer for every reason: which it was would help only those who found or guessed a token. */
function ended(): DomainError {
  return new DomainError(16, 'the refresh token expired or was revoked: sign in again', { reason: 'REFRESH_TOKEN_ENDED' })
}

function expireMsOf(services: Services, endMs: number): number {
  return Math.min(services.clock.now() + services.settings.refresh.idleMs, endMs)
}

/** The stored form of the family whose one working token is `token`. */
function familyWrite(token: RefreshToken, family: Omit<RefreshFamily, '$typeName' | '$unknown' | 'digest' | 'expireTimeMs'>, expireMs: number): Put {
  const value = create(RefreshFamilySchema, { ...family, digest: digestOf(token), expireTimeMs: BigInt(expireMs) })
  return { kind: 'put', key: familyKey(token), value: toBinary(RefreshFamilySchema, value) }
}

/** Begins a family. Throws as commitEntries, or the signal's reason. */
export async function issueRefreshToken(services: Services, grant: RefreshGrant, signal: AbortSignal): Promise<IssuedRefreshToken> {
  const endMs = services.clock.now() + services.settings.refresh.maxMs
  const expireMs = expireMsOf(services, endMs)
  const token = newRefreshToken(services.random, { person: grant.person, expireMs })
  const family = {
    claims: JSON.stringify(writeCallerClaims(grant.claims)),
    provider: grant.provider ?? '',
    externalId: grant.externalId,
    audiences: [...grant.audiences],
    endTimeMs: BigInt(endMs),
  }
  signal.throwIfAborted()
  await commitEntries(services, [{ kind: 'absent', key: familyKey(token) }], [familyWrite(token, family, expireMs)])
  return { text: refreshTokenText(token), expireMs }
}

/** True where the person is the one that the family was begun for, and the provider that they came by still has the issuer and the client of then, and lets them in. */
function isStillValid(services: Services, { person, claims, provider, externalId }: RefreshGrant): boolean {
  const { tables } = services.cache
  const record = tables.get('Identity', person)
  if (record === undefined || claims.issuedAtMs < record.createMs) return false
  // The token for its client is what the sign-in began with.
  const { issuer, subject, audience: clientId } = claims.act
  if (provider === undefined) return true
  if (unchangedProvider(tables, { uid: provider, issuer, clientId }) === undefined) return false
  return admitsRefresh(tables, provider, { externalId, subject })
}

/** Ends a family: a token of it was shown twice, so that one of the two who have it is a thief. */
async function endFamily(services: Services, token: RefreshToken, signal: AbortSignal): Promise<void> {
  services.log.warn('a refresh token was used again: it and its successors are ended', { identity: token.person })
  await services.store.transact({ guards: [], writes: [{ kind: 'delete', key: familyKey(token) }] }, signal)
}

/** The family that the token belongs to, as it is stored; ends it where the token is not the one that works. Throws code 16. */
async function familyOf(services: Services, token: RefreshToken, signal: AbortSignal): Promise<{ entry: Entry; family: RefreshFamily }> {
  const entry = await services.store.get(familyKey(token), signal)
  if (entry === undefined) throw ended()
  const family = fromBinary(RefreshFamilySchema, entry.value)
  if (!timingSafeEqual(family.digest, digestOf(token))) {
    await endFamily(services, token, signal)
    throw ended()
  }
  return { entry, family }
}

/** A refresh token that is to be used. */
export interface RefreshUse {
  readonly text: string
  /** Shown what the token stands for before it is used; what this throws leaves it as it is. */
  readonly before: (grant: RefreshGrant) => void
}

function grantIn(token: RefreshToken, { claims, provider, externalId, audiences }: RefreshFamily): RefreshGrant {
  return {
    person: token.person,
    claims: readCallerClaims(JSON.parse(claims) as Readonly<Record<string, unknown>>), // writeCallerClaims wrote it, and each member is checked
    provider: isUid(provider) ? provider : undefined,
    externalId,
    audiences,
  }
}

/**
 * Uses a refresh token up: it dies, and its successor is answered with what the family stands for (docs/spec/tokens.md#refresh-tokens). One that was used before ends its family. Throws TokenError
 * `unreadable_refresh`; code 16 `REFRESH_TOKEN_ENDED`; what `before` throws; StoreError before the token is used; as commitEntries: after code 2 it may have been used up.
 */
export async function useRefreshToken(
  services: Services,
  { text, before }: RefreshUse,
  signal: AbortSignal,
): Promise<RefreshGrant & { readonly next: IssuedRefreshToken }> {
  const token = parseRefreshToken(text)
  await services.cache.barrier(signal)
  const { entry, family } = await familyOf(services, token, signal)
  const grant = grantIn(token, family)
  if (services.clock.now() >= Number(family.expireTimeMs) || !isStillValid(services, grant)) {
    await services.store.transact({ guards: [], writes: [{ kind: 'delete', key: entry.key }] }, signal)
    throw ended()
  }
  before(grant)
  const expireMs = expireMsOf(services, Number(family.endTimeMs))
  const next = newRefreshToken(services.random, { person: token.person, expireMs, family: token.family })
  const guard = { kind: 'unchanged', key: entry.key, revision: entry.revision } as const
  if (!(await commitEntries(services, [guard], [familyWrite(next, family, expireMs)]))) {
    await endFamily(services, token, signal)
    throw ended()
  }
  return { ...grant, next: { text: refreshTokenText(next), expireMs } }
}

/**
 * Ends the family that a refresh token belongs to, whichever of its tokens it is (RFC 7009 2.1). Returns the person whose it was; undefined where there is none any more. Throws
 * TokenError `unreadable_refresh`; StoreError.
 */
export async function revokeRefreshToken(services: Services, text: string, signal: AbortSignal): Promise<Uid | undefined> {
  const token = parseRefreshToken(text)
  const key = familyKey(token)
  if ((await services.store.get(key, signal)) === undefined) return undefined
  await services.store.transact({ guards: [], writes: [{ kind: 'delete', key }] }, signal)
  return token.person
}

/** Ends all refresh tokens of a person. */
export async function endRefreshTokens(services: Services, person: Uid, signal: AbortSignal): Promise<void> {
  for (;;) {
    const { entries, more } = await services.store.range({ prefix: `${refreshPrefix}${person}/`, limit: 100 }, signal)
    if (entries.length > 0) await services.store.transact({ guards: [], writes: entries.map(({ key }) => ({ kind: 'delete', key })) }, signal)
    if (!more) return
  }
}
