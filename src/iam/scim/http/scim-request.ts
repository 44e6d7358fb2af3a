import { JsonBoundsError, parseBoundedJson } from '../../../base/bounded-json.ts'
import { DomainError } from '../../../base/errors.ts'
import { isUid } from '../../../base/uid.ts'
import { projectionOf } from '../scim-answers.ts'
import { scimError } from '../scim-error.ts'
import { parseFilter } from '../scim-filter.ts'
import type { ScimListQuery } from '../scim-list.ts'
import { isObject, maxUserBytes } from '../scim-values.ts'
import { mediaType, type WebRequest } from '../../../transport/web/web-request.ts'

/** A parsed path below `/scim/v2/`: an identity provider, and the segments of a path on its SCIM server. */
export interface ScimPlace {
  /** The provider's uid; empty if the path has none. */
  readonly provider: string
  readonly segments: readonly string[]
}

/** Splits a path. The provider's uid ends before the first segment that can not be part of a uid. */
export function placeOf(path: string): ScimPlace {
  const segments = path.split('/')
  if (segments.at(-1) === '') segments.pop()
  const end = segments.findIndex((segment) => !/^[0-9a-f]+$/.test(segment))
  const at = end < 0 ? segments.length : end
  const provider = segments.slice(0, at).join('/')
  return { provider: isUid(provider) ? provider : '', segments: segments.slice(at) }
}

const types: ReadonlySet<string> = new Set(['application/scim+json', 'application/json'])

function assertSchema(body: Readonly<Record<string, unknown>>, urn: string): void {
  const { schemas } = body
  if (schemas === undefined) return
  const named = Array.isArray(schemas) && schemas.some((schema) => typeof schema === 'string' && schema.toLowerCase() === urn.toLowerCase())
  if (!named) throw scimError('invalidSyntax', `schemas must name ${urn}`)
}

/** Reads the body, a JSON object. `schemas`, if present, must name `urn`. Throws `invalidSyntax`, or code 3 with HTTP 413 or 415. */
export async function readBody(request: WebRequest, urn: string): Promise<Readonly<Record<string, unknown>>> {
  const type = mediaType(request)
  if (type !== '' && !types.has(type)) throw new DomainError(3, 'the content type must be application/scim+json', { httpStatus: 415 })
  const text = await request.text(maxUserBytes)
  let body: unknown
  try {
    body = parseBoundedJson(text)
  } catch (error) {
    throw scimError('invalidSyntax', error instanceof JsonBoundsError ? `the body ${error.message}` : 'the body is not valid JSON')
  }
  if (!isObject(body)) throw scimError('invalidSyntax', 'the body must be a JSON object')
  assertSchema(body, urn)
  return body
}

/** Returns a function that checks whether an etag, weak or not, is in `If-Match` or `If-None-Match`; undefined without the header. */
export function etagMatcher(header: string | undefined): ((etag: string) => boolean) | undefined {
  if (header === undefined || header.trim() === '') return undefined
  const named = header.split(',').map((tag) => /^(?:W\/)?"?([^"]*)"?$/i.exec(tag.trim())?.[1] ?? '')
  return (etag) => named.includes('*') || named.includes(etag)
}

function wholeNumber(value: unknown, name: string): number | undefined {
  if (value === undefined || value === null) return undefined
  const number = typeof value === 'string' && /^[+-]?\d{1,15}$/.test(value.trim()) ? Number(value) : value
  if (typeof number !== 'number' || !Number.isSafeInteger(number)) throw scimError('invalidValue', `${name} must be a whole number`)
  return number
}

function nameList(value: unknown, name: string): readonly string[] | undefined {
  if (value === undefined || value === null || value === '') return undefined
  const list: readonly unknown[] = typeof value === 'string' ? value.split(',') : Array.isArray(value) ? value : [value]
  if (!list.every((item) => typeof item === 'string')) throw scimError('invalidValue', `${name} must be names of attributes`)
  return list
}

/**
 * Parses the parameters of a list, from its query or the body of a search (RFC 7644, 3.4.2 and 3.4.3). Throws `invalidFilter`,
 * `invalidValue`.
 */
export function listQuery(asked: Readonly<Record<string, unknown>>): ScimListQuery {
  const { filter } = asked
  if (filter !== undefined && filter !== null && typeof filter !== 'string') throw scimError('invalidFilter', 'filter must be a string')
  return {
    filter: typeof filter === 'string' && filter.trim() !== '' ? parseFilter(filter) : undefined,
    startIndex: wholeNumber(asked['startIndex'], 'startIndex') ?? 1,
    count: wholeNumber(asked['count'], 'count'),
    projection: projectionOf(nameList(asked['attributes'], 'attributes'), nameList(asked['excludedAttributes'], 'excludedAttributes')),
  }
}

const queryNames = ['filter', 'startIndex', 'count', 'attributes', 'excludedAttributes'] as const

/** Converts a list's query into the form of a search body. */
export function askedByQuery(query: URLSearchParams): Readonly<Record<string, unknown>> {
  return Object.fromEntries(queryNames.flatMap((name) => (query.has(name) ? [[name, query.get(name)]] : [])))
}
