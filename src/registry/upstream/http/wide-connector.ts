import type { OnReadOpts, Socket } from 'node:net'
import { buildConnector } from 'undici'
import { isGivenAway, release } from '../../release.ts'
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
    if (typeof chunk === 'string' || rest.length > 0 || !isGivenAway(chunk)) return write(chunk, ...rest)
    if (!isGathering) {
      isGathering = true
      socket.cork()
      setImmediate(flush)
    }
    return write(chunk, () => release(chunk))
  }
  return socket
}

/** Connects as undici does by itself, and handles the bytes of blobs with less work: in the clear it reads and writes them in large pieces. */
export function createWideConnector(options: buildConnector.BuildOptions): buildConnector.connector {
  const connectTls = buildConnector(options)
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
