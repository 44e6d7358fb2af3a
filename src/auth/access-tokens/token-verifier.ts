import type { KeySet } from '../keys/key-set.ts'
import type { IssuerKeys, IssuerScope } from '../oidc/issuer-keys.ts'
import { checkTimes, type DecodedToken } from './decoded-token.ts'
import type { SignatureChecks } from './signature-checks.ts'
import { TokenError } from './token-error.ts'
import type { Clock } from '../../base/runtime.ts'

/**
 * Returns the audiences that stand for this platform if an identity names none: the base URL, its host, and the registry host. The base URL is listed with and
 * without a final slash (docs/spec/tokens.md#default-audiences).
 */
export function defaultAudiences(baseUrl: string, registryHost: string): readonly string[] {
  return [...urlForms(baseUrl), new URL(baseUrl).host, registryHost]
}

/** Returns a URL without and with a final slash, because clients use both forms. */
export function urlForms(url: string): readonly [bare: string, slashed: string] {
  const bare = url.replace(/\/+$/, '')
  return [bare, `${bare}/`]
}

/** Verifies external tokens: signature, `exp` and `nbf`. It does not decide what a token may be used for. All methods throw TokenError. */
export interface TokenVerifier {
  /** Verifies a token with the keys that its issuer publishes. Only issuers of the configuration or in `scope.named` are contacted. */
  verifyByIssuer(token: DecodedToken, scope: IssuerScope, signal: AbortSignal): Promise<void>
  /** Verifies a token with exactly these keys. */
  verifyByKeys(token: DecodedToken, keys: KeySet): Promise<void>
}

/** The dependencies of a token verifier. */
export interface TokenVerifierOptions {
  readonly issuerKeys: IssuerKeys
  readonly checks: SignatureChecks
  readonly clock: Clock
}

/** Creates a TokenVerifier. It checks the times before it fetches any keys. */
export function createTokenVerifier(options: TokenVerifierOptions): TokenVerifier {
  const { issuerKeys, checks, clock } = options
  return {
    async verifyByIssuer(token, scope, signal) {
      checkTimes(token, clock.now())
      const keys = await issuerKeys.keysFor(token.issuer, scope, signal)
      try {
        await checks.check(token, keys)
      } catch (error) {
        if (!(error instanceof TokenError) || error.reason !== 'unknown_key') throw error
        const newer = await issuerKeys.refreshed(token.issuer, keys, { scope, signal })
        if (newer.id === keys.id) throw error
        await checks.check(token, newer)
      }
    },
    async verifyByKeys(token, keys) {
      checkTimes(token, clock.now())
      await checks.check(token, keys)
    },
  }
}
