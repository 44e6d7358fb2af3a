import type { Uid } from '../../base/uid.ts'
import { normalizeIssuer, personUid } from '../oidc/issuer-name.ts'

/** The external token with which a caller signed in: its claims at that time. */
export interface Actor {
  readonly issuer: string
  readonly subject: string
  /** The audience of the token that was accepted. */
  readonly audience: string
  /** The e-mail address, if the token's issuer says that it is verified. The issuer of any tenant can say that of any address. */
  readonly email?: string
  /** True if the configuration trusts the issuer's statements about e-mail addresses. */
  readonly emailVerified?: true
  /** The AWS account of a caller who signed in with a signed AWS request. `subject` is then the ARN. */
  readonly awsAccount?: string
  /** The profile of the person; absent if the token has none. */
  readonly profile?: Profile
}

/** Returns the verified claims of the external token under their names in events (docs/spec/events.md#actors). */
export function actorClaims({ issuer, subject, audience, email, awsAccount }: Actor): Readonly<Record<string, string>> {
  return {
    iss: issuer,
    sub: subject,
    aud: audience,
    ...(email === undefined ? {} : { email }),
    ...(awsAccount === undefined ? {} : { 'aws-acct': awsAccount, 'aws-arn': subject }),
  }
}

/** The claims with which an issuer describes a person (OpenID Connect Core 5.1). */
const profileClaims = ['name', 'picture', 'given_name', 'family_name'] as const

/** The issuer's description of a person. It is for display only, never for decisions. */
export type Profile = Readonly<Partial<Record<(typeof profileClaims)[number], string>>>

/** Maximum length of a text of the profile, in characters. A longer text is omitted, because every token contains the profile and must fit into a header. */
const maxProfileText = 256

/** Returns the profile in the claims of a token; empty if no claim describes a person. */
export function profileIn(claims: Readonly<Record<string, unknown>>): Pick<Actor, 'profile'> {
  const described = profileClaims.flatMap((claim) => {
    const text = claims[claim]
    return typeof text === 'string' && text !== '' && text.length <= maxProfileText ? [[claim, text] as const] : []
  })
  return described.length === 0 ? {} : { profile: Object.fromEntries(described) }
}

/** An operator in the configuration `bootstrap.operators`: an issuer and a subject. */
export interface Operator {
  readonly issuer: string
  readonly subject: string
}

/**
 * True if the caller is an operator by configuration. Any tenant can create an identity with an operator's issuer and subject, and its own keys. Therefore
 * only the person counts: the identity whose uid is derived from that pair.
 */
export function isOperator(operators: readonly Operator[], identityUid: Uid, actor: Pick<Actor, 'issuer' | 'subject'>): boolean {
  const issuer = normalizeIssuer(actor.issuer)
  const isNamed = operators.some((operator) => normalizeIssuer(operator.issuer) === issuer && operator.subject === actor.subject)
  return isNamed && identityUid === personUid(issuer, actor.subject)
}
