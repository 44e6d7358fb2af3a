import { DomainError } from '../../../base/errors.ts'
import type { Log } from '../../../base/log.ts'
import { isUid, rootOf } from '../../../base/uid.ts'
import { fromStore } from '../../../engine/errors.ts'
import type { Services } from '../../../engine/services.ts'
import { auditRequest } from '../../../transport/audit.ts'
import type { ErrorForm, RawAnswer, RawRequest, RawRoute } from '../../../transport/http/raw-route.ts'
import { addressKey } from '../../../transport/rate-limit.ts'
import { scimErrorAnswer } from './scim-answer.ts'
import { checkQuery, endpointOf, type ScimEndpoint, type ScimReply } from './scim-endpoints.ts'
import { bearerOf, placeOf, type ScimPlace } from './scim-request.ts'
import { openSession, type ScimSession } from './scim-session.ts'

/** Counts a request under a key. Throws code 8 where there were too many. */
type Take = (key: string) => void

/** What the SCIM server is made of. */
export interface ScimOptions {
  readonly services: Services
  readonly auditLog: Log
  /** Absent where requests are not limited. */
  readonly limits?: {
    /** Of one provider. */
    readonly requests: Take
    /** A request of one provider goes on after its body arrived. */
    readonly resume: (key: string) => void
    /** Of one organisation from one address (docs/spec/scim.md#scim-write-limits). */
    readonly writes: Take
    /** Refused ones, of one address. */
    readonly refused: Take
  }
}

/** Lets the directory in, or audits and counts that it was refused. */
async function enter(options: ScimOptions, request: RawRequest, { provider }: ScimPlace): Promise<ScimSession> {
  try {
    return await openSession(options.services, { provider, token: bearerOf(request.header('authorization')) }, request.signal)
  } catch (error) {
    if (error instanceof DomainError && (error.code === 16 || error.code === 7)) {
      // Who it is has been found out where the token works.
      const known = error.code === 7 ? { identity: provider, operator: false } : {}
      auditRequest(options, request, { method: 'scim/Enter', outcome: 'denied', ...known, subject: provider, code: error.code, reason: error.reason })
      options.limits?.refused(addressKey(request.remoteAddress))
    }
    throw error
  }
}

const keyOf = ({ provider }: ScimSession): string => `scim ${provider}`

/** The request, whose work counts for the provider again once its body has arrived. */
function metered({ limits }: ScimOptions, session: ScimSession, request: RawRequest): RawRequest {
  return {
    ...request,
    async text(maxBytes) {
      const text = await request.text(maxBytes)
      limits?.resume(keyOf(session))
      return text
    },
  }
}

function limit({ limits }: ScimOptions, session: ScimSession, write: { address: string } | undefined): void {
  limits?.requests(keyOf(session))
  if (write !== undefined) limits?.writes(`scim ${rootOf(session.provider)} ${addressKey(write.address)}`)
}

/** Does what is asked, unless too much was; of a write the audit log tells, whatever comes of it. */
async function perform(options: ScimOptions, endpoint: ScimEndpoint, call: { session: ScimSession; request: RawRequest; id: string }): Promise<ScimReply> {
  const { request, session } = call
  if (endpoint.writes === undefined) {
    limit(options, session, undefined)
    return await endpoint.handle(call)
  }
  const told = { method: `scim/${endpoint.writes}`, identity: session.provider, operator: false }
  try {
    limit(options, session, { address: request.remoteAddress })
    checkQuery(request.query)
    const reply = await endpoint.handle(call)
    auditRequest(options, request, { ...told, outcome: 'done', subject: reply.subject })
    return reply
  } catch (thrown) {
    const error = fromStore(thrown)
    const user = `${session.provider}/${call.id}`
    const { code, reason } = error instanceof DomainError ? error : new DomainError(13, '')
    auditRequest(options, request, {
      ...told,
      outcome: code === 16 ? 'denied' : 'failed',
      subject: isUid(user) ? user : session.provider,
      code,
      reason,
    })
    throw error
  }
}

async function serve(options: ScimOptions, request: RawRequest, verb: RawRoute['method']): Promise<RawAnswer> {
  const place = placeOf(request.params['path'] ?? '')
  try {
    const session = await enter(options, request, place)
    const endpoint = endpointOf(place.segments, verb)
    const id = place.segments.length === 2 ? (place.segments[1] ?? '') : ''
    return (await perform(options, endpoint, { session, request: metered(options, session, request), id })).answer
  } catch (thrown) {
    throw fromStore(thrown)
  }
}

const verbs = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE'] as const
const below = '/scim/v2'

/** The SCIM 2.0 server of each identity provider (RFC 7643, RFC 7644, docs/spec/scim.md#scim-server), at the address that `scimEndpoint` tells. */
export function scimRoutes(options: ScimOptions): RawRoute[] {
  return verbs.map((verb) => ({ method: verb, path: `${below}/{path=**}`, handler: (request) => serve(options, request, verb) }))
}

/** Whatever is refused there is refused as RFC 7644 3.12 has it. */
export const scimErrorForm: ErrorForm = { below, answer: scimErrorAnswer }
