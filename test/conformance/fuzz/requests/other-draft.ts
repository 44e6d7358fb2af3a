import type { HttpDraft } from './http-draft.ts'
import { exportRequests } from './export-requests.ts'
import { loginEndpoints } from './login-requests.ts'
import type { OtherParts, OtherRequest } from './other-request.ts'
import { partMutations } from '../mutations/part-mutations.ts'
import type { Corpus, Field } from '../protocol.ts'
import type { Random } from '../random.ts'
import { registryEndpoints } from './registry-requests.ts'
import { scimRequests } from './scim-requests.ts'

/** All requests outside the API methods. */
export const otherRequests: readonly OtherRequest[] = [...registryEndpoints, ...loginEndpoints, ...scimRequests, ...exportRequests]

/** Probability of a first mutation of the parts, and of further ones. */
const chances = { first: 0.5, more: 0.3 } as const

/** Longer values would always exceed the limit on headers. */
const longestValue = 8000

function pairs(fields: readonly Field[]): string[] {
  return fields.map((field) => field.map((text) => encodeURIComponent(text.toWellFormed()).slice(0, longestValue)).join('='))
}

function bodyOf({ form, json, body }: OtherParts): { body: Buffer | undefined; type: string | undefined } {
  if (form !== undefined) return { body: Buffer.from(pairs(form).join('&')), type: 'application/x-www-form-urlencoded' }
  return { body: json === undefined ? body : Buffer.from(JSON.stringify(json)), type: undefined }
}

/** Returns a request outside the API methods, and the mutations of its parts. */
export function otherDraft(corpus: Corpus, random: Random, requestId: string): { row: OtherRequest; draft: HttpDraft; mutations: string[] } {
  const row = random.pick(otherRequests)
  const parts = row.make(corpus, random)
  const mutations: string[] = []
  for (let tries = 0; tries < 4 && random.chance(mutations.length === 0 ? chances.first : chances.more); tries += 1) {
    const mutation = random.pick(partMutations)
    if (mutation.apply(parts, random)) mutations.push(mutation.name)
  }
  const { body, type } = bodyOf(parts)
  const headers: [string, string][] = [
    ['Host', 'fuzz.example'],
    ['X-Request-Id', requestId],
    ...(type === undefined ? [] : [['Content-Type', type] as [string, string]]),
    ...(parts.headers ?? []).map(([name, value]): [string, string] => [name, value]),
  ]
  return { row, mutations, draft: { port: row.port, verb: row.verb, path: parts.path, query: pairs(parts.query ?? []), headers, body, wire: undefined } }
}
