import { setTimeout as delay } from 'node:timers/promises'
import type { JsonObject } from '@bufbuild/protobuf'
import { grpcClient, restClient, type ApiClient, type Options, type Reply } from '../../support/api-clients.ts'
import type { SeededRandom } from '../schedules/random.ts'

/** The result of a call: an answer; no answer, so that it may have been executed; or not sent, because no server listened. */
export type CallResult = { readonly kind: 'answered'; readonly reply: Reply } | { readonly kind: 'unanswered' } | { readonly kind: 'unsent' }

/** A call, as the endpoints accept it. */
export interface ApiCall {
  readonly rpc: string
  readonly request: JsonObject
  readonly options?: Options
}

/** The replicas, and the credentials of the caller. */
export interface ApiCallsOptions {
  readonly endpoints: readonly string[]
  readonly token: () => Promise<string>
  readonly timeoutMs: number
}

/** Time in milliseconds after which a token is replaced. Tokens live an hour. */
const tokenUseMs = 5 * 60_000

/** The messages of grpc-js for a call without a connection. */
const grpcUnsent = /^No connection established|^Name resolution failed/

/** Calls every replica over REST and gRPC. */
export class ApiCalls {
  readonly apiClients: readonly ApiClient[]
  readonly #options: ApiCallsOptions
  #token: { readonly text: Promise<string>; readonly takenAt: number } | undefined

  constructor(options: ApiCallsOptions) {
    this.#options = options
    this.apiClients = options.endpoints.flatMap((endpoint) => [restClient(endpoint), grpcClient(new URL(endpoint).host)])
  }

  /** Calls a random endpoint. Rejects if the answer is not one of an API. */
  callAny(random: SeededRandom, call: ApiCall): Promise<CallResult> {
    return this.callAt(random.pick(this.apiClients), call)
  }

  async callAt(apiClient: ApiClient, { rpc, request, options }: ApiCall): Promise<CallResult> {
    const token = await this.#currentToken()
    if (token === undefined) return { kind: 'unsent' }
    const timer = new AbortController()
    const late = delay(this.#options.timeoutMs, undefined, { signal: timer.signal })
    try {
      const answered = apiClient.call(rpc, request, { ...options, token })
      const reply = await Promise.race([answered, late])
      if (reply === undefined) {
        // Its later outcome is ignored.
        answered.catch(() => undefined)
        return { kind: 'unanswered' }
      }
      return this.#resultOf(reply)
    } catch (error) {
      return failedCall(error)
    } finally {
      timer.abort()
      late.catch(() => undefined)
    }
  }

  close(): void {
    for (const apiClient of this.apiClients) apiClient.close()
  }

  #resultOf(reply: Reply): CallResult {
    if (reply.code === 16) this.#token = undefined
    if (reply.code === 14 && !isOurs(reply) && grpcUnsent.test(reply.message)) return { kind: 'unsent' }
    // grpc-js: the connection broke, or the deadline passed here.
    if (!isOurs(reply) && reply.code !== 0) return { kind: 'unanswered' }
    return { kind: 'answered', reply }
  }

  /** Undefined if no process issues one at the moment. */
  async #currentToken(): Promise<string | undefined> {
    if (this.#token === undefined || performance.now() - this.#token.takenAt > tokenUseMs) {
      this.#token = { text: this.#options.token(), takenAt: performance.now() }
    }
    const asked = this.#token
    try {
      return await asked.text
    } catch {
      if (this.#token === asked) this.#token = undefined
      return undefined
    }
  }
}

/** Returns whether the server sent this error: its errors have ErrorInfo (docs/spec/errors.md#error-info), those of a client library have none. */
function isOurs(reply: Reply): boolean {
  return reply.details['ErrorInfo'] !== undefined
}

function failedCall(error: unknown): CallResult {
  if (!(error instanceof Error)) throw error
  // fetch throws TypeError, or SyntaxError for an interrupted answer.
  if (!(error instanceof TypeError) && !(error instanceof SyntaxError)) throw error
  const cause = error.cause as { code?: string } | undefined
  return cause?.code === 'ECONNREFUSED' ? { kind: 'unsent' } : { kind: 'unanswered' }
}

/** Returns the reason in an error's ErrorInfo. */
export function reasonOf(reply: Reply): string {
  return String(reply.details['ErrorInfo']?.['reason'] ?? '')
}
