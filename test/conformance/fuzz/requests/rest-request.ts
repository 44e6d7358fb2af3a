import type { JsonObject, JsonValue } from '@bufbuild/protobuf'
import { isJsonObject } from '../../../../src/transport/http/json-shape.ts'
import type { HttpBinding } from '../../../../src/base/schema/method.ts'
import { camelCase } from '../../walk/cases/method-case.ts'
import { headerSafe } from '../nasty.ts'
import type { HttpDraft } from './http-draft.ts'

/** Percent-encodes UTF-8. Slashes stay, as in uids. Half of a surrogate pair becomes the replacement character. */
export function escaped(text: string): string {
  return encodeURIComponent(text.toWellFormed()).replaceAll('%2F', '/')
}

/** Removes the value of a route variable from the request and returns it. */
function taken(request: JsonObject, variable: string): JsonValue | undefined {
  const steps = variable.split('.').map(camelCase)
  const last = steps.pop() ?? ''
  let at: JsonValue | undefined = request
  for (const step of steps) at = isJsonObject(at) ? at[step] : undefined
  if (!isJsonObject(at)) return undefined
  const value = at[last]
  Reflect.deleteProperty(at, last)
  return value
}

function asText(value: JsonValue | undefined): string {
  if (value === undefined) return ''
  return typeof value === 'string' ? value : JSON.stringify(value).slice(0, 2000)
}

function queryOf(name: string, value: JsonValue | undefined): string[] {
  if (value === undefined || value === null) return []
  if (Array.isArray(value)) return value.flatMap((item) => queryOf(name, item))
  if (isJsonObject(value)) return Object.entries(value).flatMap(([key, inner]) => queryOf(`${name}.${key}`, inner))
  return [`${encodeURIComponent(name.toWellFormed())}=${encodeURIComponent(asText(value).toWellFormed())}`]
}

/** Maximum length of a query. A longer one would only test the server's limit on headers. */
const longestQuery = 20_000

/** Returns query parts up to the length that the server reads. */
function bounded(parts: readonly string[]): string[] {
  let length = 0
  return parts.filter((part) => (length += part.length + 1) < longestQuery)
}

/** Returns the path without slashes at its end. A regular expression would take quadratic time for a path of slashes. */
function withoutFinalSlashes(path: string): string {
  let end = path.length
  while (path[end - 1] === '/') end -= 1
  return path.slice(0, end)
}

/** Encodes the request for one of its routes. Uses up `request`. */
export function restDraft(binding: HttpBinding, request: JsonObject, headers: Readonly<Record<string, string>>): HttpDraft {
  const filled = binding.template.replaceAll(/\{([a-z_.]+)(?:=[^}]*)?\}/g, (_, variable: string) => escaped(asText(taken(request, variable))))
  const path = withoutFinalSlashes(filled).replace('/:', ':')
  const field = camelCase(binding.body)
  const body = binding.body === '*' ? request : binding.body === '' ? undefined : (request[field] ?? {})
  const rest = binding.body === '*' ? [] : Object.entries(request).filter(([key]) => key !== field)
  return {
    port: 'api',
    verb: binding.verb,
    path: path.slice(0, longestQuery),
    query: bounded(rest.flatMap(([key, value]) => queryOf(key, value))),
    headers: [
      ['Host', 'fuzz.example'],
      ...Object.entries(headers).map(([name, value]): [string, string] => [name, headerSafe(value)]),
      ...(body === undefined ? [] : [['Content-Type', 'application/json'] as [string, string]]),
    ],
    body: body === undefined ? undefined : Buffer.from(JSON.stringify(body), 'utf8'),
    wire: undefined,
  }
}
