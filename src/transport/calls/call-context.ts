import type { Message } from '@bufbuild/protobuf'
import type { MethodRow } from '../../base/schema/method.ts'
import { authorizeCall } from '../../engine/authorize.ts'
import { apiOwnership, callerOfToken, forcedOwnership, type Caller, type Context, type Ownership, type Services } from '../../engine/services.ts'
import type { Call, DecodedCall } from './call.ts'
import { verify, type CredentialOptions } from './credentials.ts'
import type { ResolvedRequest } from './paths.ts'

/** What the steps before "authorize" found. */
export interface FoundCall {
  readonly caller: Caller | undefined
  readonly decoded: DecodedCall
  /** Set if the request has paths in place of uids. `decoded` then contains the uids. */
  readonly resolved?: ResolvedRequest | undefined
}

/** What a context checks again. */
interface CallContextOptions extends CredentialOptions {
  readonly services: Services
}

/** What a copy of a context has instead. */
type ContextChanges = Partial<Pick<Context, 'method' | 'authorize'>>

/** A call as handlers see it. It is a class because of its getters: the signal is not created unless it is read. A spread would lose them. */
export class CallContext implements Context {
  readonly method: MethodRow
  readonly caller: Caller | undefined
  readonly #options: CallContextOptions
  readonly #call: Call
  readonly #found: FoundCall & ContextChanges

  constructor(options: CallContextOptions, call: Call, found: FoundCall & ContextChanges) {
    this.method = found.method ?? found.decoded.instead?.get ?? call.method
    this.caller = found.caller
    this.#options = options
    this.#call = call
    this.#found = found
  }

  get requestId(): string {
    return this.#call.headers.requestId
  }

  get traceparent(): string | undefined {
    return this.#call.headers.traceparent
  }

  get signal(): AbortSignal {
    return this.#call.signal
  }

  get validateOnly(): boolean {
    return this.#call.validateOnly
  }

  get ifMatch(): string | undefined {
    return this.#call.headers.ifMatch
  }

  get ifNoneMatch(): string | undefined {
    return this.#call.headers.ifNoneMatch
  }

  get idempotencyKey(): string | undefined {
    return this.#call.headers.idempotencyKey
  }

  get ownership(): Ownership {
    const { forceOwnership } = this.#call.headers
    return forceOwnership === 'true' ? forcedOwnership : apiOwnership
  }

  get also(): Context['also'] {
    return this.#found.resolved?.guard ?? this.#call.also
  }

  get asked(): Message {
    return this.#found.decoded.original ?? this.#found.decoded.message
  }

  get present(): readonly string[] | undefined {
    return this.#found.decoded.present
  }

  with(changes: ContextChanges): Context {
    return new CallContext(this.#options, this.#call, { ...this.#found, authorize: () => this.authorize(), ...changes })
  }

  async reauthenticate(): Promise<void> {
    if (this.caller !== undefined) callerOfToken(this.#options.services, await verify(this.#options, this.#call))
  }

  authorize(): void {
    const { caller, method } = this
    if (this.#found.authorize !== undefined) this.#found.authorize()
    else if (caller !== undefined) authorizeCall(this.#options.services.cache.tables, caller.permissions(), { method, message: this.#found.decoded.message })
  }
}
