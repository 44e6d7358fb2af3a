import { httpStatusOfCode } from '../../../src/transport/errors-http.ts'
import type { HttpAnswer } from './http-answer.ts'
import { probeId, type HttpOutcome } from './http-client.ts'
import { headerValues, type HttpDraft } from './requests/http-draft.ts'

/** The kind of a fault in an answer or in the server's behaviour. */
export type BreachKind =
  | 'fault' // An internal error of the server.
  | 'hang' // No answer, or no end of the connection, in time.
  | 'connection' // One answer too many or too few, or bytes that are not an answer.
  | 'form' // An error without code, message, details or request id.
  | 'leak' // An answer that shows internals of the server.
  | 'state' // A refused request that changed the store.
  | 'log' // A line that should never be logged.
  | 'memory' // Memory that grows with the requests.
  | 'end' // The server exited.

/** The fault, in a sentence. */
export interface Finding {
  readonly kind: BreachKind
  readonly text: string
}

/** An answer of 500 or above that is documented. */
interface DocumentedError {
  readonly why: string
  readonly matches: (draft: HttpDraft, answer: HttpAnswer) => boolean
}

/** The complete table. Any other is a breach. */
const documentedErrors: readonly DocumentedError[] = [
  {
    why: 'a method of the schema that has no handler yet',
    matches: ({ verb }, { status, body }) => status === 501 && (verb === 'HEAD' || body.includes('"code":12')),
  },
  {
    why: 'what a SCIM server may do without (RFC 7644 3.7, 3.11)',
    matches: (_, { status, body }) => status === 501 && body.includes('urn:ietf:params:scim:api:messages:2.0:Error'),
  },
  {
    why: 'the client set a deadline that has passed (docs/api.md, `Request-Timeout`)',
    matches: (draft, { status }) => status === 504 && headerValues(draft, 'request-timeout').length > 0,
  },
]

/** HTTP statuses of errors, in addition to those of their codes. */
const transportErrorStatuses: readonly number[] = [405, 406, 408, 413, 415, 417, 431]

/** Matches texts that reveal internals of the server. */
const inside = /node:internal|node_modules|\.ts:\d+|\bat (?:async )?[\w.<>]+ \(|Cannot read propert|is not a function|SQLITE_|etcdserver/

/** Returns the faults of an API answer. */
function judgeApiAnswer(answer: HttpAnswer, { verb, forms }: { verb: string; forms: readonly ErrorForm[] }): Finding[] {
  const findings: Finding[] = []
  const id = answer.headers['x-request-id']
  if (!forms.includes('none') && (id === undefined || id === '' || id.includes(',')))
    findings.push({ kind: 'form', text: `the request id of the answer is ${id}` })
  if (answer.status >= 400 && verb !== 'HEAD') findings.push(...judgeForm(answer, forms))
  if (answer.status < 400 && answer.headers['content-type']?.startsWith('application/json') === true && verb !== 'HEAD' && answer.body.length > 0) {
    if (parsed(answer.body) === undefined) findings.push({ kind: 'form', text: 'the answer is no JSON' })
  }
  return findings
}

/** The error format of a port. */
export type ErrorForm = 'status' | 'page' | 'oauth' | 'scim' | 'registry' | 'none'

const errorForms: Readonly<Record<ErrorForm, (answer: HttpAnswer) => Finding[]>> = {
  status: (answer) => judgeStatus(answer),
  // A page for browsers.
  page: (answer) => (isOfType(answer, 'text/html') ? [] : [{ kind: 'form', text: `status ${answer.status} without a page: ${shown(answer.body)}` }]),
  oauth: judgeOauthError,
  scim: judgeScimError,
  registry: judgeRegistryError,
  none: () => [],
}

/** Returns the faults of an answer in the first format, or none if any of the formats fits. */
function judgeForm(answer: HttpAnswer, forms: readonly ErrorForm[]): Finding[] {
  const found = forms.map((form) => errorForms[form](answer))
  return found.some(({ length }) => length === 0) ? [] : (found[0] ?? [])
}

/** True for a script of the API reference, which contains error texts of its own. */
function isScript(answer: HttpAnswer): boolean {
  return answer.status === 200 && isOfType(answer, 'text/javascript')
}

function isOfType({ headers }: HttpAnswer, type: string): boolean {
  return headers['content-type']?.split(';')[0] === type
}

interface StatusBody {
  readonly code?: unknown
  readonly message?: unknown
  readonly details?: unknown
}

function judgeStatus(answer: HttpAnswer, transportStatuses: readonly number[] = transportErrorStatuses): Finding[] {
  const body = parsed(answer.body) as StatusBody | undefined
  if (body === undefined || body === null) return [{ kind: 'form', text: `an error without a JSON body: ${shown(answer.body)}` }]
  const { code, message, details } = body
  const errors: string[] = []
  const known = httpStatusOfCode[code as keyof typeof httpStatusOfCode] as number | undefined // Undefined if the text is not a known code.
  if (known === undefined || (answer.status !== known && !transportStatuses.includes(answer.status))) errors.push(`code ${JSON.stringify(code)}`)
  if (typeof message !== 'string' || message === '') errors.push('no message')
  if (!isErrorInfo(details, answer.headers['x-request-id'])) errors.push(`details ${JSON.stringify(details ?? null).slice(0, 300)}`)
  return errors.length === 0 ? [] : [{ kind: 'form', text: `status ${answer.status} with ${errors.join(', ')}` }]
}

/** Returns whether the details contain reason, domain and the request id of the answer. */
function isErrorInfo(details: unknown, requestId: string | undefined): boolean {
  const list = Array.isArray(details) ? (details as Info[]) : [] // a cast: whatever it is, it is looked at
  const info = list.find((detail) => detail?.['@type'] === 'type.googleapis.com/google.rpc.ErrorInfo')
  return typeof info?.reason === 'string' && typeof info.domain === 'string' && info.metadata?.['requestId'] === requestId
}

interface Info {
  readonly '@type'?: string
  readonly reason?: unknown
  readonly domain?: unknown
  readonly metadata?: Readonly<Record<string, unknown>>
}

/** Errors of OAuth clients (RFC 6749 5.2, RFC 8628 3.5), except those of the server. */
const oauthErrors: readonly unknown[] = [
  'invalid_request',
  'invalid_client',
  'invalid_grant',
  'invalid_scope',
  'unauthorized_client',
  'unsupported_grant_type',
  'unsupported_token_type',
  'authorization_pending',
  'slow_down',
  'access_denied',
  'expired_token',
]

/** Checks that an OAuth error also has the members of every error. Most have status 400. */
function judgeOauthError(answer: HttpAnswer): Finding[] {
  const findings = judgeStatus(answer, [...transportErrorStatuses, 400])
  const body = parsed(answer.body) as { error?: unknown; error_description?: unknown } | undefined | null
  const isWhole = oauthErrors.includes(body?.error) && typeof body?.error_description === 'string' && body.error_description !== ''
  return isWhole ? findings : [...findings, { kind: 'form', text: `status ${answer.status} without an error of OAuth: ${shown(answer.body)}` }]
}

const scimTypes: readonly unknown[] = [
  undefined,
  'invalidFilter',
  'tooMany',
  'uniqueness',
  'mutability',
  'invalidSyntax',
  'invalidPath',
  'noTarget',
  'invalidValue',
  'invalidVers',
  'sensitive',
]

/** RFC 7644 3.12. */
function judgeScimError(answer: HttpAnswer): Finding[] {
  const body = parsed(answer.body) as { schemas?: unknown; status?: unknown; detail?: unknown; scimType?: unknown } | undefined | null
  const isError = Array.isArray(body?.schemas) && body.schemas.includes('urn:ietf:params:scim:api:messages:2.0:Error')
  const isWhole =
    isError && body?.status === String(answer.status) && typeof body.detail === 'string' && body.detail !== '' && scimTypes.includes(body.scimType)
  if (isWhole && isOfType(answer, 'application/scim+json')) return []
  return [{ kind: 'form', text: `status ${answer.status} without an error of SCIM: ${shown(answer.body)}` }]
}

/** The envelope of the OCI distribution specification. */
function judgeRegistryError(answer: HttpAnswer): Finding[] {
  const body = parsed(answer.body) as { errors?: { code?: unknown; message?: unknown }[] } | undefined
  const first = Array.isArray(body?.errors) ? body.errors[0] : undefined
  const isWhole = typeof first?.code === 'string' && typeof first.message === 'string'
  return isWhole ? [] : [{ kind: 'form', text: `status ${answer.status} without the registry's error: ${shown(answer.body)}` }]
}

function parsed(body: Buffer): unknown {
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(body)) as unknown
  } catch {
    // The caller chose it.
    return undefined
  }
}

function shown(body: Buffer): string {
  return JSON.stringify(body.subarray(0, 200).toString('latin1'))
}

/** Returns the faults in the end of a request. */
export function judgeHttp(draft: HttpDraft, outcome: HttpOutcome, forms: readonly ErrorForm[]): Finding[] {
  const findings: Finding[] = []
  const verb = draft.wire?.verb ?? draft.verb
  if (outcome.ended === 'late') findings.push({ kind: 'hang', text: `not done after ${Math.round(outcome.milliseconds)} ms` })
  if (outcome.malformed !== undefined && outcome.ended === 'closed') findings.push({ kind: 'connection', text: outcome.malformed })
  for (const answer of outcome.answers) {
    if (answer.status >= 500 && !documentedErrors.some(({ matches }) => matches(draft, answer)))
      findings.push({ kind: 'fault', text: `status ${answer.status}: ${shown(answer.body)}` })
    if (!isScript(answer) && inside.test(answer.body.toString('latin1'))) findings.push({ kind: 'leak', text: shown(answer.body) })
    const isProbe = draft.port === 'api' && answer.headers['x-request-id'] === probeId
    findings.push(...judgeApiAnswer(answer, { verb, forms: isProbe ? ['status'] : forms }))
  }
  if (draft.wire === undefined && outcome.ended !== 'late') findings.push(...judgeCount(draft, outcome))
  return findings
}

/** Checks the number of answers: one for a request with a clear end, and one for the probe unless the first answer closed the connection. */
function judgeCount({ port }: HttpDraft, { answers, ended }: HttpOutcome): Finding[] {
  const [first, second, ...more] = answers
  if (first === undefined) return [{ kind: 'connection', text: `no answer, the connection was ${ended}` }]
  const isClosed = first.headers['connection']?.toLowerCase() === 'close'
  // Other ports return no request id.
  const isProbe = second === undefined || port !== 'api' || second.headers['x-request-id'] === probeId
  if (more.length > 0 || !isProbe) return [{ kind: 'connection', text: `${answers.length} answers to one request and a probe` }]
  if (second === undefined && !isClosed) return [{ kind: 'connection', text: `the probe behind the request was not answered; the connection was ${ended}` }]
  return []
}
