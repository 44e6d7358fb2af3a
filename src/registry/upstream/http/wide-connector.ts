import type { OnReadOpts, Socket } from 'node:net'
import { buildConnector } from 'undici'
import { filledTo, isGivenAway, readMemory, release } from '../../release.ts'

/** Up to so many bytes are copied, and the memory takes the next read. */
const smallRead = 32 * 1024
/** So many reads, each within so many milliseconds of the one before, are made by a connection that flows. */
const flowingReads = 32
const flowingMs = 250

/** Reads in large pieces where bytes flow: with Node's own reads a blob takes nearly twice the processor time. `socketOf` is asked once bytes come. */
function wideReads(socketOf: () => Socket): OnReadOpts {
  let memory = readMemory('narrow')
  let reads = 0
  let lastMs = 0
  return {
    buffer: () => memory,
    callback(length) {
      const nowMs = performance.now()
      reads = nowMs - lastMs < flowingMs ? reads + 1 : 0
      lastMs = nowMs
      if (length <= smallRead) return socketOf().push(Buffer.from(memory.subarray(0, length)))
      const piece = filledTo(memory, length)
      memory = readMemory(reads < flowingReads ? 'narrow' : 'wide')
      return socketOf().push(piece)
    },
  }
}

/** Gives memory back when what was given away is written. */
function releasing(socket: Socket): Socket {
  const write = socket.write.bind(socket) as (chunk: Uint8Array | string, ...rest: unknown[]) => boolean // a cast: of its overloads one is enough
  socket.write = (chunk: Uint8Array | string, ...rest: unknown[]): boolean =>
    typeof chunk !== 'string' && rest.length === 0 && isGivenAway(chunk) ? write(chunk, () => release(chunk)) : write(chunk, ...rest)
  return socket
}

/** Connects as undici does by itself, and handles the bytes of blobs with less work: in the clear it reads them in large pieces. */
export function createWideConnector(options: buildConnector.BuildOptions): buildConnector.connector {
  const connectTls = buildConnector(options)
  return (target, callback) => {
    let socket: Socket | undefined
    const connected: buildConnector.Callback = (...[error, made]) => {
      if (error !== null) callback(error, null)
      else callback(null, (socket = releasing(made)))
    }
    if (target.protocol === 'https:') connectTls(target, connected)
    else buildConnector({ ...options, onread: wideReads(() => socket as Socket) })(target, connected) // a cast: bytes come after the connection
  }
}
