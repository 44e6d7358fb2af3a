import { es256 } from '../../auth/keys/es256.ts'
import { parseAuthorization } from '../../auth/access-tokens/authorization-header.ts'
import { checkTimes, decodeToken, type DecodedToken } from '../../auth/access-tokens/decoded-token.ts'
import { rememberMs, type SignatureChecks } from '../../auth/access-tokens/signature-checks.ts'
import { TokenError, tokenFailure } from '../../auth/access-tokens/token-error.ts'
import { DomainError } from '../../base/errors.ts'
import { RecentMap } from '../../base/recent-map.ts'
import { readClaims, registryUse, type RegistryClaims } from './registry-claims.ts'
import { createRegistryMinter, type MintedToken, type RegistryMinterOptions, type TokenGrant } from './registry-minter.ts'

/**
 * Mints and verifies the tokens of the registry host (`use` is `registry`). No other listener accepts them, and this verifier accepts nothing else
 * (docs/spec/tokens.md#token-uses).
 */
export interface RegistryTokens {
  /** Issues a token, or returns a recent one with the same content. */
  mint(grant: TokenGrant): MintedToken
  /**
   * Returns the claims of a registry token; undefined for a token with another use. Throws DomainError: code 16 for an invalid token, code
   * 7 for one with another audience.
   */
  verify(authorization: string, signal: AbortSignal): Promise<RegistryClaims | undefined>
  /** Like `verify`, but from the cache only; undefined if this token was not verified recently. */
  verifyRemembered(authorization: string): RegistryClaims | undefined
}

/** Dependencies for issuing and verifying registry tokens. */
export interface RegistryTokensOptions extends RegistryMinterOptions {
  readonly checks: SignatureChecks
}

/** Approximate maximum size of all verified tokens that are cached by their header, in bytes. */
const rememberedBytes = 16 * 1024 * 1024
/** Approximate memory for a token in addition to its strings, in bytes. */
const tokenBytes = 2048

interface KnownToken {
  readonly token: DecodedToken
  readonly claims: RegistryClaims
}

/** Creates RegistryTokens. */
export function createRegistryTokens(options: RegistryTokensOptions): RegistryTokens {
  const { issuer, service, keys, checks, clock } = options
  const remembered = new RecentMap<string, KnownToken>(rememberedBytes, ({ token }) => 2 * token.text.length + tokenBytes, { clock, ms: rememberMs })

  /** Throws if a token with a valid signature has expired, or has another audience. */
  function assertAccepted(token: DecodedToken): void {
    checkTimes(token, clock.now())
    if (token.claims['use'] !== registryUse) throw new TokenError('unreadable')
    if (!token.audiences.includes(service)) throw new DomainError(7, 'the token is for another audience')
  }

  async function verifyToken(token: DecodedToken, signal: AbortSignal): Promise<RegistryClaims> {
    if (token.keyId === undefined || (await keys.lookup(token.keyId, signal)) === undefined) throw new TokenError('unknown_key')
    await checks.check(token, keys.keySet())
    assertAccepted(token)
    return readClaims(token)
  }

  return {
    mint: createRegistryMinter(options),
    async verify(authorization, signal) {
      try {
        const credential = parseAuthorization(authorization)
        const token = decodeToken(credential.token)
        if (credential.identity !== undefined || token.issuer !== issuer || token.algorithm !== es256) return undefined
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
