import { DomainError } from '../../base/errors.ts'

/** Error types of SCIM requests (RFC 7644, table 9). */
export type ScimType = 'invalidFilter' | 'invalidPath' | 'invalidSyntax' | 'invalidValue' | 'mutability' | 'noTarget'

/** Returns an error of code 3 with the SCIM error type in its metadata. */
export function scimError(scimType: ScimType, detail: string): DomainError {
  return new DomainError(3, detail, { details: { metadata: { scimType } } })
}
