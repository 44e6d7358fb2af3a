import type { Uid } from '../../base/uid.ts'
import { normalizeIssuer, personUid } from '../oidc/issuer-name.ts'

/** The upstream token that stands behind a caller: its claims at the exchange. */
export interface Actor {
  readonly issuer: string
  readonly subject: string
  /** The one of its audiences that was accepted. */
  readonly audience: string
  /** Only where the upstream issuer says that it is verified. Any tenant's issuer may say so of any address. */
  readonly email?: string
  /** True where the configuration trusts the issuer to say so. */
  readonly emailVerified?: true
  /** The AWS account of a caller that signed in with a signed AWS request; the subject is its ARN then. */
  readonly awsAccount?: string
  /** Absent where the issuer says nothing of it. */
  readonly profile?: Profile
}

/** Returns the verified claims of the upstream token under the names that events show (docs/spec/events.md#actors). */
export function actorClaims({ issuer, subject, audience, email, awsAccount }: Actor): Readonly<Record<string, string>> {
  return {
    iss: issuer,
    sub: subject,
    aud: audience,
    ...(email === undefined ? {} : { email }),
    ...(awsAccount === undefined ? {} : { 'aws-acct': awsAccount, 'aws-arn': subject }),
  }
}

/** The claims by which an issuer describes a person (OpenID Connect Core 5.1). */
const profileClaims = ['name', 'picture', 'given_name', 'family_name'] as const

/** How the upstream issuer describes a person: to be shown, never to be decided by. */
export type Profile = Readonly<Partial<Record<(typeof profileClaims)[number], string>>>

/** A longer text is left out, in characters: the profile is in each token, which fits into a header. */
const maxProfileText = 256

/** The profile among the claims of a token; empty where none of them describes a person. */
export function profileIn(claims: Readonly<Record<string, unknown>>): Pick<Actor, 'profile'> {
  const described = profileClaims.flatMap((claim) => {
    const text = claims[claim]
    return typeof text === 'string' && text !== '' && text.length <= maxProfileText ? [[claim, text] as const] : []
  })
  return described.length === 0 ? {} : { profile: Object.fromEntries(described) }
}

/** An (issuer, subject) pair of the configuration `bootstrap.operators`. */
export interface Operator {
  readonly issuer: string
  readonly subject: string
}

/**
 * Returns true if the caller is an operator by configuration. Any tenant can create an identity with an operator's issuer and subject, and its own keys.
 * Therefore only the person counts: the identity whose uid is derived from that pair.
 */
export function isOperator(operators: readonly Operator[], identityUid: Uid, actor: Pick<Actor, 'issuer' | 'subject'>): boolean {
  const issuer = normalizeIssuer(actor.issuer)
  const isNamed = operators.some((operator) => normalizeIssuer(operator.issuer) === issuer && operator.subject === actor.subject)
  return isNamed && identityUid === personUid(issuer, actor.subject)
}
