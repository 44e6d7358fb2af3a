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
  /** What BadRequest names; the field that `breaks` names first where absent. */
  readonly fields?: readonly string[]
  readonly only?: 'rest' | 'grpc'
  readonly code?: number
}

/** Each oneof of which a member is required -> the member that an error names: a oneof's own name can't be written. */
const members: Readonly<Record<string, string>> = {
  relationship: 'claim_match',
  iss: 'issuer',
  sub: 'subject',
  aws_arn: 'arn',
  aws_user_id: 'user_id',
  configuration: 'oidc',
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

/** The faults in the resource of a create request; `resource` is its field, proto name. */
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

/** The same faults in an update, whose mask names the fields at fault. */
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

/** `count` characters. */
export function long(count: number): string {
  return 'a'.repeat(count)
}

/** A map with `count` entries. */
export function pairs(count: number): JsonObject {
  return Object.fromEntries(Array.from({ length: count }, (_, at) => [`key${at}`, 'value']))
}

/** Text that has the shape of a uid but is longer than any. */
export const longUid = `${'a'.repeat(40)}${`/${'b'.repeat(16)}`.repeat(13)}`
