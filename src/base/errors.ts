/** The gRPC status codes that a domain error may have, with their names (docs/spec/errors.md#error-shape). */
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

/** A gRPC status code other than OK. */
export type Code = keyof typeof codeNames

/** One failing field of a request; `field` is relative to the resource, e.g. `claim_match.issuer`. */
export interface FieldViolation {
  readonly field: string
  readonly description: string
}

/** So many violations are looked for and listed at most: a client corrects one after the other, and a gRPC trailer has little room. */
export const maxViolations = 20

/** One reason in the state for which a request can't go on. */
export interface PreconditionViolation {
  readonly type: string
  readonly subject?: string
  readonly description: string
}

/** Which resource was not found. */
export interface ResourceInfo {
  readonly resourceType: string
  readonly resourceName: string
  readonly owner: string
  readonly description: string
}

/** What a domain error says besides code and message; ErrorInfo is on every error (docs/spec/errors.md#error-info). */
export interface ErrorDetails {
  readonly badRequest?: readonly FieldViolation[]
  readonly precondition?: readonly PreconditionViolation[]
  readonly resource?: ResourceInfo
  readonly retryAfterMs?: number
  readonly metadata?: Readonly<Record<string, string>>
}

/** How an error is made, besides its code and message. */
export interface ErrorOptions {
  /** ErrorInfo.reason; the code's own name where absent. */
  readonly reason?: string
  readonly details?: ErrorDetails
  /** For the log only; never sent. */
  readonly cause?: unknown
  /** The error hides something that the caller has no reach to: the audit log counts it as a denial. Never sent. */
  readonly concealed?: boolean
  /** HTTP status where it is narrower than the code's (405, 413, 415). */
  readonly httpStatus?: number
}

/**
 * The one error class of the domain. Message, reason and details are public; `cause` is for the log. Transports translate it in one
 * file each; anything else that is thrown becomes code 13 with a fixed sentence.
 */
export class DomainError extends Error {
  override readonly name = 'DomainError'
  readonly code: Code
  readonly reason: string
  readonly details: ErrorDetails
  readonly httpStatus: number | undefined
  readonly concealed: boolean

  constructor(code: Code, message: string, options: ErrorOptions = {}) {
    // A text that was cut may end in half a character.
    super(message.toWellFormed(), options.cause === undefined ? undefined : { cause: options.cause })
    this.code = code
    this.reason = options.reason ?? codeNames[code]
    this.details = options.details ?? {}
    this.httpStatus = options.httpStatus
    this.concealed = options.concealed ?? false
  }

  /** Code 3 on one field: `Invalid argument: <field>: <description>`. */
  static invalid(field: string, description: string, options: ErrorOptions = {}): DomainError {
    return DomainError.invalidFields([{ field, description }], options)
  }

  /** Code 3 with every failing field listed; the message names the first. At least one violation is required. */
  static invalidFields(violations: readonly FieldViolation[], options: ErrorOptions = {}): DomainError {
    const first = violations[0]
    if (first === undefined) throw new TypeError('invalidFields needs a violation')
    return new DomainError(3, `Invalid argument: ${first.field}: ${first.description}`, { ...options, details: { ...options.details, badRequest: violations } })
  }

  /** Code 9 with every violation listed: `Precondition failed: <description of the first>`. */
  static precondition(violations: readonly PreconditionViolation[], options: ErrorOptions = {}): DomainError {
    const first = violations[0]
    if (first === undefined) throw new TypeError('precondition needs a violation')
    return new DomainError(9, `Precondition failed: ${first.description}`, { ...options, details: { ...options.details, precondition: violations } })
  }
}
