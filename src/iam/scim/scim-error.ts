import { DomainError } from '../../base/errors.ts'

/** Kinds of fault of a SCIM request that clients tell apart (RFC 7644, table 9). */
export type ScimType = 'invalidFilter' | 'invalidPath' | 'invalidSyntax' | 'invalidValue' | 'mutability' | 'noTarget'

/** Code 3 with the kind of fault in its metadata. */
export function scimError(scimType: ScimType, detail: string): DomainError {
  return new DomainError(3, detail, { details: { metadata: { scimType } } })
}
