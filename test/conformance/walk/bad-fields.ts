import type { JsonObject } from '@bufbuild/protobuf'
import { camelCase, type BadInput } from './cases/method-case.ts'

/** A fault in a resource, the same in every request that carries one. */
export interface BadField {
  readonly what: string
  /** Constraints relative to the resource, `name:string.pattern`. */
  readonly breaks?: readonly string[]
  /** Fields (JSON names) to set. */
  readonly set?: JsonObject
  /** Fields (JSON names) to leave out. */
  readonly clear?: readonly string[]
  /** The fields in BadRequest. If absent, the field of the first constraint in `breaks`. */
  readonly fields?: readonly string[]
  readonly only?: 'rest' | 'grpc'
  readonly code?: number
}

/** Each oneof with a required member, and the member that errors name, because clients can't write the name of a oneof. */
const members: Readonly<Record<string, string>> = {
  relationship: 'claim_match',
  iss: 'issuer',
  sub: 'subject',
  aws_arn: 'arn',
  aws_user_id: 'user_id',
  configuration: 'oidc',
  condition: 'max_severity',
}

/** `claim_match.claims{key}:string.min_len` -> `claim_match.claims`, `claim_match.iss:oneof.required` -> `claim_match.issuer` */
function fieldOf(constraint: string): string {
  const path = constraint.slice(0, constraint.indexOf(':')).replaceAll(/\{(?:key|value)\}|\[\]/g, '')
  return constraint.endsWith(':oneof.required') ? path.replace(/[^.]+$/, (oneof) => members[oneof] ?? oneof) : path
}

function common(prefix: string, bad: BadField): Omit<BadInput, 'request'> {
  const { what, breaks = [], only, code } = bad
  const fields = bad.fields ?? breaks.slice(0, 1).map(fieldOf)
  return {
    what,
    breaks: breaks.map((constraint) => `${prefix}.${constraint}`),
    ...(code === undefined || code === 3 ? { fields } : { code }),
    ...(only === undefined ? {} : { only }),
  }
}

/** Returns the faults in the resource of a create request. `resource` is its field, as a proto name. */
export function inCreate(resource: string, errors: readonly BadField[]): BadInput[] {
  const key = camelCase(resource)
  return errors.map((bad) => ({
    ...common(resource, bad),
    request: (valid) => {
      const given = Object.entries(valid[key] as JsonObject).filter(([name]) => !(bad.clear ?? []).includes(name)) // a create request carries its resource
      return { ...valid, [key]: { ...Object.fromEntries(given), ...bad.set } }
    },
  }))
}

/** Returns the same faults in an update whose mask names the faulty fields. */
export function inUpdate(resource: string, errors: readonly BadField[]): BadInput[] {
  const key = camelCase(resource)
  return errors.map((bad) => ({
    ...common(resource, bad),
    request: (valid) => {
      const { uid = '' } = valid[key] as JsonObject // an update request carries its resource
      return { [key]: { uid, ...bad.set }, updateMask: [...(bad.clear ?? []), ...Object.keys(bad.set ?? {})].join(',') }
    },
  }))
}

/** Returns a text of `count` characters. */
export function long(count: number): string {
  return 'a'.repeat(count)
}

/** Returns a map with `count` entries. */
export function pairs(count: number): JsonObject {
  return Object.fromEntries(Array.from({ length: count }, (_, at) => [`key${at}`, 'value']))
}

/** Text in the form of a uid that is longer than any uid. */
export const longUid = `${'a'.repeat(40)}${`/${'b'.repeat(16)}`.repeat(13)}`
