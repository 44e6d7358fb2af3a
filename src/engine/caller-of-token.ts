import type { Authenticated } from '../auth/tokens/authenticator.ts'
import { DomainError } from '../base/errors.ts'
import type { Caller, Services } from './services.ts'

/**
 * The caller that a verified token names, as of the current snapshot. Throws code 16 where the identity is not there, or is not the one that the token was issued to
 * (docs/spec/storage.md#deletion-marks: tokens issued before it are 401).
 */
export function callerOfToken(services: Services, facts: Omit<Authenticated, 'expiresAtMs'>): Caller {
  const { identityUid: identity, narrowing } = facts
  // Whom only an organisation's provider vouches for is nobody outside it.
  const operator = facts.operator && narrowing.knownIn === undefined
  const row = services.replica.snapshot.get('Identity', identity)
  const isOlder = row !== undefined && facts.issuedAtMs < row.createMs
  if ((row === undefined && !operator) || isOlder) throw new DomainError(16, 'the identity of this token does not exist')
  const { issuer, subject, audience, email } = facts.act
  return {
    identity,
    operator,
    actor: { iss: issuer, sub: subject, aud: audience, ...(email === undefined ? {} : { email }) },
    narrowing,
    reach: () => services.grants.reachOf({ identity, operator, narrowing }),
  }
}
