import type { ServerInterceptingCallInterface } from '@grpc/grpc-js'
import { DomainError } from '../../base/errors.ts'
import { parseCallHeaders } from '../call-headers.ts'
import { platformDomain } from '../errors-details.ts'
import { AnsweredCall } from './answered-call.ts'
import { metadataText } from './grpc-call.ts'
import { grpcStatus } from './grpc-status.ts'

/** More of a path is not said back. */
const shownPathLength = 300

/** A call of a path that nothing is served at: code 12, in the form of every error, before its message is read. */
export class UnknownCall extends AnsweredCall {
  readonly #path: string
  readonly #newRequestId: () => string

  constructor(path: string, base: ServerInterceptingCallInterface, newRequestId: () => string) {
    super(base)
    this.#path = path
    this.#newRequestId = newRequestId
  }

  start(): void {
    const ignore = (): void => undefined
    this.base.start({
      onReceiveMetadata: (metadata) => {
        const { requestId } = parseCallHeaders((name) => metadataText(metadata, name), this.#newRequestId)
        const error = new DomainError(12, `no such method: ${this.#path.slice(0, shownPathLength)}`)
        this.base.sendStatus(grpcStatus(error, { requestId, domain: platformDomain }))
      },
      onReceiveMessage: ignore,
      onReceiveHalfClose: ignore,
      onCancel: ignore,
    })
  }
}
