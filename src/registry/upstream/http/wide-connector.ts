import type { OnReadOpts, Socket } from 'node:net'
import { buildConnector } from 'undici'
import { filledTo, isTransferred, readMemory, release } from '../../release.ts'

/** So much is written at once, in bytes. */
const gatheredBytes = 512 * 1024
/** Up to so many bytes are copied, and the memory takes the next read. */
const smallRead = 32 * 1024
/** So many reads, each within so many milliseconds of the one before, are made by a connection that flows. */
const flowingReads = 32
const flowingMs = 250

/** Memory for the reads of one connection, in large pieces where bytes flow: with Node's own reads a blob takes nearly twice the processor time. */
class ReadPieces {
  #memory = readMemory('narrow')
  #reads = 0
  #lastMs = 0

  /** Where the next bytes go. */
  get memory(): Buffer {
    return this.#memory
  }

  /** Returns the bytes that were just read: a copy of a small read, else the memory itself, which is replaced. The receiver may release them. */
  take(length: number): Buffer {
    const nowMs = performance.now()
    this.#reads = nowMs - this.#lastMs < flowingMs ? this.#reads + 1 : 0
    this.#lastMs = nowMs
    const memory = this.#memory
    if (length <= smallRead) return Buffer.from(memory.subarray(0, length))
    this.#memory = readMemory(this.#reads < flowingReads ? 'narrow' : 'wide')
    return filledTo(memory, length)
  }
}

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
