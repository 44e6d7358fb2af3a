import { DomainError } from '../errors.ts'
import { registry } from './schema.ts'

/** Field names of the schema that differ in JSON: `claim_match` -> `claimMatch`. */
const jsonNames: ReadonlyMap<string, string> = new Map(
  [...registry].flatMap((type) => (type.kind === 'message' ? type.fields.map(({ name, jsonName }) => [name, jsonName] as const) : [])),
)

/**
 * A field's path in JSON names: `requests[0].role_binding` -> `requests[0].roleBinding`. Keys of maps, which stand in quotes, and names that are not in the schema stay
 * as they are.
 */
export function jsonPath(path: string): string {
  return path.replaceAll(/"(?:[^"\\]|\\.)*"|[a-z][a-z0-9]*(?:_[a-z0-9]+)+/g, (name) => jsonNames.get(name) ?? name)
}

/** How fields are named to a caller: what stands for a path in schema names. */
export type FieldNaming = (path: string) => string

/** The error with other names of fields: in its violations, and in sentences, where they stand in backticks. */
export function withFieldNames(error: DomainError, naming: FieldNaming): DomainError {
  const sentence = (text: string): string => text.replaceAll(/`([^`]*)`/g, (_, path: string) => `\`${naming(path)}\``)
  const { code, reason, details } = error
  const { badRequest, precondition } = details
  if (badRequest !== undefined) {
    const violations = badRequest.map(({ field, description }) => ({ field: naming(field), description: sentence(description) }))
    return DomainError.invalidFields(violations, { reason, details })
  }
  const violations = precondition?.map((violation) => ({ ...violation, description: sentence(violation.description) }))
  return new DomainError(code, sentence(error.message), { reason, details: { ...details, ...(violations && { precondition: violations }) } })
}
