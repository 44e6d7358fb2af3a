/** A call over gRPC that is being made: mutations change it in place. */
export interface GrpcDraft {
  path: string
  headers: Record<string, string | string[]>
  /** The request's bytes. */
  message: Buffer
  /** What is sent as the body, where that is not one frame with the message. */
  body: readonly Buffer[] | undefined
  /** All bytes of a connection, in place of a call; no client reads how it ended. */
  connection: { readonly bytes: Buffer; readonly isOpen: boolean } | undefined
  /** Whether the client's side is closed after the body, or the call is cancelled. */
  ending: 'end' | 'cancel'
}

/** A message of gRPC: flag, length, bytes. */
export function frame(message: Buffer, options: { readonly flag?: number; readonly length?: number } = {}): Buffer {
  const head = Buffer.alloc(5)
  head.writeUInt8(options.flag ?? 0, 0)
  head.writeUInt32BE(options.length ?? message.length, 1)
  return Buffer.concat([head, message])
}
