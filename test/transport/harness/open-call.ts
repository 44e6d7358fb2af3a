import { connect } from 'node:http2'
import type { IncomingHttpHeaders } from 'node:http2'
import { fromBinary } from '@bufbuild/protobuf'
import type { Message } from '@bufbuild/protobuf'
import { anyUnpack } from '@bufbuild/protobuf/wkt'
import { registry } from '../../../src/base/schema/schema.ts'
import { StatusSchema } from '../../../src/gen/google/rpc/status_pb.ts'

/** The end of a malformed call. */
export interface Ending {
  readonly code: number
  readonly details: readonly (Message | undefined)[]
}

export interface OpenCallOptions {
  readonly headers?: Readonly<Record<string, string>>
  /** Closes the client's side after the bytes; open by default. */
  readonly end?: boolean
}

/** A framed gRPC message, whose length may be wrong. */
export function framed(bytes: Uint8Array, announced = bytes.length, compressed = false): Buffer {
  const prefix = Buffer.alloc(5)
  prefix.writeUInt8(compressed ? 1 : 0, 0)
  prefix.writeUInt32BE(announced, 1)
  return Buffer.concat([prefix, bytes])
}

/** Opens a call on a new connection, sends exactly these bytes and waits for the end. */
export function openCall(url: string, path: string, bytes: Uint8Array, options: OpenCallOptions = {}): Promise<Ending> {
  const session = connect(url)
  const { promise, resolve, reject } = Promise.withResolvers<Ending>()
  session.on('error', reject)
  const stream = session.request(
    { ':method': 'POST', ':path': path, 'content-type': 'application/grpc', te: 'trailers', ...options.headers },
    { endStream: false },
  )
  const take = (headers: IncomingHttpHeaders): void => {
    const status = headers['grpc-status']
    if (status === undefined) return
    const encoded = headers['grpc-status-details-bin']
    const details = encoded === undefined ? [] : fromBinary(StatusSchema, Buffer.from(String(encoded), 'base64')).details
    resolve({ code: Number(status), details: details.map((any) => anyUnpack(any, registry)) })
  }
  stream.on('response', take)
  stream.on('trailers', take)
  stream.on('error', reject)
  stream.resume()
  if (options.end === true) stream.end(bytes)
  else stream.write(bytes)
  return promise.finally(() => session.destroy())
}
