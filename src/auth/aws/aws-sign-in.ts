import { DomainError } from '../../base/errors.ts'
import type { Clock } from '../../base/runtime.ts'
import { isUid } from '../../base/uid.ts'
import { parseAwsCaller, type AwsCaller } from './aws-caller.ts'
import { awsRefusal, awsTarget, parseAwsRequest, type AwsRequest } from './aws-request.ts'
import { matchesAws } from './aws-match.ts'
import type { ExternalSignInOptions, SignedIn } from '../oidc/external-sign-in.ts'
import { FetchError, type SafeFetch } from '../safe-fetch.ts'

/** What signing in with a signed AWS request is made of. */
export interface AwsSignInOptions {
  /** Hosts that requests may be signed for. None: no AWS identity is ever accepted. */
  readonly hosts: readonly string[]
  /** Where requests are sent, whatever host they are signed for; a private address is fine. Each one's own host, over https, where absent. */
  readonly endpoint?: string
  /** Audiences that mean this platform. */
  readonly audiences: readonly string[]
  /** See AwsExpectation. */
  readonly prefixes: readonly string[]
  readonly fetch: SafeFetch
  readonly clock: Clock
  readonly identityOf: ExternalSignInOptions['identityOf']
}

/**
 * Signs in with the text of a signed AWS request (see awsRequestText) as `identity`. AWS is asked before the identity is looked at, so that neither the answer nor its time
 * tells whether the identity is there. The request may be used again while AWS takes it, 15 minutes: the signature binds it to one identity of one platform, so that who holds it
 * gains nothing by that which an OIDC token would not give. Throws DomainError: 3 without an identity; 7 `verifying token: ...` for the request itself; 7 in one form for all that
 * lies with the identity; 14 where AWS can't be asked now.
 */
export type AwsSignIn = (text: string, identity: string | undefined, signal: AbortSignal) => Promise<Omit<SignedIn, 'token'>>

/** Requests that AWS is asked about at once; more are code 14. */
const maxPending = 100

/** See AwsSignIn. */
export function createAwsSignIn(options: AwsSignInOptions): AwsSignIn {
  let pending = 0
  return async (text, identity, signal) => {
    if (identity === undefined || identity === '') throw DomainError.invalid('identity', 'is required with a signed AWS request')
    const request = parseAwsRequest(text, { ...options, identity, nowMs: options.clock.now() })
    if (pending >= maxPending) throw new DomainError(14, 'verifying token: too many AWS requests are being verified')
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
    if (caller === undefined) throw awsRefusal('AWS gave no usable answer')
    return caller
  } catch (error) {
    throw error instanceof FetchError ? unanswered(error) : error
  }
}

/** Only what may pass by itself is code 14: clients come again for that. */
function unanswered(error: FetchError): DomainError {
  if (error.transient) return new DomainError(14, "verifying token: AWS can't be asked at the moment", { cause: error })
  const refused = error.fault === 'status'
  return new DomainError(7, `verifying token: ${refused ? 'AWS does not accept the request' : 'AWS gave no usable answer'}`, { cause: error })
}

interface AwsSignInRequest {
  readonly caller: AwsCaller
  readonly signal: AbortSignal
}

async function asIdentity(options: AwsSignInOptions, request: AwsRequest, { caller, signal }: AwsSignInRequest): Promise<Omit<SignedIn, 'token'>> {
  const facts = isUid(request.identity) ? await options.identityOf(request.identity, signal) : undefined
  if (facts?.relationship.kind !== 'aws' || !matchesAws(facts.relationship.match, caller)) throw new DomainError(7, 'the token does not match the identity')
  const act = { issuer: `https://${request.host}`, subject: caller.arn, audience: request.audience }
  return { identityUid: facts.uid, createTimeMs: facts.createTimeMs, operator: false, act, restrictions: {} }
}
