import { DomainError } from '../../base/errors.ts'
import type { Code } from '../../base/errors.ts'

/** What is wrong with a token, or with the keys that should verify it. */
export type TokenErrorReason =
  | 'missing'
  | 'unreadable'
  | 'unreadable_refresh'
  | 'too_large'
  | 'algorithm'
  | 'unknown_key'
  | 'signature'
  | 'expired'
  | 'not_yet_valid'
  | 'own_issuer'
  | 'unknown_issuer'
  | 'issuer_keys'
  | 'issuer_unavailable'

interface TokenErrorRow {
  readonly sentence: string
  /** The gRPC code if the token was sent to be exchanged (docs/spec/tokens.md#exchange-errors). */
  readonly exchange: Code
  /** The gRPC code if the token was the credential of another call (docs/spec/tokens.md#credentials). */
  readonly direct: Code
}

const tokenErrors = {
  missing: { sentence: 'a bearer token is required', exchange: 16, direct: 16 },
  unreadable: { sentence: 'the token is not a valid signed JWT', exchange: 16, direct: 16 },
  unreadable_refresh: { sentence: 'this is not a refresh token', exchange: 16, direct: 16 },
  too_large: { sentence: 'the token is too large', exchange: 16, direct: 16 },
  algorithm: { sentence: 'the signature algorithm is not supported', exchange: 7, direct: 16 },
  unknown_key: { sentence: 'the issuer has no key with the kid of the token', exchange: 7, direct: 16 },
  signature: { sentence: 'the signature is not valid', exchange: 7, direct: 16 },
  expired: { sentence: 'the token has expired', exchange: 7, direct: 16 },
  not_yet_valid: { sentence: 'the token is not valid yet', exchange: 7, direct: 16 },
  own_issuer: { sentence: 'a token of this platform cannot be exchanged: use a token of an external issuer', exchange: 7, direct: 16 },
  unknown_issuer: { sentence: 'the issuer is unknown', exchange: 7, direct: 16 },
  issuer_keys: { sentence: "the issuer's keys are invalid", exchange: 7, direct: 16 },
  issuer_unavailable: { sentence: "the issuer's keys cannot be fetched; try again", exchange: 14, direct: 14 },
} as const satisfies Record<TokenErrorReason, TokenErrorRow>

/** The reason why a token was refused. Of the token, the public message contains only the issuer. `cause` is for the log. */
export class TokenError extends Error {
  override readonly name = 'TokenError'
  readonly reason: TokenErrorReason
  constructor(reason: TokenErrorReason, cause?: unknown, detail = '') {
    super(tokenErrors[reason].sentence + detail, cause === undefined ? undefined : { cause })
    this.reason = reason
  }
}

/** Maximum number of characters of an issuer's name in a message. */
const shownIssuerLength = 200

/** Returns the error for a token from an unknown issuer. The message names the issuer and where to add it. */
export function unknownIssuer(issuer: string): TokenError {
  const shown = JSON.stringify(issuer.slice(0, shownIssuerLength))
  const where =
    'create an identity or identity provider with this issuer; operators add it to `issuers`, or leave `kubernetes.issuer` empty for the cluster of the release'
  return new TokenError('unknown_issuer', undefined, `: ${shown}; ${where}`)
}

/**
 * Translates a TokenError for the endpoint where it occurred. Returns any other error unchanged. Except for a missing token, messages start with `verifying
 * token: ...` (docs/spec/tokens.md#exchange-errors). Only temporary failures become code 14, because clients retry those.
 */
export function tokenFailure(error: unknown, endpoint: 'exchange' | 'direct'): unknown {
  if (!(error instanceof TokenError)) return error
  const message = error.reason === 'missing' ? error.message : `verifying token: ${error.message}`
  return new DomainError(tokenErrors[error.reason][endpoint], message, { cause: error })
}

/** Returns code 9 `TOKEN_TOO_LARGE` for content that does not fit into an access token. `description` is a sentence without a full stop. */
export function tokenTooLarge(description: string): DomainError {
  return DomainError.precondition([{ type: 'TOKEN_TOO_LARGE', subject: '', description }], { reason: 'TOKEN_TOO_LARGE' })
}
