import type { AwsCaller } from './aws-caller.ts'
import { matchesPattern } from '../oidc/claim-match.ts'

/** Requirements of an AWS identity on a caller (docs/spec/identities.md#aws-identities). ARN and user id are each exact values or patterns that must match in full. */
export interface AwsMatch {
  readonly account: string
  readonly arn?: string
  readonly arnPattern?: string
  readonly userId?: string
  readonly userIdPattern?: string
}

/** Returns true if account, ARN and user id all meet the requirements. An ARN or user id without a requirement never matches. */
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
