/** The error codes of the OCI distribution specification, with their HTTP status. */
export const registryErrorStatus = {
  BLOB_UNKNOWN: 404,
  BLOB_UPLOAD_INVALID: 400,
  BLOB_UPLOAD_UNKNOWN: 404,
  DIGEST_INVALID: 400,
  MANIFEST_BLOB_UNKNOWN: 404,
  MANIFEST_INVALID: 400,
  MANIFEST_UNKNOWN: 404,
  NAME_INVALID: 400,
  NAME_UNKNOWN: 404,
  SIZE_INVALID: 413,
  UNAUTHORIZED: 401,
  DENIED: 403,
  UNSUPPORTED: 405,
  TOOMANYREQUESTS: 429,
  UNAVAILABLE: 503,
  UNKNOWN: 500,
} as const

/** A code of the registry's error envelope. */
export type RegistryErrorCode = keyof typeof registryErrorStatus

/** Optional parts of an error response. */
export interface RegistryErrorOptions {
  /** HTTP status, if not that of the code. */
  readonly status?: number
  readonly headers?: Readonly<Record<string, string>>
  /** The `detail` field of the response. */
  readonly detail?: unknown
  readonly cause?: unknown
}

/** An error of the registry host, sent as `{"errors":[{code, message, detail}]}`. The cause is only logged. */
export class RegistryError extends Error {
  override readonly name = 'RegistryError'
  readonly code: RegistryErrorCode
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  readonly detail: unknown
  constructor(code: RegistryErrorCode, message: string, options: RegistryErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause })
    this.code = code
    this.status = options.status ?? registryErrorStatus[code]
    this.headers = options.headers ?? {}
    this.detail = options.detail
  }
}
