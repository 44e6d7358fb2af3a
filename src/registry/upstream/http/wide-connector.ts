import type { OnReadOpts, Socket } from 'node:net'
import { buildConnector } from 'undici'
import { isTransferred, release } from '../../release.ts'
import { ReadPieces } from './read-pieces.ts'

/** So much is written at once, in bytes. */
const gatheredBytes = 512 * 1024

/** `socketOf` is asked once bytes come. */
function wideReads(socketOf: () => Socket): OnReadOpts {
  const pieces = new ReadPieces()
  return { buffer: () => pieces.memory, callback: (length) => socketOf().push(pieces.take(length)) }
}

/** Writes what comes in one turn of the event loop in one call, and gives memory back when what was given away is written. */
function gathering(socket: Socket): Socket {
  const write = socket.write.bind(socket) as (chunk: Uint8Array | string, ...rest: unknown[]) => boolean // a cast: of its overloads one is enough
  let isGathering = false
  const flush = (): void => {
    isGathering = false
    socket.uncork()
  }
  socket.write = (chunk: Uint8Array | string, ...rest: unknown[]): boolean => {
    if (typeof chunk === 'string' || rest.length > 0 || !isTransferred(chunk)) return write(chunk, ...rest)
    if (!isGathering) {
      isGathering = true
      socket.cork()
      setImmediate(flush)
    }
    return write(chunk, () => release(chunk))
  }
  return socket
}

/** Connects over TLS with the authorities of the moment: sessions that began with others are not resumed. */
function tlsConnector(options: buildConnector.BuildOptions, authorities: (() => string[]) | undefined): buildConnector.connector {
  if (authorities === undefined) return buildConnector(options)
  let made: { readonly text: string; readonly connect: buildConnector.connector } | undefined
  return (target, callback) => {
    const ca = authorities()
    const text = ca.join('\n')
    if (made?.text !== text) made = { text, connect: buildConnector({ ...options, ca }) }
    made.connect(target, callback)
  }
}

/**
 * Creates a connector that connects like undici's own, with less work for the bytes of blobs. Unencrypted connections read and write them in large pieces.
 * `authorities` are read at each connection; if absent, the system's are used.
 */
export function createWideConnector(options: buildConnector.BuildOptions, authorities?: () => string[]): buildConnector.connector {
  const connectTls = tlsConnector(options, authorities)
  return (target, callback) => {
    let socket: Socket | undefined
    const connected: buildConnector.Callback = (...[error, made]) => {
      if (error !== null) callback(error, null)
      else callback(null, (socket = gathering(made)))
    }
    if (target.protocol === 'https:') connectTls(target, connected)
    else {
      const wide = { ...options, highWaterMark: gatheredBytes, onread: wideReads(() => socket as Socket) } // a cast: bytes come after the connection
      buildConnector(wide)(target, connected)
    }
  }
}
