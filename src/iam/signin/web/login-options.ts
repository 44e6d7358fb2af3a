import type { Exchange, TokenIssue, TokenWishes } from '../exchange.ts'
import type { ExternalSignIn } from '../../../auth/oidc/external-sign-in.ts'
import type { OidcLogin } from '../../../auth/oidc/oidc-client.ts'
import { DomainError } from '../../../base/errors.ts'
import type { Log } from '../../../base/log.ts'
import type { Services } from '../../../engine/services.ts'

/** What signing in by a browser is made of. */
export interface LoginOptions {
  readonly services: Services
  readonly signIn: ExternalSignIn
  readonly exchange: Exchange
  readonly tokenIssue: TokenIssue
  readonly oidc: OidcLogin
  readonly auditLog: Log
  /** The URL under which browsers reach us. */
  readonly baseUrl: string
  /** Counts a request of this address: nobody has signed in yet, and each one asks an identity provider. Throws code 8. Absent where requests are not limited. */
  readonly limit?: (remoteAddress: string) => void
  /** Where browsers may be sent besides loopback addresses, configuration `login.redirects`. */
  readonly redirects: readonly string[]
}

/** Throws what the wishes break, in the words of who asks: `audienceField` is what they call the audience. */
export function assertIssued({ tokenIssue }: Pick<LoginOptions, 'tokenIssue'>, wishes: TokenWishes, audienceField: 'audience' | 'client_id'): void {
  try {
    tokenIssue.check(wishes)
  } catch (error) {
    const fault = error instanceof DomainError ? error.details.badRequest?.[0] : undefined
    if (fault === undefined) throw error
    throw DomainError.invalid(fault.field === 'aud' ? audienceField : 'scope', fault.description, { cause: error })
  }
}
