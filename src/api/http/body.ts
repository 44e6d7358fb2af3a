import { HttpMethodEnum, koaBody } from 'koa-body'
import type { JsonObject, JsonValue } from '@bufbuild/protobuf'
import type { ParameterizedContext } from 'koa'
import { DomainError } from '../../core/errors.ts'
import { dropBody } from '../../core/unreadable-request.ts'
import { isJsonObject } from './json-shape.ts'

/** The largest request body, in bytes (decisions "HTTP status of gRPC codes"). */
export const maxBodyBytes = 1024 * 1024

/** How long a body that is dropped may take, in milliseconds: longer than the server lets a whole request take. */
const skipPatienceMs = 120_000

/** How deep objects and lists may nest in a body. */
const maxDepth = 64

const off = { json: false, urlencoded: false, text: false, multipart: false }

const parseJson = koaBody({ ...off, json: true, jsonLimit: maxBodyBytes, jsonTypes: ['application/json', 'application/*+json'] })

/** A form is read as text: its query string is parsed where that of the address is. It may have become a GET (wire-v1 1.4). */
const parseForm = koaBody({
  ...off,
  parsedMethods: [HttpMethodEnum.POST, HttpMethodEnum.GET],
  text: true,
  textLimit: maxBodyBytes,
  textTypes: ['application/x-www-form-urlencoded'],
})

/** True where the request says that its body is a form. */
export function isForm(context: ParameterizedContext): boolean {
  return Boolean(context.is('application/x-www-form-urlencoded'))
}

/**
 * Reads a JSON object. No body at all is the empty object, a body without content type is taken for JSON. Code 3 with HTTP 400 on
 * malformed JSON or anything but an object, 415 on another content type, 413 above 1 MiB.
 */
export async function readJsonBody(context: ParameterizedContext): Promise<JsonObject> {
  const { headers } = context.req
  const isEmpty = headers['content-length'] === '0' || (headers['content-length'] === undefined && headers['transfer-encoding'] === undefined)
  if (isEmpty) return {}
  if (headers['content-type'] === undefined || headers['content-type'] === '') headers['content-type'] = 'application/json'
  if (!context.is('application/json', 'application/*+json')) throw wrongType('the content type must be application/json')
  await parse(parseJson, context)
  const value = (context.request as { readonly body?: JsonValue }).body
  if (!isJsonObject(value)) throw DomainError.invalid('body', 'must be a JSON object')
  if (!isShallow(value)) throw DomainError.invalid('body', `must not nest deeper than ${maxDepth} levels`)
  return value
}

/** Drops a body that the method does not take; the same size limit as for JSON. A request that breaks off before its end has no effect. */
export async function skipBody({ req }: ParameterizedContext): Promise<void> {
  const outcome = await dropBody(req, { maxBytes: maxBodyBytes, patienceMs: skipPatienceMs })
  if (outcome === 'tooLarge') throw tooLarge(maxBodyBytes)
  if (outcome === 'cutOff') throw new DomainError(1, 'the client went away')
}

/** Reads a form; the same size limit as for JSON. */
export async function readForm(context: ParameterizedContext): Promise<URLSearchParams> {
  await parse(parseForm, context)
  const { body } = context.request as { readonly body?: unknown }
  return new URLSearchParams(typeof body === 'string' ? body : '')
}

/** Reads a body of any type as text; the same size limit as for JSON unless another is given. */
export async function readText(context: ParameterizedContext, maxBytes = maxBodyBytes): Promise<string> {
  context.req.headers['content-type'] ??= 'application/octet-stream'
  await parse(koaBody({ ...off, text: true, textLimit: maxBytes, textTypes: ['*/*'] }), context, maxBytes)
  const { body } = context.request as { readonly body?: unknown }
  return typeof body === 'string' ? body : ''
}

async function parse(parser: typeof parseJson, context: ParameterizedContext, maxBytes = maxBodyBytes): Promise<void> {
  try {
    await parser(context, async () => {})
  } catch (error) {
    throw translate(error, context, maxBytes)
  }
}

/** Body parser errors carry an HTTP status (raw-body, inflation) or none (JSON syntax). */
function translate(error: unknown, context: ParameterizedContext, maxBytes: number): DomainError {
  const status = (error as { readonly status?: unknown }).status
  // Lets the client finish sending, so that it reads the answer instead of a reset, and the connection goes on.
  context.req.resume()
  if (status === 413) return tooLarge(maxBytes)
  if (status === 415) return wrongType('the content encoding must be identity, gzip, deflate or br')
  return DomainError.invalid('body', 'is not valid JSON')
}

function tooLarge(maxBytes: number): DomainError {
  return DomainError.invalid('body', `must not be larger than ${maxBytes} bytes`, { httpStatus: 413 })
}

function wrongType(description: string): DomainError {
  return DomainError.invalid('body', description, { httpStatus: 415 })
}

/** Walks with a list of its own: the call stack must not depend on a client's nesting. */
function isShallow(value: JsonValue): boolean {
  let level: JsonValue[] = [value]
  for (let depth = 0; level.length > 0; depth++) {
    if (depth > maxDepth) return false
    level = level.flatMap((item) =>
      typeof item === 'object' && item !== null ? Object.values(item).filter((child) => typeof child === 'object' && child !== null) : [],
    )
  }
  return true
}
