import type { Message } from '@bufbuild/protobuf'
import { DomainError } from '../base/errors.ts'
import type { MethodRow } from '../base/schema/method.ts'
import { withFieldNames as renamed } from '../base/schema/field-names.ts'
import { methodName } from '../base/schema/method.ts'
import { methods } from '../base/schema/schema.ts'
import type { CallHeaders } from '../transport/calls/call-headers.ts'
import type { LimitState } from '../transport/rate-limit.ts'
import type { Context } from '../engine/services.ts'
import type { Call, DecodedCall } from '../transport/calls/call.ts'

/** Returns the method with this name, e.g. `iam.v2.GroupsService/CreateGroup`. */
export function methodNamed(name: string): MethodRow {
  const found = methods.find((row) => methodName(row) === `taproot.${name}`)
  if (found === undefined) throw new TypeError(`the schema has no method ${name}`)
  return found
}

function withoutConditions({ ifMatch: _match, ifNoneMatch: _noneMatch, idempotencyKey: _key, ...others }: CallHeaders): CallHeaders {
  return others
}

/** Reads and maps the request of an outer call, like Call.decode. */
export type ReadRequest = Call['decode']

/**
 * A call of a method of version 2 that answers a call of version 1, with its credentials, headers and limits. It goes through the whole pipeline. The first
 * inner call decodes the client's request and checks its preconditions. Later inner calls get a message, and have no preconditions. The rate limit counts only
 * the first, so that it never stops a call between two writes.
 */
export class InnerCall implements Call {
  readonly method: MethodRow
  readonly calledAs: MethodRow
  readonly isCounted: boolean
  readonly headers: CallHeaders
  readonly transport: Call['transport']
  readonly validateOnly: boolean
  readonly remoteAddress: string
  readonly #outer: Call
  readonly #request: Message | ReadRequest
  #also: Context['also']

  constructor(outer: Call, method: MethodRow, request: Message | ReadRequest) {
    this.method = method
    this.calledAs = outer.method
    this.isCounted = typeof request !== 'function'
    this.headers = typeof request === 'function' ? outer.headers : withoutConditions(outer.headers)
    this.transport = outer.transport
    this.validateOnly = outer.validateOnly
    this.remoteAddress = outer.remoteAddress
    this.#outer = outer
    this.#request = request
  }

  /** Sets what the transaction of the call also writes, and returns the call. */
  storing(also: Context['also']): this {
    this.#also = also
    return this
  }

  get also(): Context['also'] {
    return this.#also
  }

  get signal(): AbortSignal {
    return this.#outer.signal
  }

  limited(limit: LimitState): void {
    this.#outer.limited?.(limit)
  }

  throwIfEnded(): void {
    this.#outer.throwIfEnded()
  }

  decode(arrived?: () => void): Promise<DecodedCall> {
    const request = this.#request
    return typeof request === 'function' ? request(arrived) : Promise.resolve({ message: request })
  }
}

/** Returns the last part of a path: `static.issuer` -> `issuer`. */
function nameIn(path: string): string {
  return path.slice(path.lastIndexOf('.') + 1)
}

/** Returns the error with other names of fields, in its violations and in its texts. Other errors stay the same. */
export function withFieldNames(error: unknown, rename: (path: string) => string): unknown {
  if (!(error instanceof DomainError)) return error
  return renamed(error, (path, describedField) => {
    if (describedField === undefined) return rename(path)
    // A description names fields of the same message.
    const sibling = nameIn(rename(`${describedField.slice(0, -nameIn(describedField).length)}${path}`))
    return sibling === nameIn(path) ? rename(path) : sibling
  })
}
