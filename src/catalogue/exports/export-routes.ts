import { create } from '@bufbuild/protobuf'
import { DomainError } from '../../base/errors.ts'
import { methodName } from '../../base/schema/method.ts'
import { errorDomainSuffix, methods } from '../../base/schema/schema.ts'
import type { DocumentExport } from '../../cache/lists/advisory-source.ts'
import type { CvssScore } from '../../cache/lists/vulnerability-source.ts'
import { notFound } from '../../engine/errors.ts'
import { turnOf, type Context, type Services } from '../../engine/services.ts'
import { DocumentSchema, ListDocumentsRequestSchema, type ListDocumentsResponse } from '../../gen/taproot/advisory/v2/advisory_pb.ts'
import type { Call } from '../../transport/calls/call.ts'
import { parseCallHeaders } from '../../transport/calls/call-headers.ts'
import { jsonType, type HttpAnswer, type StreamedAnswer } from '../../transport/http/http-context.ts'
import type { JsonEncoders } from '../../transport/json-encode.ts'
import type { Admit } from '../../transport/calls/pipeline.ts'
import { addressKey } from '../../transport/rate-limit.ts'
import type { WebRequest } from '../../transport/web/web-request.ts'
import type { WebRoute } from '../../transport/web/web-routes.ts'
import { listDocuments } from '../advisories/list-documents.ts'
import { answerTooLarge, documentedAdvisories } from '../advisories/visible-advisories.ts'
import { ZipDownloads } from './zip-downloads.ts'

/** The bounds of one document. A thread makes it. */
const maxAdvisories = 10_000
const maxBytes = 16 * 1024 * 1024
/** The number of vulnerabilities whose scores are looked up together: other queries wait for them. */
const scoresPerTurn = 500

/** What the routes need. */
export interface ExportOptions {
  readonly services: Services
  /** The steps of the pipeline before a handler. */
  readonly admit: Admit
  readonly encoders: JsonEncoders
  /** The URL of the API, without a slash at its end. */
  readonly baseUrl: string
}

/** The forms of a document: the value of `format`, and its media type. The first one is for clients that accept all of them. */
const mediaTypes = {
  json: 'application/json',
  openvex: 'application/vnd.openvex+json',
  csaf: 'application/vnd.csaf+json',
  osv: 'application/vnd.osv+json',
} as const satisfies Record<DocumentExport['format'] | 'json', string>

type Format = keyof typeof mediaTypes

function isFormat(name: string): name is Format {
  return Object.hasOwn(mediaTypes, name)
}

/** Returns the form that the request asks for. Throws code 3, with HTTP 406 if the header `Accept` has none of them. */
function formatOf(request: WebRequest): Format {
  const names = Object.keys(mediaTypes)
  const asked = request.query.get('format') ?? ''
  if (asked !== '') {
    if (!isFormat(asked)) throw DomainError.invalid('format', `must be one of ${names.join(', ')}`)
    return asked
  }
  const accepted = request.accepts(Object.values(mediaTypes))
  const found = names.filter(isFormat).find((name) => mediaTypes[name] === accepted)
  if (found === undefined) throw DomainError.invalid('accept', `must contain one of ${Object.values(mediaTypes).join(', ')}`, { httpStatus: 406 })
  return found
}

const listed = methods.find((method) => methodName(method) === 'taproot.advisory.v2.SecurityAdvisoryService/ListDocuments')

/** Returns the request as a call of ListDocuments, whose rights and limits also hold here. */
function callOf(request: WebRequest, id: string): Call {
  if (listed === undefined) throw new TypeError('the schema has no method ListDocuments')
  return {
    method: listed,
    transport: 'http',
    headers: parseCallHeaders(
      (name) => request.header(name),
      () => request.requestId,
    ),
    validateOnly: false,
    remoteAddress: request.remoteAddress,
    signal: request.signal,
    throwIfEnded: () => request.signal.throwIfAborted(),
    decode: () => Promise.resolve({ message: create(ListDocumentsRequestSchema, { id }) }),
  }
}

function missing(id: string): DomainError {
  return notFound('advisory document', id, { resourceType: `advisory.${errorDomainSuffix}/Document` })
}

/** Returns the document as ListDocuments shows it. */
async function ownForm({ services, encoders }: ExportOptions, context: Context, id: string): Promise<string> {
  const { message } = await listDocuments(services, context, create(ListDocumentsRequestSchema, { id }))
  const [document] = (message as ListDocumentsResponse).documents // the method's output
  if (document === undefined) throw missing(id)
  return encoders(DocumentSchema)(document)
}

function publisherOf({ services, baseUrl }: ExportOptions): string {
  return services.settings.registry?.publicOrganization ?? new URL(baseUrl).host
}

/** Returns the scores of vulnerabilities whose advisories have none, by id (docs/spec/advisories.md#advisory-severities). */
async function scoresFor({ services }: ExportOptions, context: Context, id: string): Promise<ReadonlyMap<string, readonly CvssScore[]>> {
  const { sources, groups } = await documentedAdvisories(services, context)
  if (groups.length === 0 || services.catalogue('vulnerabilities') === undefined) return new Map()
  const query = { groups, origin: id, maxAdvisories, maxBytes }
  const names = (await Promise.all(sources.map((source) => source.unscored(query, turnOf(context))))).flat()
  const found = new Map<string, readonly CvssScore[]>()
  for (let at = 0; at < names.length; at += scoresPerTurn) {
    const some = names.slice(at, at + scoresPerTurn)
    // A new catalogue may have closed the one before.
    const scores = (await services.catalogue('vulnerabilities')?.scores(some, turnOf(context))) ?? []
    some.forEach(([name = ''], index) => found.set(name, scores[index] ?? []))
  }
  return found
}

async function exported(
  options: ExportOptions,
  context: Context,
  { id, format }: { readonly id: string; readonly format: DocumentExport['format'] },
): Promise<Uint8Array> {
  // Other forms have no scores, or those of the advisories only.
  const scores = format === 'csaf' ? await scoresFor(options, context, id) : new Map<string, readonly CvssScore[]>()
  const { sources, groups } = await documentedAdvisories(options.services, context)
  const query = { groups, origin: id, format, publisher: publisherOf(options), baseUrl: options.baseUrl, scores, maxAdvisories, maxBytes }
  for (const source of groups.length === 0 ? [] : sources) {
    const text = await source.exportDocument(query, turnOf(context))
    if (text === undefined) throw answerTooLarge(`the package has more than ${maxAdvisories} advisories or ${maxBytes / 1024 / 1024} MiB`)
    if (text.length > 0) return text
  }
  throw missing(id)
}

async function serveDocument(options: ExportOptions, request: WebRequest): Promise<HttpAnswer> {
  const id = request.params['id'] ?? ''
  const context = await options.admit(callOf(request, id))
  const format = formatOf(request)
  const vary = { Vary: 'Accept, Authorization' }
  if (format === 'json') return { status: 200, headers: { ...jsonType, ...vary }, body: await ownForm(options, context, id) }
  return { status: 200, headers: { 'Content-Type': mediaTypes[format], ...vary }, body: await exported(options, context, { id, format }) }
}

async function serveZip(options: ExportOptions, downloads: ZipDownloads, request: WebRequest): Promise<StreamedAnswer> {
  const context = await options.admit(callOf(request, ''))
  const key = context.caller?.identity ?? addressKey(request.remoteAddress)
  const pieces = await downloads.begin(context, key)
  return { headers: { 'Content-Type': 'application/zip', 'Content-Disposition': 'attachment; filename="osv.zip"', Vary: 'Authorization' }, pieces }
}

/** Returns the routes of advisories in forms that other tools read (docs/spec/advisories.md#advisory-exports). */
export function exportRoutes(options: ExportOptions): WebRoute[] {
  const downloads = new ZipDownloads(options.services)
  return [
    { method: 'GET', path: '/advisory/v2/documents/*id', handle: (request) => serveDocument(options, request) },
    { method: 'GET', path: '/advisory/v2/osv.zip', handle: (request) => serveZip(options, downloads, request) },
  ]
}
