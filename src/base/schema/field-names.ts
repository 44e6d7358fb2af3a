import { DomainError } from '../errors.ts'
import { registry } from './schema.ts'

/** JSON names of fields that clients know: `claim_match` -> `claimMatch`. Messages of the store have names of their own. */
const jsonNames: ReadonlyMap<string, string> = new Map(
  [...registry].flatMap((type) =>
    type.kind === 'message' && !type.typeName.startsWith('taproot.store.') ? type.fields.map(({ name, jsonName }) => [name, jsonName] as const) : [],
  ),
)

/**
 * Converts a field's path to JSON names: `requests[0].role_binding` -> `requests[0].roleBinding`. Map keys, which are in quotes, and unknown names stay
 * unchanged.
 */
export function jsonPath(path: string): string {
  return path.replaceAll(/"(?:[^"\\]|\\.)*"|[a-z][a-z0-9]*(?:_[a-z0-9]+)+/g, (name) => jsonNames.get(name) ?? name)
}

/** Converts the path of a field in schema names to the name that the caller knows. `describedField` is the field whose description contains the path. */
export type FieldNaming = (path: string, describedField?: string) => string

/** Returns a copy of the error with field names converted by `naming`, in its violations and in the message, where names are in backticks. */
export function withFieldNames(error: DomainError, naming: FieldNaming): DomainError {
  const sentence = (text: string, describedField?: string): string => text.replaceAll(/`([^`]*)`/g, (_, path: string) => `\`${naming(path, describedField)}\``)
  const { code, reason, details, cause, concealed, httpStatus } = error
  const options = { reason, cause, concealed, ...(httpStatus === undefined ? {} : { httpStatus }) }
  const { badRequest, precondition } = details
  if (badRequest !== undefined) {
    const violations = badRequest.map(({ field, description }) => ({ field: naming(field), description: sentence(description, field) }))
    return DomainError.invalidFields(violations, { ...options, details })
  }
  const violations = precondition?.map((violation) => ({ ...violation, description: sentence(violation.description) }))
  return new DomainError(code, sentence(error.message), { ...options, details: { ...details, ...(violations && { precondition: violations }) } })
}
