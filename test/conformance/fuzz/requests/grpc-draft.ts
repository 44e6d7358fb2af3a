/** A gRPC call under construction. Mutations change it in place. */
export interface GrpcDraft {
  path: string
  headers: Record<string, string | string[]>
  /** The request's bytes. */
  message: Buffer
  /** The body, if it is not one frame with the message. */
  body: readonly Buffer[] | undefined
  /** All bytes of a connection, sent in place of a call. The client does not read how it ended. */
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
