import type { AwsCaller } from './aws-caller.ts'
import { matchesPattern } from '../oidc/claim-match.ts'

/** What an AWS identity asks of a caller (docs/spec/identities.md#aws-identities): the account, and each of ARN and user id as it is or as a pattern that it matches in full. */
export interface AwsMatch {
  readonly account: string
  readonly arn?: string
  readonly arnPattern?: string
  readonly userId?: string
  readonly userIdPattern?: string
}

/** True where all three of account, ARN and user id are what the identity asks for; what it does not name matches nothing. */
export function matchesAws(match: AwsMatch, caller: AwsCaller): boolean {
  return (
    match.account === caller.account &&
    matchesOne({ exact: match.arn, pattern: match.arnPattern }, caller.arn) &&
    matchesOne({ exact: match.userId, pattern: match.userIdPattern }, caller.userId)
  )
}

function matchesOne({ exact, pattern }: { readonly exact: string | undefined; readonly pattern: string | undefined }, text: string): boolean {
  if (exact === undefined) return pattern !== undefined && matchesPattern(pattern, text)
  return exact === text && (pattern === undefined || matchesPattern(pattern, text))
}
