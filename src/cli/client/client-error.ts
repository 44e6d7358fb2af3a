import { codeNames, type Code } from '../../base/errors.ts'

/** A JSON object. */
export type Json = Readonly<Record<string, unknown>>

/** The details of a refusal. */
export interface Refusal {
  /** The gRPC code. */
  readonly code: number
  /** `ErrorInfo.reason`; empty if the answer has none. */
  readonly reason: string
  /** The id to search for in the server's log; empty if the answer has none. */
  readonly requestId: string
}

/** A refusal by the API, or a missing answer. The message is for the user. */
export class ClientError extends Error {
  override readonly name = 'ClientError'
  /** The gRPC code; undefined without an answer from the API. */
  readonly code: number | undefined
  readonly reason: string
  readonly requestId: string

  constructor(message: string, refusal: Partial<Refusal> = {}, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause })
    this.code = refusal.code
    this.reason = refusal.reason ?? ''
    this.requestId = refusal.requestId ?? ''
  }

  /** The message with the known parts of code, reason and request id. */
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

/** Parses an error answer of the platform API, `{code, message, details}`; undefined for other answers. */
export function refusalOf(answer: Json | undefined): ClientError | undefined {
  const code = answer?.['code']
  if (typeof code !== 'number') return undefined
  const info = errorInfo(answer?.['details'])
  const metadata = isJson(info['metadata']) ? info['metadata'] : {}
  return new ClientError(textOf(answer?.['message']), { code, reason: textOf(info['reason']), requestId: textOf(metadata['requestId']) })
}

/** Returns the value if it is text, otherwise empty text. */
export function textOf(value: unknown): string {
  return typeof value === 'string' ? value : ''
}

/** True for a JSON object. */
export function isJson(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function errorInfo(details: unknown): Json {
  if (!Array.isArray(details)) return {}
  return details.filter(isJson).find((detail) => textOf(detail['@type']).endsWith('.ErrorInfo')) ?? {}
}
