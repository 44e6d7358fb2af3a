import { DomainError } from '../../../base/errors.ts'
import type { AuditTrail } from '../../../base/audit-line.ts'
import { isUid, rootOf } from '../../../base/uid.ts'
import type { Services } from '../../../engine/services.ts'
import type { HttpAnswer } from '../../../transport/http/http-context.ts'
import { addressKey } from '../../../transport/rate-limit.ts'
import { audited, auditRequest } from '../../../transport/calls/audit.ts'
import { bearerToken, type WebRequest } from '../../../transport/web/web-request.ts'
import type { WebRoute } from '../../../transport/web/web-routes.ts'
import { checkQuery, endpointOf, scimErrorAnswer, type ScimCall, type ScimEndpoint, type ScimReply } from './scim-endpoints.ts'
import { placeOf, type ScimPlace } from './scim-request.ts'
import { openSession, type ScimSession } from './scim-session.ts'

/** Counts a request under a key. Throws code 8 above the limit. */
type Take = (key: string) => void

/** The dependencies of the SCIM server. */
export interface ScimOptions {
  readonly services: Services
  readonly auditLog: AuditTrail
  /** Absent if requests are not limited. */
  readonly limits?: {
    /** Counts a request of one provider. */
    readonly requests: Take
    /** Continues to measure the processor time of a provider after a request body has arrived. */
    readonly resume: (key: string) => void
    /** Counts a write to one organisation from one address (docs/spec/scim.md#scim-write-limits). */
    readonly writes: Take
    /** Counts a refused request of one address. */
    readonly refused: Take
  }
}

/** Authenticates the directory. Audits and counts a refusal. */
async function enter(options: ScimOptions, request: WebRequest, { provider }: ScimPlace): Promise<ScimSession> {
  try {
    return await openSession(options.services, { provider, token: bearerToken(request) }, request.signal)
  } catch (error) {
    if (error instanceof DomainError && (error.code === 16 || error.code === 7)) {
      // Code 7 means that the token is valid, so the caller is known.
      const known = error.code === 7 ? { identity: provider, operator: false } : {}
      auditRequest(options, request, { method: 'scim/Enter', outcome: 'denied', ...known, subject: provider, code: error.code, reason: error.reason })
      options.limits?.refused(addressKey(request.remoteAddress))
    }
    throw error
  }
}

const keyOf = ({ provider }: ScimSession): string => `scim ${provider}`

/** Returns the request, changed so that the provider's processor time is measured again once the body is read. */
function metered({ limits }: ScimOptions, session: ScimSession, request: WebRequest): WebRequest {
  return {
    ...request,
    async text(maxBytes) {
      const text = await request.text(maxBytes)
      limits?.resume(keyOf(session))
      return text
    },
  }
}

/** Does a write if the limits allow it. Writes one line to the audit log, whatever the outcome. */
function write(options: ScimOptions, endpoint: ScimEndpoint, call: ScimCall): Promise<ScimReply> {
  const { request, session } = call
  const { provider } = session
  const user = `${provider}/${call.id}`
  const line = { method: `scim/${endpoint.writes}`, identity: provider, operator: false }
  return audited(options, request, {
    async work() {
      options.limits?.requests(keyOf(session))
      options.limits?.writes(`scim ${rootOf(provider)} ${addressKey(request.remoteAddress)}`)
      checkQuery(request.query)
      return endpoint.handle(call)
    },
    done: ({ subject }) => ({ ...line, subject }),
    failed: { ...line, subject: isUid(user) ? user : provider },
  })
}

async function serve(options: ScimOptions, request: WebRequest, verb: WebRoute['method']): Promise<HttpAnswer> {
  const place = placeOf(request.params['path'] ?? '')
  const session = await enter(options, request, place)
  const endpoint = endpointOf(place.segments, verb)
  const id = place.segments.length === 2 ? (place.segments[1] ?? '') : ''
  const call = { session, request: metered(options, session, request), id }
  if (endpoint.writes !== undefined) return (await write(options, endpoint, call)).answer
  options.limits?.requests(keyOf(session))
  return (await endpoint.handle(call)).answer
}

const verbs = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE'] as const

/**
 * Returns the routes of the SCIM 2.0 servers, one for each identity provider (RFC 7643, RFC 7644, docs/spec/scim.md#scim-server).
 * `scimEndpoint` returns their URLs.
 */
export function scimRoutes(options: ScimOptions): WebRoute[] {
  return verbs.map((verb) => ({ method: verb, path: '/scim/v2{/*path}', errors: scimErrorAnswer, handle: (request) => serve(options, request, verb) }))
}
