import { DomainError } from '../../../base/errors.ts'
import { locationOf, projected, shownUser, versionOf, type Projection } from '../scim-answers.ts'
import { resourceTypes, schemas, serviceProviderConfig, type ScimDocument } from '../scim-discovery.ts'
import { listScimUsers } from '../scim-list.ts'
import { patched, patchUrn } from '../scim-patch.ts'
import { userUrn } from '../scim-schema.ts'
import { createScimUser, deleteScimUser, readScimUser, updateScimUser, type ScimSubject, type ScimUserView } from '../scim-users.ts'
import { readUser, type ScimObject } from '../scim-values.ts'
import { httpStatusOfCode } from '../../../transport/errors-http.ts'
import type { HttpAnswer } from '../../../transport/http/http-context.ts'
import { emptyAnswer, jsonAnswer } from '../../../transport/web/web-answers.ts'
import type { WebRequest } from '../../../transport/web/web-request.ts'
import type { WebRoute } from '../../../transport/web/web-routes.ts'
import { askedByQuery, etagMatcher, listQuery, readBody } from './scim-request.ts'
import type { ScimSession } from './scim-session.ts'

/** An authenticated request; `id` is the last segment of its path. */
export interface ScimCall {
  readonly session: ScimSession
  readonly request: WebRequest
  readonly id: string
}

/** The response of an endpoint; `subject` is the uid of the user that it changed. */
export interface ScimReply {
  readonly answer: HttpAnswer
  readonly subject?: string
}

/** A SCIM operation. `writes` is its name in the audit log if it changes anything. */
export interface ScimEndpoint {
  readonly writes?: string
  handle(call: ScimCall): Promise<ScimReply> | ScimReply
}

/** Returns a response with SCIM's media type. */
function scimAnswer(status: number, body: unknown, headers: Readonly<Record<string, string>> = {}): HttpAnswer {
  return jsonAnswer(status, body, { 'Content-Type': 'application/scim+json', ...headers })
}

/**
 * Returns the HTTP status of an error. It is that of the REST API, with two exceptions. An etag that does not match is 412 (RFC 7644, 3.14). What the client
 * should repeat is 503.
 */
function statusOf({ code, reason, httpStatus }: DomainError): number {
  if (httpStatus !== undefined) return httpStatus
  if (reason === 'ETAG_MISMATCH') return 412
  if (code === 10 || code === 2) return 503
  return httpStatusOfCode[code]
}

/** Returns an error in the format of RFC 7644, 3.12. */
export function scimErrorAnswer(error: DomainError): HttpAnswer {
  const status = statusOf(error)
  const scimType = error.code === 6 ? 'uniqueness' : error.details.metadata?.['scimType']
  const allow = error.details.metadata?.['allow']
  const body = {
    schemas: ['urn:ietf:params:scim:api:messages:2.0:Error'],
    status: String(status),
    ...(scimType === undefined ? {} : { scimType }),
    detail: error.message,
  }
  const retryAfterMs = error.details.retryAfterMs ?? (status === 503 ? 1000 : undefined)
  return scimAnswer(status, body, {
    ...(status === 401 ? { 'WWW-Authenticate': 'Bearer' } : {}),
    ...(allow === undefined ? {} : { Allow: allow }),
    ...(retryAfterMs === undefined ? {} : { 'Retry-After': String(Math.max(1, Math.ceil(retryAfterMs / 1000))) }),
  })
}

const listUrn = 'urn:ietf:params:scim:api:messages:2.0:ListResponse'
const searchUrn = 'urn:ietf:params:scim:api:messages:2.0:SearchRequest'

/** Returns which attributes of a user the query selects. Throws `invalidValue`. */
function projectionAsked(query: URLSearchParams): Projection {
  const { attributes, excludedAttributes } = askedByQuery(query)
  return listQuery({ attributes, excludedAttributes }).projection
}

/** Returns a response with the user's etag and the selected attributes. */
function userAnswer({ session, request }: ScimCall, status: 200 | 201, view: ScimUserView): ScimReply {
  const location = locationOf(session.endpoint, view)
  const shown = projected(shownUser(view, session.endpoint), projectionAsked(request.query))
  const answer = scimAnswer(status, shown, { ETag: versionOf(view), ...(status === 201 ? { Location: location } : { 'Content-Location': location }) })
  return { answer, subject: view.uid }
}

function subjectOf({ request, id }: ScimCall): ScimSubject {
  return { id, isCurrent: etagMatcher(request.header('if-match')) ?? (() => true) }
}

const createUser: ScimEndpoint = {
  writes: 'CreateUser',
  async handle(call) {
    const body = await readBody(call.request, userUrn)
    return userAnswer(call, 201, await createScimUser(call.session, readUser(body)))
  },
}

const getUser: ScimEndpoint = {
  handle(call) {
    const view = readScimUser(call.session, call.id)
    if (etagMatcher(call.request.header('if-none-match'))?.(view.etag) === true) return { answer: emptyAnswer(304, { ETag: versionOf(view) }) }
    return userAnswer(call, 200, view)
  },
}

async function update(call: ScimCall, change: (user: ScimObject) => ScimObject): Promise<ScimReply> {
  return userAnswer(call, 200, await updateScimUser(call.session, subjectOf(call), change))
}

const replaceUser: ScimEndpoint = {
  writes: 'ReplaceUser',
  async handle(call) {
    const given = readUser(await readBody(call.request, userUrn))
    // If the request has no `active`, keeps its value instead of reactivating the user; RFC 7644, 3.5.1 allows both.
    return update(call, ({ active }) => (active === undefined ? given : { active, ...given }))
  },
}

const patchUser: ScimEndpoint = {
  writes: 'PatchUser',
  async handle(call) {
    const body = await readBody(call.request, patchUrn)
    return update(call, (user) => patched(user, body))
  },
}

const deleteUser: ScimEndpoint = {
  writes: 'DeleteUser',
  async handle(call) {
    await deleteScimUser(call.session, subjectOf(call))
    return { answer: emptyAnswer(204), subject: `${call.session.provider}/${call.id}` }
  },
}

async function list({ session, request }: ScimCall, asked: Readonly<Record<string, unknown>>): Promise<ScimReply> {
  const { services, provider, endpoint } = session
  const page = await listScimUsers(services, { provider, endpoint, query: listQuery(asked) }, request.signal)
  return { answer: scimAnswer(200, { schemas: [listUrn], ...page }) }
}

const listUsers: ScimEndpoint = { handle: (call) => list(call, askedByQuery(call.request.query)) }
const searchUsers: ScimEndpoint = { handle: async (call) => list(call, await readBody(call.request, searchUrn)) }

/** Throws code 7 if the request has a filter: lists of discovery documents cannot be filtered (RFC 7644, 4). */
function assertUnfiltered({ request }: ScimCall): void {
  if (request.query.has('filter')) throw new DomainError(7, 'remove the filter: this list cannot be filtered')
}

function documents(all: (endpoint: string) => readonly ScimDocument[]): ScimEndpoint {
  return {
    handle(call) {
      assertUnfiltered(call)
      const found = all(call.session.endpoint)
      return { answer: scimAnswer(200, { schemas: [listUrn], totalResults: found.length, startIndex: 1, itemsPerPage: found.length, Resources: found }) }
    },
  }
}

function oneDocument(all: (endpoint: string) => readonly ScimDocument[]): ScimEndpoint {
  return {
    handle(call) {
      const found = all(call.session.endpoint).find((document) => document['id'] === call.id)
      if (found === undefined) throw new DomainError(5, 'no such document')
      return { answer: scimAnswer(200, found) }
    },
  }
}

const config: ScimEndpoint = {
  handle(call) {
    assertUnfiltered(call)
    return { answer: scimAnswer(200, serviceProviderConfig(call.session.endpoint)) }
  },
}

function unsupported(detail: string): ScimEndpoint {
  return {
    handle() {
      throw new DomainError(12, detail)
    },
  }
}

const me = unsupported('/Me is not available: a SCIM token belongs to a directory, not to a user')

type ScimVerb = WebRoute['method']

/** The operations by path and verb; `*` matches one segment. */
export const scimEndpoints: Readonly<Record<string, Readonly<Partial<Record<ScimVerb, ScimEndpoint>>>>> = {
  ServiceProviderConfig: { GET: config },
  ResourceTypes: { GET: documents(resourceTypes) },
  'ResourceTypes/*': { GET: oneDocument(resourceTypes) },
  Schemas: { GET: documents(schemas) },
  'Schemas/*': { GET: oneDocument(schemas) },
  Users: { GET: listUsers, POST: createUser },
  'Users/.search': { POST: searchUsers },
  'Users/*': { GET: getUser, PUT: replaceUser, PATCH: patchUser, DELETE: deleteUser },
  '.search': { POST: searchUsers },
  Me: { GET: me, POST: me, PUT: me, PATCH: me, DELETE: me },
  Bulk: { POST: unsupported('bulk requests are not supported') },
}

/**
 * Returns the operation at a path. Throws code 5 for an unknown path. For another verb, throws code 12 with HTTP 405 and the allowed verbs
 * in `allow`.
 */
export function endpointOf(segments: readonly string[], verb: ScimVerb): ScimEndpoint {
  const [first = '', second] = segments
  const exact = segments.join('/')
  const path = Object.hasOwn(scimEndpoints, exact) ? exact : segments.length === 2 && second !== '' ? `${first}/*` : exact
  const byVerb = Object.hasOwn(scimEndpoints, path) ? scimEndpoints[path] : undefined
  if (byVerb === undefined) throw new DomainError(5, 'no such path')
  const endpoint = byVerb[verb]
  if (endpoint === undefined) {
    const details = { metadata: { allow: Object.keys(byVerb).join(', ') } }
    throw new DomainError(12, `${verb} is not served at this path`, { httpStatus: 405, details })
  }
  return endpoint
}

/** Checks the query of a write before the write. The query selects attributes of the response. */
export function checkQuery(query: URLSearchParams): void {
  projectionAsked(query)
}
