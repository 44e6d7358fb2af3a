import { Buffer } from 'node:buffer'
import { sign } from 'node:crypto'
import { parseAuthorization } from '../../authn/authorization-header.ts'
import { readCallerClaims, readIdentity, writeCallerClaims, type CallerClaims } from '../../authn/caller-claims.ts'
import { checkTimes, decodeToken, type DecodedToken } from '../../authn/decoded-token.ts'
import type { TokenUse } from '../../authn/platform-token.ts'
import { rememberMs, type SignatureChecks } from '../../authn/signature-checks.ts'
import { TokenError, tokenFailure } from '../../authn/token-error.ts'
import { DomainError } from '../../core/errors.ts'
import { RecentMap } from '../../core/recent-map.ts'
import { randomHex, type Clock, type Random } from '../../core/runtime.ts'
import { isUid, type Uid } from '../../core/uid.ts'
import type { RegistryAction } from '../gate.ts'
import { registryAlgorithm, type RegistryKeys } from './registry-keys.ts'

/** How long a registry token lives, in seconds (decisions "Access token life"). */
export const registryTokenSeconds = 600

/** What a registry token allows with one repository: it names the path AND what the path meant when it was issued. */
export interface TokenAccess {
  readonly path: string
  readonly actions: readonly RegistryAction[]
  /** The repo, or the group in which one of the path's last name may be made. */
  readonly place: { readonly uid: Uid } | { readonly parent: Uid }
}

/** Whom a registry token was issued to. */
export interface TokenBearer extends CallerClaims {
  readonly identityUid: Uid
}

/** What a verified registry token says. */
export interface RegistryClaims {
  /** Undefined where nobody signed in. */
  readonly bearer: TokenBearer | undefined
  /** By path. */
  readonly access: ReadonlyMap<string, TokenAccess>
}

/** A fresh registry token. */
export interface MintedToken {
  readonly token: string
  readonly issuedAtMs: number
}

/** Mints and verifies the tokens of the registry host (`use` is `registry`): no other door takes them, and this verifier takes nothing else (architecture 7). */
export interface RegistryTokens {
  mint(grant: { readonly bearer: TokenBearer | undefined; readonly access: readonly TokenAccess[] }): MintedToken
  /** What the credential says, where it is a registry token; undefined where it is another token. Throws DomainError: 16 for a bad one, 7 for another registry's. */
  verify(authorization: string, signal: AbortSignal): Promise<RegistryClaims | undefined>
  /** The same without waiting; undefined where it was not verified lately. */
  verifyRemembered(authorization: string): RegistryClaims | undefined
}

/** What registry tokens are made of. */
export interface RegistryTokensOptions {
  /** `iss`: our own issuer, so that no exchange takes such a token. */
  readonly issuer: string
  /** `aud`: the registry host. */
  readonly service: string
  readonly keys: RegistryKeys
  readonly checks: SignatureChecks
  readonly clock: Clock
  readonly random: Random
}

/** Verified tokens are kept for the next request with the same header: about so many bytes at least, and twice that at most. */
const rememberedBytes = 16 * 1024 * 1024
/** About what one takes beside its texts. */
const tokenBytes = 2048

interface KnownToken {
  readonly token: DecodedToken
  readonly claims: RegistryClaims
}

const use: TokenUse = 'registry'
/** `sub` where nobody signed in: no uid. */
const anonymous = 'anonymous'

/** See RegistryTokens. */
export function createRegistryTokens(options: RegistryTokensOptions): RegistryTokens {
  const { issuer, service, keys, checks, clock, random } = options
  const remembered = new RecentMap<string, KnownToken>(rememberedBytes, ({ token }) => 2 * token.text.length + tokenBytes, { clock, ms: rememberMs })

  /** Throws where a token with a good signature is not valid now, or not for this. */
  function assertAccepted(token: DecodedToken): void {
    checkTimes(token, clock.now())
    if (token.claims['use'] !== use) throw new TokenError('unreadable')
    if (!token.audiences.includes(service)) throw new DomainError(7, 'the token is for another audience')
  }

  async function verifyToken(token: DecodedToken, signal: AbortSignal): Promise<RegistryClaims> {
    if (token.keyId === undefined || (await keys.lookup(token.keyId, signal)) === undefined) throw new TokenError('unknown_key')
    await checks.check(token, keys.keySet())
    assertAccepted(token)
    return readClaims(token)
  }

  return {
    mint({ bearer, access }) {
      const issuedAtMs = bearer?.issuedAtMs ?? clock.now()
      const issuedAtSeconds = Math.floor(issuedAtMs / 1000)
      const { header, privateKey } = keys.current()
      const payload = {
        iss: issuer,
        sub: bearer?.identityUid ?? anonymous,
        aud: service,
        exp: issuedAtSeconds + registryTokenSeconds,
        ...(bearer === undefined ? { iat: issuedAtSeconds } : writeCallerClaims(bearer)),
        jti: randomHex(random, 16),
        use,
        access: access.map(({ path, actions, place }) => ({ type: 'repository', name: path, actions, ...place })),
      }
      const text = `${header}.${Buffer.from(JSON.stringify(payload)).toString('base64url')}`
      const signature = sign('sha256', Buffer.from(text), { key: privateKey, dsaEncoding: 'ieee-p1363' })
      return { token: `${text}.${signature.toString('base64url')}`, issuedAtMs }
    },
    async verify(authorization, signal) {
      try {
        const credential = parseAuthorization(authorization)
        const token = decodeToken(credential.token)
        if (credential.identity !== undefined || token.issuer !== issuer || token.algorithm !== registryAlgorithm) return undefined
        const claims = await verifyToken(token, signal)
        remembered.set(authorization, { token, claims })
        return claims
      } catch (error) {
        throw tokenFailure(error, 'direct')
      }
    },
    verifyRemembered(authorization) {
      const known = remembered.get(authorization)
      if (known === undefined) return undefined
      const { token, claims } = known
      if (keys.find(token.keyId ?? '') === undefined || !checks.isRemembered(token, keys.keySet())) return undefined
      try {
        assertAccepted(token)
        return claims
      } catch (error) {
        throw tokenFailure(error, 'direct')
      }
    },
  }
}

function readClaims(token: DecodedToken): RegistryClaims {
  const { access } = token.claims
  if (!Array.isArray(access)) throw new TokenError('unreadable')
  const entries = access.map(readAccess)
  return {
    bearer: token.subject === anonymous ? undefined : { identityUid: readIdentity(token.subject), ...readCallerClaims(token.claims) },
    access: new Map(entries.map((entry) => [entry.path, entry])),
  }
}

/** We signed it: what has another form is of another version, and allows nothing. */
function readAccess(entry: unknown): TokenAccess {
  const { name, actions, uid, parent } = (typeof entry === 'object' && entry !== null ? entry : {}) as Record<string, unknown> // a cast of unknown JSON: each member is checked below
  if (typeof name !== 'string' || !Array.isArray(actions)) throw new TokenError('unreadable')
  const place = typeof uid === 'string' && isUid(uid) ? { uid } : typeof parent === 'string' && isUid(parent) ? { parent } : undefined
  if (place === undefined) throw new TokenError('unreadable')
  return { path: name, actions: actions.filter(isRegistryAction), place }
}

/** True for the actions that are known here. */
export function isRegistryAction(action: unknown): action is RegistryAction {
  return action === 'pull' || action === 'push' || action === 'delete'
}
