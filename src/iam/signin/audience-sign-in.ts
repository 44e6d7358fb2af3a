import { DomainError } from '../../base/errors.ts'
import type { DecodedToken } from '../../auth/access-tokens/decoded-token.ts'
import type { ExternalSignIn } from '../../auth/oidc/external-sign-in.ts'

/**
 * Returns a sign-in for an endpoint with its own audiences. It throws code 7 unless an external token contains one of `audiences`,
 * whatever its identity accepts (docs/spec/tokens.md#direct-use). Other errors of the credential are code 16. At these endpoints the token
 * is used as a password, so an error must not reveal the identity.
 */
export function signInFor(audiences: readonly string[], inner: ExternalSignIn): ExternalSignIn {
  async function asCredential<T>(token: DecodedToken, work: () => Promise<T>): Promise<T> {
    if (!token.audiences.some((audience) => audiences.includes(audience))) throw new DomainError(7, 'the token is for another audience')
    try {
      return await work()
    } catch (error) {
      if (error instanceof DomainError && error.code === 7) throw new DomainError(16, error.message, { cause: error })
      throw error
    }
  }

  return {
    signIn: (token, as, signal) => asCredential(token, () => inner.signIn(token, as, signal)),
    verifyPerson: (token, as, signal) => asCredential(token, () => inner.verifyPerson(token, as, signal)),
  }
}

/**
 * Returns a sign-in that refuses, with code 7, tokens whose audiences are all in `others`: those are for another endpoint, whatever the
 * identity accepts.
 */
export function signInNotFor(others: readonly string[], inner: ExternalSignIn): ExternalSignIn {
  function assertMeant({ audiences }: DecodedToken): void {
    if (audiences.length > 0 && audiences.every((audience) => others.includes(audience))) throw new DomainError(7, 'the token is for another audience')
  }

  return {
    async signIn(token, as, signal) {
      assertMeant(token)
      return await inner.signIn(token, as, signal)
    },
    async verifyPerson(token, as, signal) {
      assertMeant(token)
      return await inner.verifyPerson(token, as, signal)
    },
  }
}
