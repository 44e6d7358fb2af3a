import type { JsonObject } from '@bufbuild/protobuf'
import type { MethodRow } from '../../../src/base/schema/method.ts'
import { camelCase } from './cases/method-case.ts'

/** Returns a request with every variable of the method's route set. */
export function routedRequest(method: MethodRow): JsonObject {
  const request: JsonObject = {}
  for (const [, variable = '', pattern] of (method.http[0]?.template ?? '').matchAll(/\{([a-z_.]+)(?:=([^}]*))?\}/g)) {
    const path = variable.split('.').map(camelCase)
    const last = path.pop() ?? ''
    let at = request
    for (const step of path) at = (at[step] ??= {}) as JsonObject // made here
    at[last] = pattern === '**' ? 'a'.repeat(40) : 'one'
  }
  return request
}
