import type { AuthenticatedCaller, Authenticator } from '../../auth/access-tokens/authenticator.ts'
import { parseAuthorization } from '../../auth/access-tokens/authorization-header.ts'
import { tokenFailure } from '../../auth/access-tokens/token-error.ts'
import { DomainError } from '../../base/errors.ts'
import { addressKey, type RateLimiter } from '../rate-limit.ts'
import type { Call } from './call.ts'

/** What verifies credentials. */
export interface CredentialOptions {
  readonly authenticator: Authenticator
  /** Limits requests without a known caller by their address; undefined if they are not limited. */
  readonly addressLimiter: RateLimiter | undefined
}

/**
 * Step "rate limit" for a refused credential: counts the request by its address. A valid credential is never affected by other requests from the same address.
 * Behind a proxy that `trustedProxies` does not name, all callers share one address.
 */
function countRefusal({ addressLimiter }: CredentialOptions, call: Call, error: unknown): void {
  if (isRefusedCredential(error)) addressLimiter?.take(addressKey(call.remoteAddress))
}

/** True if the caller must sign in, or may not do this. */
export function isRefusedCredential(error: unknown): boolean {
  return error instanceof DomainError && (error.code === 16 || error.code === 7)
}

/** Step "verify": checks the signature, audience and times of the token. */
export async function verify(options: CredentialOptions, call: Call): Promise<AuthenticatedCaller> {
  try {
    // For most tokens, the signature check is cached and needs no wait.
    return options.authenticator.authenticateRemembered(call.headers) ?? (await options.authenticator.authenticate(call.headers, call.signal))
  } catch (error) {
    countRefusal(options, call, error)
    throw error
  }
}

/** Step "verify" for a public method: undefined without a valid token, which is then ignored (docs/spec/conventions.md#public-methods). */
export async function verifyOptional(options: CredentialOptions, call: Call): Promise<AuthenticatedCaller | undefined> {
  if (!call.method.optionalToken || call.headers.authorization === undefined) return undefined
  try {
    return options.authenticator.authenticateRemembered(call.headers) ?? (await options.authenticator.authenticate(call.headers, call.signal))
  } catch (error) {
    if (isRefusedCredential(error)) return undefined
    throw error
  }
}

/** Step "verify" for a method whose handler verifies the credential. Throws code 16 if there is no credential, so that nothing else of the request is read. */
export function assertPresented({ method, headers }: Call): void {
  if (method.scope !== 'external') return
  try {
    parseAuthorization(headers.authorization)
  } catch (error) {
    throw tokenFailure(error, 'exchange')
  }
}
