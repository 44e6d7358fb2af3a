import type { CapabilitySet } from '../core/capability.ts'
import type { Uid } from '../core/uid.ts'
import { normalizeIssuer, personUid } from './issuer-name.ts'

/** The upstream token that stands behind a caller: its claims at the exchange. */
export interface Actor {
  readonly issuer: string
  readonly subject: string
  /** The one of its audiences that was accepted. */
  readonly audience: string
  /** Only where the upstream issuer says that it is verified. */
  readonly email?: string
}

/** An (issuer, subject) pair of the configuration `bootstrap.operators`. */
export interface Operator {
  readonly issuer: string
  readonly subject: string
}

/** What the exchange cut the caller's rights to; absent members cut nothing. */
export interface Narrowing {
  /** Groups: only rights at or below one of them count. */
  readonly scopes?: readonly Uid[]
  readonly capabilities?: CapabilitySet
}

/**
 * True where the caller is an operator by configuration. Any tenant may make an identity that claims an operator's issuer and subject (with keys of its own), so
 * it counts only for the person: the identity whose uid is derived from that pair.
 */
export function isOperator(operators: readonly Operator[], identityUid: Uid, actor: Pick<Actor, 'issuer' | 'subject'>): boolean {
  const issuer = normalizeIssuer(actor.issuer)
  const isNamed = operators.some((operator) => normalizeIssuer(operator.issuer) === issuer && operator.subject === actor.subject)
  return isNamed && identityUid === personUid(issuer, actor.subject)
}
