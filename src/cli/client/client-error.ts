import { codeNames, type Code } from '../../base/errors.ts'

/** A JSON object. */
export type Json = Readonly<Record<string, unknown>>

/** Details of an error response. */
export interface Refusal {
  /** The gRPC status code. */
  readonly code: number
  /** `ErrorInfo.reason`; empty if the response has none. */
  readonly reason: string
  /** The request id to search for in the server's log; empty if the response has none. */
  readonly requestId: string
}

/** The API refused a request or did not answer. The message is for the user. */
export class ClientError extends Error {
  override readonly name = 'ClientError'
  /** The gRPC status code; undefined if the API did not answer. */
  readonly code: number | undefined
  readonly reason: string
  readonly requestId: string

  constructor(message: string, refusal: Partial<Refusal> = {}, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause })
    this.code = refusal.code
    this.reason = refusal.reason ?? ''
    this.requestId = refusal.requestId ?? ''
  }

  /** The message, followed by code, reason and request id as far as they are known. */
  get line(): string {
    const name = this.code === undefined ? '' : (codeNames[this.code as Code] ?? '') // An unknown code has no name.
    const facts = [
      this.code === undefined ? '' : `code ${this.code}${name === '' ? '' : ` ${name}`}`,
      this.reason === '' || this.reason === name ? '' : `reason ${this.reason}`,
      this.requestId === '' ? '' : `request ${this.requestId}`,
    ].filter((fact) => fact !== '')
    return facts.length === 0 ? this.message : `${this.message} (${facts.join(', ')})`
  }
}

/** Parses an error response of the platform API, `{code, message, details}`; undefined for other responses. */
export function refusalOf(answer: Json | undefined): ClientError | undefined {
  const code = answer?.['code']
  if (typeof code !== 'number') return undefined
  const info = errorInfo(answer?.['details'])
  const metadata = isJson(info['metadata']) ? info['metadata'] : {}
  return new ClientError(textOf(answer?.['message']), { code, reason: textOf(info['reason']), requestId: textOf(metadata['requestId']) })
}

/** Returns the value if it is a string, otherwise an empty string. */
export function textOf(value: unknown): string {
  return typeof value === 'string' ? value : ''
}

/** Returns the strings of a list. Of any other value, an empty list. */
export function textsOf(value: unknown): readonly string[] {
  return Array.isArray(value) ? value.filter((text) => typeof text === 'string') : []
}

/** Returns the value if it is a JSON object, otherwise an empty one. */
export function objectOf(value: unknown): Json {
  return isJson(value) ? value : {}
}

/** True for a JSON object. */
export function isJson(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function errorInfo(details: unknown): Json {
  if (!Array.isArray(details)) return {}
  return details.filter(isJson).find((detail) => textOf(detail['@type']).endsWith('.ErrorInfo')) ?? {}
}
