/** The gRPC status codes that a DomainError may have, with their names (docs/spec/errors.md#error-shape). */
export const codeNames = {
  1: 'CANCELLED',
  2: 'UNKNOWN',
  3: 'INVALID_ARGUMENT',
  4: 'DEADLINE_EXCEEDED',
  5: 'NOT_FOUND',
  6: 'ALREADY_EXISTS',
  7: 'PERMISSION_DENIED',
  8: 'RESOURCE_EXHAUSTED',
  9: 'FAILED_PRECONDITION',
  10: 'ABORTED',
  11: 'OUT_OF_RANGE',
  12: 'UNIMPLEMENTED',
  13: 'INTERNAL',
  14: 'UNAVAILABLE',
  15: 'DATA_LOSS',
  16: 'UNAUTHENTICATED',
} as const

/** The number of a gRPC status code other than OK. */
export type Code = keyof typeof codeNames

/** A request field with an invalid value. `field` is relative to the resource, e.g. `claim_match.issuer`. */
export interface FieldViolation {
  readonly field: string
  readonly description: string
}

/** Maximum number of violations to look for and to list. A client corrects them one by one, and a gRPC trailer has little room. */
export const maxViolations = 20

/** One reason why the current state does not allow a request. */
export interface PreconditionViolation {
  readonly type: string
  readonly subject?: string
  readonly description: string
}

/** The type and name of a resource that was not found. */
export interface ResourceInfo {
  readonly resourceType: string
  readonly resourceName: string
  readonly owner: string
  readonly description: string
}

/** The details of a DomainError in addition to code and message. Every error also carries an ErrorInfo (docs/spec/errors.md#error-info). */
export interface ErrorDetails {
  readonly badRequest?: readonly FieldViolation[]
  readonly precondition?: readonly PreconditionViolation[]
  readonly resource?: ResourceInfo
  readonly retryAfterMs?: number
  readonly metadata?: Readonly<Record<string, string>>
}

/** The optional parts of a DomainError. */
export interface ErrorOptions {
  /** The stable reason in ErrorInfo. By default, the name of the code. */
  readonly reason?: string
  readonly details?: ErrorDetails
  /** The underlying error. It goes to the log and is never sent to the client. */
  readonly cause?: unknown
  /** True if the error hides a resource that the caller may not see. The audit log then records a denial. Never sent to the client. */
  readonly concealed?: boolean
  /** HTTP status, if it is more specific than the one of the code (405, 413, 415). */
  readonly httpStatus?: number
}

/**
 * The only error class for failures that a client may see. Message, reason and details are public; `cause` is for the log. Each transport translates it in one
 * file. Any other thrown value becomes code 13 with a fixed sentence.
 */
export class DomainError extends Error {
  override readonly name = 'DomainError'
  readonly code: Code
  readonly reason: string
  readonly details: ErrorDetails
  readonly httpStatus: number | undefined
  readonly concealed: boolean

  constructor(code: Code, message: string, options: ErrorOptions = {}) {
    // The message may be a shortened text that ends in half a character.
    super(message.toWellFormed(), options.cause === undefined ? undefined : { cause: options.cause })
    this.code = code
    this.reason = options.reason ?? codeNames[code]
    this.details = options.details ?? {}
    this.httpStatus = options.httpStatus
    this.concealed = options.concealed ?? false
  }

  /** Returns code 3 for one field: `Invalid argument: <field>: <description>`. */
  static invalid(field: string, description: string, options: ErrorOptions = {}): DomainError {
    return DomainError.invalidFields([{ field, description }], options)
  }

  /** Returns code 3 with all these violations, at least one. The message names the first. */
  static invalidFields(violations: readonly FieldViolation[], options: ErrorOptions = {}): DomainError {
    const first = violations[0]
    if (first === undefined) throw new TypeError('invalidFields needs at least one violation')
    return new DomainError(3, `Invalid argument: ${first.field}: ${first.description}`, { ...options, details: { ...options.details, badRequest: violations } })
  }

  /** Returns code 9 with all these violations, at least one: `Precondition failed: <description of the first>`. */
  static precondition(violations: readonly PreconditionViolation[], options: ErrorOptions = {}): DomainError {
    const first = violations[0]
    if (first === undefined) throw new TypeError('precondition needs at least one violation')
    return new DomainError(9, `Precondition failed: ${first.description}`, { ...options, details: { ...options.details, precondition: violations } })
  }

  /** Returns code 7. Its metadata contains the missing capabilities and the group that was checked. */
  static denied(missing: readonly string[], scope: string): DomainError {
    const metadata = missing.length === 0 ? { scope } : { missingCapabilities: missing.join(','), scope }
    return new DomainError(7, missing.length === 0 ? 'permission denied' : `permission denied: needs ${missing.join(', ')}`, { details: { metadata } })
  }
}
