import type { Message } from '@bufbuild/protobuf'
import { DomainError } from '../base/errors.ts'
import type { MethodRow } from '../base/schema/method.ts'
import { methodName } from '../base/schema/method.ts'
import { methods } from '../base/schema/schema.ts'
import type { CallHeaders } from '../transport/call-headers.ts'
import type { Call, DecodedCall } from '../transport/call.ts'

/** Returns the method with this name, e.g. `iam.v2.GroupsService/CreateGroup`. */
export function methodNamed(name: string): MethodRow {
  const found = methods.find((row) => methodName(row) === `taproot.${name}`)
  if (found === undefined) throw new TypeError(`the schema has no method ${name}`)
  return found
}

/**
 * A call of a method of version 2 with the credentials, headers and limits of a call of version 1. It goes through the whole pipeline. Only the first inner
 * call of an outer call reads its request.
 */
export class InnerCall implements Call {
  readonly method: MethodRow
  readonly calledAs: MethodRow
  readonly headers: CallHeaders
  readonly transport: Call['transport']
  readonly validateOnly: boolean
  readonly remoteAddress: string
  readonly #outer: Call
  readonly #message: (arrived?: () => void) => Promise<Message> | Message

  constructor(outer: Call, method: MethodRow, message: (arrived?: () => void) => Promise<Message> | Message) {
    this.method = method
    this.calledAs = outer.method
    this.headers = outer.headers
    this.transport = outer.transport
    this.validateOnly = outer.validateOnly
    this.remoteAddress = outer.remoteAddress
    this.#outer = outer
    this.#message = message
  }

  get signal(): AbortSignal {
    return this.#outer.signal
  }

  throwIfEnded(): void {
    this.#outer.throwIfEnded()
  }

  async decode(arrived?: () => void): Promise<DecodedCall> {
    return { message: await this.#message(arrived) }
  }
}

/** Returns the error with other names of fields; the same error if it names no field. */
export function withFieldNames(error: unknown, rename: (path: string) => string): unknown {
  if (!(error instanceof DomainError) || error.details.badRequest === undefined) return error
  const { reason, httpStatus, concealed, details, cause } = error
  const violations = error.details.badRequest.map(({ field, description }) => ({ field: rename(field), description }))
  return DomainError.invalidFields(violations, { reason, details, cause, concealed, ...(httpStatus === undefined ? {} : { httpStatus }) })
}
