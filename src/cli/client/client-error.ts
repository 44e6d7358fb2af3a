import { codeNames, type Code } from '../../base/errors.ts'

/** A JSON object. */
export type Json = Readonly<Record<string, unknown>>

/** What an answer says of a refusal besides its message. */
export interface Refusal {
  /** The gRPC code. */
  readonly code: number
  /** `ErrorInfo.reason`; empty where the answer has none. */
  readonly reason: string
  /** What to search the server's log for; empty where the answer has none. */
  readonly requestId: string
}

/** A refusal of the API, or no answer at all. The message is for a person. */
export class ClientError extends Error {
  override readonly name = 'ClientError'
  /** The gRPC code; undefined where there was no answer of the API. */
  readonly code: number | undefined
  readonly reason: string
  readonly requestId: string

  constructor(message: string, refusal: Partial<Refusal> = {}, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause })
    this.code = refusal.code
    this.reason = refusal.reason ?? ''
    this.requestId = refusal.requestId ?? ''
  }

  /** The message with code, reason and request id, as far as they are known. */
  get line(): string {
    const name = this.code === undefined ? '' : (codeNames[this.code as Code] ?? '') // a cast: a code that is unknown here has no name
    const facts = [
      this.code === undefined ? '' : `code ${this.code}${name === '' ? '' : ` ${name}`}`,
      this.reason === '' || this.reason === name ? '' : `reason ${this.reason}`,
      this.requestId === '' ? '' : `request ${this.requestId}`,
    ].filter((fact) => fact !== '')
    return facts.length === 0 ? this.message : `${this.message} (${facts.join(', ')})`
  }
}

/** The error of an answer that is one of the platform API, `{code, message, details}`; undefined where it is none. */
export function refusalOf(answer: Json | undefined): ClientError | undefined {
  const code = answer?.['code']
  if (typeof code !== 'number') return undefined
  const info = errorInfo(answer?.['details'])
  const metadata = isJson(info['metadata']) ? info['metadata'] : {}
  return new ClientError(textOf(answer?.['message']), { code, reason: textOf(info['reason']), requestId: textOf(metadata['requestId']) })
}

/** A member that is text; empty where it is not. */
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
