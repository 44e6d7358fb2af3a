import type { KeySet } from '../keys/key-set.ts'
import type { IssuerKeys, IssuerScope } from '../oidc/issuer-keys.ts'
import { checkTimes, type DecodedToken } from './decoded-token.ts'
import type { SignatureChecks } from './signature-checks.ts'
import { TokenError } from './token-error.ts'
import type { Clock } from '../../base/runtime.ts'

/** The audiences that mean this platform where an identity names none: base URL with and without final slash, its bare host, the registry host (docs/spec/tokens.md#default-audiences). */
export function defaultAudiences(baseUrl: string, registryHost: string): readonly string[] {
  return [...urlForms(baseUrl), new URL(baseUrl).host, registryHost]
}

/** A URL without and with its final slash: clients write either. */
export function urlForms(url: string): readonly [bare: string, slashed: string] {
  const bare = url.replace(/\/+$/, '')
  return [bare, `${bare}/`]
}

/** Verifies external tokens: signature, `exp`, `nbf`. Who may use them for what is the caller's question. All methods throw TokenError. */
export interface TokenVerifier {
  /** With the keys that its issuer publishes; only a configured issuer or one in `scope.named` is contacted. */
  verifyByIssuer(token: DecodedToken, scope: IssuerScope, signal: AbortSignal): Promise<void>
  /** With exactly these keys. */
  verifyByKeys(token: DecodedToken, keys: KeySet): Promise<void>
}

/** What a verifier is made of. */
export interface TokenVerifierOptions {
  readonly issuerKeys: IssuerKeys
  readonly checks: SignatureChecks
  readonly clock: Clock
}

/** See TokenVerifier. Times are checked before anything is fetched. */
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
