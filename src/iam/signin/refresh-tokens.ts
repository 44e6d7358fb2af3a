import { createHash, timingSafeEqual } from 'node:crypto'
import { create, fromBinary, toBinary } from '@bufbuild/protobuf'
import { readCallerClaims, writeCallerClaims, type CallerClaims } from '../../auth/access-tokens/caller-claims.ts'
import { TokenError } from '../../auth/access-tokens/token-error.ts'
import { DomainError } from '../../base/errors.ts'
import { randomHex, type Random } from '../../base/runtime.ts'
import { isUid, type Uid } from '../../base/uid.ts'
import { commitEntries } from '../../engine/commit.ts'
import type { Services } from '../../engine/services.ts'
import { RefreshFamilySchema, type RefreshFamily } from '../../gen/taproot/store/v1/people_pb.ts'
import { admitsRefresh } from '../scim/scim-admission.ts'
import { unchangedProvider } from './sign-in-providers.ts'
import type { Entry, Put } from '../../store/store.ts'

/** Content of a refresh token. Clients may read only `exp` (docs/spec/tokens.md#refresh-tokens). */
interface RefreshToken {
  /** Seconds since 1970. */
  readonly exp: number
  readonly person: Uid
  /** Id of the family, the same in all refresh tokens of a sign-in: 32 hex digits. */
  readonly family: string
  /** 64 hex digits, different in every token. */
  readonly secret: string
}

/** Creates a token. Without a family, starts a new one. */
function newRefreshToken(random: Random, of: { person: Uid; expireMs: number; family?: string }): RefreshToken {
  const { person, expireMs, family = randomHex(random, 16) } = of
  return { exp: Math.floor(expireMs / 1000), person, family, secret: randomHex(random, 32) }
}

/** Returns the text of a token: standard base64 of JSON (docs/spec/tokens.md#refresh-tokens). */
function refreshTokenText({ exp, person, family, secret }: RefreshToken): string {
  return Buffer.from(JSON.stringify({ exp, sub: person, fam: family, sec: secret })).toString('base64')
}

const maxLength = 1024

function isHex(text: unknown, digits: number): text is string {
  return typeof text === 'string' && text.length === digits && /^[0-9a-f]+$/.test(text)
}

/** Parses the text of a refresh token. Throws TokenError `unreadable_refresh`. */
function parseRefreshToken(text: string): RefreshToken {
  const { exp, sub, fam, sec } = jsonOf(text)
  if (typeof exp !== 'number' || typeof sub !== 'string' || !isUid(sub) || !isHex(fam, 32) || !isHex(sec, 64)) throw new TokenError('unreadable_refresh')
  return { exp, person: sub, family: fam, secret: sec }
}

function jsonOf(text: string): Readonly<Record<string, unknown>> {
  if (text.length > maxLength || !/^[A-Za-z0-9+/_-]+={0,2}$/.test(text)) throw new TokenError('unreadable_refresh')
  try {
    const value: unknown = JSON.parse(Buffer.from(text, 'base64').toString('utf8'))
    // a cast: the caller checks every member
    if (typeof value === 'object' && value !== null) return value as Readonly<Record<string, unknown>>
  } catch (error) {
    throw new TokenError('unreadable_refresh', error)
  }
  throw new TokenError('unreadable_refresh')
}

/** Key prefix of families of refresh tokens. The rest of a key is `<person uid>/<family>`. */
export const refreshPrefix = 'x/refresh/'

/** The sign-in that a family of refresh tokens continues. */
export interface RefreshGrant {
  readonly person: Uid
  readonly claims: CallerClaims
  /** Identity provider of the sign-in. */
  readonly provider: Uid | undefined
  /** Id of the person in the directory of that provider. Empty if there is none. */
  readonly externalId: string
  /** Audiences of its access tokens. */
  readonly audiences: readonly string[]
}

/** A refresh token for a response. */
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

/** Returns the same error for every cause, since the cause would only help an attacker who found or guessed a token. */
function ended(): DomainError {
  return new DomainError(16, 'the refresh token expired or was revoked: sign in again', { reason: 'REFRESH_TOKEN_ENDED' })
}

function expireMsOf(services: Services, endMs: number): number {
  return Math.min(services.clock.now() + services.settings.refresh.idleMs, endMs)
}

/** Returns the write of a family whose valid token is `token`. */
function familyWrite(token: RefreshToken, family: Omit<RefreshFamily, '$typeName' | '$unknown' | 'digest' | 'expireTimeMs'>, expireMs: number): Put {
  const value = create(RefreshFamilySchema, { ...family, digest: digestOf(token), expireTimeMs: BigInt(expireMs) })
  return { kind: 'put', key: familyKey(token), value: toBinary(RefreshFamilySchema, value) }
}

/** Creates a family and its first token. Rejects like commitEntries, or with the signal's reason. */
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

/**
 * Returns true if a refresh token of this family can still be used. Its person and provider must be unchanged, and the provider must still
 * admit the person.
 */
function isStillValid(services: Services, { person, claims, provider, externalId }: RefreshGrant): boolean {
  const { tables } = services.cache
  const record = tables.get('Identity', person)
  if (record === undefined || claims.issuedAtMs < record.createMs) return false
  // The audience of the sign-in's token is the client.
  const { issuer, subject, audience: clientId } = claims.act
  if (provider === undefined) return true
  if (unchangedProvider(tables, { uid: provider, issuer, clientId }) === undefined) return false
  return admitsRefresh(tables, provider, { externalId, subject })
}

/** Revokes a family after a token was used twice, since one of the two users may have stolen it. */
async function endFamily(services: Services, token: RefreshToken, signal: AbortSignal): Promise<void> {
  services.log.warn('a refresh token was used a second time; all tokens of its family are revoked', { identity: token.person })
  await services.store.transact({ guards: [], writes: [{ kind: 'delete', key: familyKey(token) }] }, signal)
}

/** Returns the stored family of a token. Throws code 16 and revokes the family if the token is not the valid one. */
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

/** A refresh token that a client uses, and the checks before its use. */
export interface RefreshUse {
  readonly text: string
  /** Called before the use, with the content of the family. If it throws, the token stays valid. */
  readonly before: (grant: RefreshGrant) => void
}

function grantIn(token: RefreshToken, { claims, provider, externalId, audiences }: RefreshFamily): RefreshGrant {
  return {
    person: token.person,
    claims: readCallerClaims(JSON.parse(claims) as Readonly<Record<string, unknown>>), // a cast: writeCallerClaims wrote the value, and each member is checked
    provider: isUid(provider) ? provider : undefined,
    externalId,
    audiences,
  }
}

/**
 * Uses a refresh token. Returns its successor and the content of the family (docs/spec/tokens.md#refresh-tokens). If the token was used
 * before, revokes its family. Throws TokenError `unreadable_refresh`, code 16 `REFRESH_TOKEN_ENDED`, the errors of `before`, and
 * StoreError before the use. Also throws like commitEntries: after code 2, the token may be used.
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
 * Revokes the family of a refresh token, used or not (RFC 7009 2.1). Returns its person; undefined if the family does not exist. Throws
 * TokenError `unreadable_refresh` or StoreError.
 */
export async function revokeRefreshToken(services: Services, text: string, signal: AbortSignal): Promise<Uid | undefined> {
  const token = parseRefreshToken(text)
  const key = familyKey(token)
  if ((await services.store.get(key, signal)) === undefined) return undefined
  await services.store.transact({ guards: [], writes: [{ kind: 'delete', key }] }, signal)
  return token.person
}

/** Revokes all refresh tokens of a person. */
export async function endRefreshTokens(services: Services, person: Uid, signal: AbortSignal): Promise<void> {
  for (;;) {
    const { entries, more } = await services.store.range({ prefix: `${refreshPrefix}${person}/`, limit: 100 }, signal)
    if (entries.length > 0) await services.store.transact({ guards: [], writes: entries.map(({ key }) => ({ kind: 'delete', key })) }, signal)
    if (!more) return
  }
}
