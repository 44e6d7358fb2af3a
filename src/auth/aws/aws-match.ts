import type { AwsCaller } from './aws-caller.ts'
import { matchesPattern } from '../oidc/claim-match.ts'

/**
 * The AWS callers that an identity accepts (docs/spec/identities.md#aws-identities). ARN and user id are each an exact value, or a pattern that must match
 * completely.
 */
export interface AwsMatch {
  readonly account: string
  readonly arn?: string
  readonly arnPattern?: string
  readonly userId?: string
  readonly userIdPattern?: string
}

/** True if account, ARN and user id of the caller all match. Without a value or pattern for it, an ARN or user id never matches. */
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
