import type { OnReadOpts, Socket } from 'node:net'
import { buildConnector } from 'undici'
import { filledTo, isTransferred, readMemory, release } from '../../release.ts'

/** Maximum number of bytes to write at once. */
const gatheredBytes = 512 * 1024
/** A read of up to this many bytes is copied, and its memory is reused for the next read. */
const smallRead = 32 * 1024
/**
 * After this many reads, each soon after the previous one, a connection counts as busy and reads in large pieces. `ms` is the maximum time
 * between two of them.
 */
const flowingReads = 32
const flowingMs = 250

/**
 * Memory for the reads of one connection, in large pieces while it is busy. With Node's own reads, a blob takes nearly twice the processor
 * time.
 */
class ReadPieces {
  #memory = readMemory('narrow')
  #reads = 0
  #lastMs = 0

  /** Memory for the next bytes. */
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

/** Read options for a socket. `socketOf` is called when bytes arrive. */
function wideReads(socketOf: () => Socket): OnReadOpts {
  const pieces = new ReadPieces()
  return { buffer: () => pieces.memory, callback: (length) => socketOf().push(pieces.take(length)) }
}

/** Makes a socket write all chunks of one event loop turn in one call. Releases the memory of transferred chunks once they are written. */
function gathering(socket: Socket): Socket {
  const write = socket.write.bind(socket) as (chunk: Uint8Array | string, ...rest: unknown[]) => boolean // a cast: this overload is enough
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

/** Connects over TLS with the current CA certificates. Does not resume sessions that started with other certificates. */
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
      const wide = { ...options, highWaterMark: gatheredBytes, onread: wideReads(() => socket as Socket) } // a cast: the socket exists before bytes arrive
      buildConnector(wide)(target, connected)
    }
  }
}
