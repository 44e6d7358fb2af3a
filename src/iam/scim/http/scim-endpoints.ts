import { DomainError } from '../../../base/errors.ts'
import { locationOf, projected, shownUser, versionOf, type Projection } from '../scim-answers.ts'
import { resourceTypes, schemas, serviceProviderConfig, type ScimDocument } from '../scim-discovery.ts'
import { listScimUsers } from '../scim-list.ts'
import { patched, patchUrn } from '../scim-patch.ts'
import { userUrn } from '../scim-schema.ts'
import { createScimUser, deleteScimUser, readScimUser, updateScimUser, type ScimSubject, type ScimUserView } from '../scim-users.ts'
import { readUser, type ScimObject } from '../scim-values.ts'
import type { RawAnswer, RawRequest, RawRoute } from '../../../transport/http/raw-route.ts'
import { emptyAnswer, scimAnswer } from './scim-answer.ts'
import { askedByQuery, etagMatcher, listQuery, readBody } from './scim-request.ts'
import type { ScimSession } from './scim-session.ts'

/** A request that was let in; `id` is the last segment of its path. */
export interface ScimCall {
  readonly session: ScimSession
  readonly request: RawRequest
  readonly id: string
}

/** What an endpoint answers; `subject` is the uid of the user that it changed. */
export interface ScimReply {
  readonly answer: RawAnswer
  readonly subject?: string
}

/** What is done at a path. `writes` is what the audit log calls it. */
export interface ScimEndpoint {
  readonly writes?: string
  handle(call: ScimCall): Promise<ScimReply> | ScimReply
}

const listUrn = 'urn:ietf:params:scim:api:messages:2.0:ListResponse'
const searchUrn = 'urn:ietf:params:scim:api:messages:2.0:SearchRequest'

/** What the query asks for of a user. Throws `invalidValue`. */
function projectionAsked(query: URLSearchParams): Projection {
  const { attributes, excludedAttributes } = askedByQuery(query)
  return listQuery({ attributes, excludedAttributes }).projection
}

/** The user, as the query of the request asks for it, with its etag. */
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
    // Nobody comes back because a request leaves out whether they are there (RFC 7644 3.5.1 lets us choose).
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

/** Documents are not filtered (RFC 7644 4). */
function assertUnfiltered({ request }: ScimCall): void {
  if (request.query.has('filter')) throw new DomainError(7, 'this can not be filtered')
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
      if (found === undefined) throw new DomainError(5, 'there is no such document')
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

const me = unsupported('a SCIM token stands for a directory and for no user')

type ScimVerb = RawRoute['method']

/** What is served, by path and verb; `*` is any one segment. */
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

/** The endpoint of this path. Throws code 5 for an unknown path, code 12 with HTTP 405, and the verbs that are served, for another verb. */
export function endpointOf(segments: readonly string[], verb: ScimVerb): ScimEndpoint {
  const [first = '', second] = segments
  const exact = segments.join('/')
  const path = Object.hasOwn(scimEndpoints, exact) ? exact : segments.length === 2 && second !== '' ? `${first}/*` : exact
  const byVerb = Object.hasOwn(scimEndpoints, path) ? scimEndpoints[path] : undefined
  if (byVerb === undefined) throw new DomainError(5, 'there is nothing at this path')
  const endpoint = byVerb[verb]
  if (endpoint === undefined) {
    const details = { metadata: { allow: Object.keys(byVerb).join(', ') } }
    throw new DomainError(12, `${verb} is not served at this path`, { httpStatus: 405, details })
  }
  return endpoint
}

/** Throws what is wrong with the query of a write before it is done: afterwards it would be too late to refuse. */
export function checkQuery(query: URLSearchParams): void {
  projectionAsked(query)
}
