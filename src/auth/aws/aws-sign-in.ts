import { DomainError } from '../../base/errors.ts'
import type { Clock } from '../../base/runtime.ts'
import { isUid } from '../../base/uid.ts'
import { parseAwsCaller, type AwsCaller } from './aws-caller.ts'
import { awsRefusal, awsTarget, parseAwsRequest, type AwsRequest } from './aws-request.ts'
import { matchesAws } from './aws-match.ts'
import type { ExternalSignInOptions, SignInResult } from '../oidc/external-sign-in.ts'
import { FetchError, type SafeFetch } from '../safe-fetch.ts'

/** The settings and dependencies of sign-in with a signed AWS request. */
export interface AwsSignInOptions {
  /** Hosts for which requests may be signed. If empty, no AWS identity is accepted. */
  readonly hosts: readonly string[]
  /** URL to which all requests are sent, which may have a private address. By default, each is sent over https to the host for which it is signed. */
  readonly endpoint?: string
  /** Audiences that stand for this platform. */
  readonly audiences: readonly string[]
  /** Prefixes of the binding headers, see AwsExpectation. */
  readonly prefixes: readonly string[]
  readonly fetch: SafeFetch
  readonly clock: Clock
  readonly identityOf: ExternalSignInOptions['identityOf']
}

/**
 * Signs in as `identity` with the text of a signed AWS request (see awsRequestText). It asks AWS before it reads the identity, so that neither answer nor
 * timing reveals whether the identity exists. The request can be reused while AWS accepts it, for 15 minutes. Its signature binds it to one identity of one
 * platform. A replay therefore gains no more than an OIDC token would. Throws DomainError 3 without an identity. Throws 7 `verifying token: ...` for a bad
 * request. Throws 7 with one fixed message for every fault of the identity. Throws 14 if AWS cannot be asked now.
 */
export type AwsSignIn = (text: string, identity: string | undefined, signal: AbortSignal) => Promise<Omit<SignInResult, 'token'>>

/** Maximum number of concurrent requests to AWS. Additional sign-ins fail with code 14. */
const maxPending = 100

/** Creates an AwsSignIn. */
export function createAwsSignIn(options: AwsSignInOptions): AwsSignIn {
  let pending = 0
  return async (text, identity, signal) => {
    if (identity === undefined || identity === '') throw DomainError.invalid('identity', 'is required with a signed AWS request')
    const request = parseAwsRequest(text, { ...options, identity, nowMs: options.clock.now() })
    if (pending >= maxPending) throw new DomainError(14, 'verifying token: too many AWS requests at once; try again')
    pending += 1
    try {
      return await asIdentity(options, request, { caller: await ask(options, request, signal), signal })
    } finally {
      pending -= 1
    }
  }
}

async function ask({ endpoint, fetch }: AwsSignInOptions, { host, headers }: AwsRequest, signal: AbortSignal): Promise<AwsCaller> {
  const origin = (endpoint ?? `https://${host}`).replace(/\/$/, '')
  try {
    const policy = endpoint === undefined ? {} : { allowPrivate: true }
    const { body } = await fetch.send({ ...policy, url: `${origin}${awsTarget}`, method: 'POST', headers }, signal)
    const caller = parseAwsCaller(body)
    if (caller === undefined) throw awsRefusal('AWS returned an invalid response')
    return caller
  } catch (error) {
    throw error instanceof FetchError ? unanswered(error) : error
  }
}

/** Translates the failure of a request to AWS. Only temporary failures become code 14, because clients retry those. */
function unanswered(error: FetchError): DomainError {
  if (error.transient) return new DomainError(14, 'verifying token: AWS is unreachable; try again', { cause: error })
  const refused = error.reason === 'status'
  return new DomainError(7, `verifying token: ${refused ? 'AWS does not accept the request' : 'AWS returned an invalid response'}`, { cause: error })
}

interface AwsSignInRequest {
  readonly caller: AwsCaller
  readonly signal: AbortSignal
}

async function asIdentity(options: AwsSignInOptions, request: AwsRequest, { caller, signal }: AwsSignInRequest): Promise<Omit<SignInResult, 'token'>> {
  const facts = isUid(request.identity) ? await options.identityOf(request.identity, signal) : undefined
  if (facts?.relationship.kind !== 'aws' || !matchesAws(facts.relationship.match, caller)) throw new DomainError(7, 'the token does not match the identity')
  const act = { issuer: `https://${request.host}`, subject: caller.arn, audience: request.audience, awsAccount: caller.account }
  return { identityUid: facts.uid, createTimeMs: facts.createTimeMs, operator: false, act, restrictions: {} }
}
