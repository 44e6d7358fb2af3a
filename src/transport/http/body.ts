import { HttpMethodEnum, koaBody } from 'koa-body'
import type { JsonObject, JsonValue } from '@bufbuild/protobuf'
import type { ParameterizedContext } from 'koa'
import { JsonBoundsError, parseBoundedJson } from '../../base/bounded-json.ts'
import { DomainError } from '../../base/errors.ts'
import { dropBody } from './unreadable-request.ts'
import { isJsonObject } from './json-shape.ts'

/** Maximum time in milliseconds to read a body that is dropped. It is longer than the server allows for a whole request. */
const skipTimeoutMs = 120_000

type BodyReader = ReturnType<typeof koaBody>

/** One body reader per size limit. Creating a reader takes longer than reading most bodies. */
const readers = new Map<number, BodyReader>()

/**
 * Returns a reader that reads bodies as text, because JSON is parsed only after its limits were checked. A request with a form may have become a GET
 * (docs/spec/conventions.md#request-bodies).
 */
function readerFor(maxBytes: number): BodyReader {
  let reader = readers.get(maxBytes)
  if (reader === undefined) {
    const { GET, POST, PUT, PATCH, DELETE } = HttpMethodEnum
    const off = { json: false, urlencoded: false, multipart: false }
    reader = koaBody({ ...off, text: true, textLimit: maxBytes, textTypes: ['*/*'], parsedMethods: [GET, POST, PUT, PATCH, DELETE] })
    readers.set(maxBytes, reader)
  }
  return reader
}

/** True if the content type of the request is that of a form. */
export function isForm(context: ParameterizedContext): boolean {
  return Boolean(context.is('application/x-www-form-urlencoded'))
}

/** Matches a content type with a type and a subtype. */
const mediaType = /^[^\s/;,]+\/[^\s/;,]+/

/**
 * Returns the text of a JSON body; empty without a body. A body without a content type counts as JSON. So does a JSON object with the content type of a form,
 * which curl sends by default. Throws like `readText`, and HTTP 415 for another content type.
 */
export async function readJsonText(context: ParameterizedContext, maxBytes: number): Promise<string> {
  const { headers } = context.req
  const isEmpty = headers['content-length'] === '0' || (headers['content-length'] === undefined && headers['transfer-encoding'] === undefined)
  if (isEmpty) return ''
  if (!mediaType.test(headers['content-type'] ?? '')) headers['content-type'] = 'application/json'
  const isJson = Boolean(context.is('application/json', 'application/*+json'))
  if (!isJson && !isForm(context)) throw wrongType('the content type must be application/json')
  const text = await readText(context, maxBytes)
  if (!isJson && !/^\s*\{/.test(text)) throw wrongType('the content type must be application/json')
  return text
}

/**
 * Parses a JSON body. An empty body is the empty object. With `listKey`, the body is a list, and the result has it under that key. Throws code 3 with HTTP 400
 * for malformed JSON, for values of another kind, and above the limits of requests.
 */
export function parseJsonBody(text: string, listKey?: string): JsonObject {
  if (listKey !== undefined) {
    const list = text === '' ? [] : parsed(text)
    if (!Array.isArray(list)) throw DomainError.invalid('body', 'must be a JSON list')
    return { [listKey]: list }
  }
  const value = text === '' ? {} : parsed(text)
  if (!isJsonObject(value)) throw DomainError.invalid('body', 'must be a JSON object')
  return value
}

function parsed(text: string): JsonValue {
  try {
    // The parser returns JSON values only.
    return parseBoundedJson(text) as JsonValue
  } catch (error) {
    throw DomainError.invalid('body', error instanceof JsonBoundsError ? error.message : 'is not valid JSON')
  }
}

/** Reads and drops a body that the method does not use. The size limit is the same as for JSON. A request that ends early has no effect. */
export async function skipBody({ req }: ParameterizedContext, maxBytes: number): Promise<void> {
  const outcome = await dropBody(req, { maxBytes, timeoutMs: skipTimeoutMs })
  if (outcome === 'tooLarge') throw tooLarge(maxBytes)
  if (outcome === 'cutOff') throw new DomainError(1, 'the client disconnected')
}

/** Reads the body of a request as the fields of a form. The size limit is the same as for JSON. */
export async function readForm(context: ParameterizedContext, maxBytes: number): Promise<URLSearchParams> {
  return new URLSearchParams(await readText(context, maxBytes))
}

/**
 * Reads a body of any content type as text. Throws code 3 with HTTP 413 if it is larger than `maxBytes`, also after decompression, and with HTTP 415 for an
 * unknown encoding.
 */
export async function readText(context: ParameterizedContext, maxBytes: number): Promise<string> {
  const { req } = context
  req.headers['content-type'] ??= 'application/octet-stream'
  const excess = Promise.withResolvers<never>()
  let length = 0
  // Count the received bytes here: the reader only counts decompressed bytes, of which there may be none.
  const count = (chunk: Buffer): void => {
    length += chunk.length
    if (length > maxBytes) excess.reject(tooLarge(maxBytes))
  }
  const isEncoded = !['identity', undefined].includes(req.headers['content-encoding'])
  try {
    const read = readerFor(maxBytes)(context, async () => {})
    if (isEncoded) req.on('data', count)
    await (isEncoded ? Promise.race([read, excess.promise]) : read)
  } catch (error) {
    throw translate(error, context, maxBytes)
  } finally {
    req.off('data', count)
  }
  const { body } = context.request as { readonly body?: unknown }
  return typeof body === 'string' ? body : ''
}

/** Translates an error of the body reader. It has an HTTP status (raw-body, inflation) or none (zlib). */
function translate(error: unknown, context: ParameterizedContext, maxBytes: number): DomainError {
  const status = (error as { readonly status?: unknown }).status
  // Let the client finish sending. Then it reads the answer instead of a connection reset, and the connection stays open.
  context.req.unpipe()
  context.req.resume()
  if (error instanceof DomainError) return error
  if (status === 413) return tooLarge(maxBytes)
  if (status === 415) return wrongType('the content encoding must be identity, gzip, deflate or br')
  return DomainError.invalid('body', 'cannot be read')
}

function tooLarge(maxBytes: number): DomainError {
  return DomainError.invalid('body', `must not be larger than ${maxBytes} bytes`, { httpStatus: 413 })
}

function wrongType(description: string): DomainError {
  return DomainError.invalid('body', description, { httpStatus: 415 })
}
