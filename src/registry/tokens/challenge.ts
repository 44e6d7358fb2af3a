import { toRegistryError } from '../oci/oci-errors.ts'
import { RegistryError } from '../registry-error.ts'
import { catalogScope, formatScope, type RepositoryScope } from './scope.ts'

/** A scope in a challenge: a repository or the catalogue. */
export type ChallengeScope = RepositoryScope | typeof catalogScope

/** Builds the challenge that shows clients where to get tokens (distribution token protocol). */
export interface Challenger {
  /** Returns the `WWW-Authenticate` header; `error` as in RFC 6750 3.1. */
  header(scopes?: readonly ChallengeScope[], error?: 'invalid_token' | 'insufficient_scope'): string
  /** Returns a 401 error with the challenge, for a missing or insufficient credential. */
  unauthorized(message: string, scopes?: readonly ChallengeScope[], error?: 'insufficient_scope'): RegistryError
  /** Converts any error into the error that a listener for credentials returns. A 401 carries the challenge. */
  refusal(error: unknown, scopes?: readonly ChallengeScope[]): RegistryError
}

/** Creates challenges that point to the registry host's token endpoint. */
export function createChallenger({ scheme, host }: { readonly scheme: 'http' | 'https'; readonly host: string }): Challenger {
  // Neither host names nor repository names contain quotes, so nothing needs escaping.
  const base = `Bearer realm="${scheme}://${host}/token",service="${host}"`
  const header: Challenger['header'] = (scopes = [], refused) => {
    const texts = scopes.filter((scope) => scope === catalogScope || scope.actions.length > 0).map(formatScope)
    const named = texts.length === 0 ? '' : `,scope="${texts.join(' ')}"`
    return `${base}${named}${refused === undefined ? '' : `,error="${refused}"`}`
  }
  return {
    header,
    unauthorized: (message, scopes, error) => new RegistryError('UNAUTHORIZED', message, { headers: { 'WWW-Authenticate': header(scopes, error) } }),
    refusal(error, scopes) {
      const found = toRegistryError(error)
      if (found.status !== 401 || found.headers['WWW-Authenticate'] !== undefined) return found
      return new RegistryError(found.code, found.message, { headers: { ...found.headers, 'WWW-Authenticate': header(scopes, 'invalid_token') }, cause: error })
    },
  }
}
