import { on, once } from 'node:events'
import { Readable, type Transform } from 'node:stream'
import { createGunzip, createZstdDecompress } from 'node:zlib'
import { Parser, type ReadEntry } from 'tar'
import { ContentError, contentLimits } from '../package.ts'

const pieceBytes = 256 * 1024
/** The largest header of an entry in a tar, in bytes. The library keeps it in memory. */
const maxHeaderBytes = 256 * 1024
const magicBytes = 4

/** First bytes in hex -> the decompressor. Zstd may start with a frame to skip. */
const compressions: readonly { readonly start: RegExp; readonly create: () => Transform }[] = [
  { start: /^1f8b08/, create: () => createGunzip({ chunkSize: pieceBytes }) },
  { start: /^(28b52ffd|5.2a4d18)/, create: () => createZstdDecompress({ chunkSize: pieceBytes }) },
]

/** Counts the bytes and entries of all layers of an image. */
export class LayerBudget {
  #bytes = 0
  #files = 0

  /** Throws ContentError TOO_LARGE if the layers are larger than `contentLimits.layerBytes`. */
  takeBytes(count: number): void {
    this.#bytes += count
    if (this.#bytes > contentLimits.layerBytes) throw new ContentError('TOO_LARGE', `the layers have more than ${contentLimits.layerBytes} bytes`)
  }

  /** Throws ContentError TOO_LARGE if there are more than `contentLimits.files` entries. */
  takeFile(): void {
    this.#files += 1
    if (this.#files > contentLimits.files) throw new ContentError('TOO_LARGE', `the layers have more than ${contentLimits.files} files`)
  }
}

/** An error of the stream that the caller gave. It is no fault of the image. */
class SourceError extends Error {}

async function* ofSource(layer: AsyncIterable<Uint8Array>): AsyncGenerator<Buffer, void, undefined> {
  try {
    for await (const piece of layer) if (piece.length > 0) yield Buffer.from(piece.buffer, piece.byteOffset, piece.length)
  } catch (cause) {
    throw new SourceError('the layer cannot be read', { cause })
  }
}

function compressionOf(start: Buffer): (typeof compressions)[number] | undefined {
  const hex = start.toString('hex', 0, magicBytes)
  return compressions.find((known) => known.start.test(hex))
}

/** Yields the pieces again, with a first one of at least `magicBytes` if there are so many. */
async function* withStart(pieces: AsyncIterable<Buffer>): AsyncGenerator<Buffer, void, undefined> {
  let start: Buffer | undefined = Buffer.alloc(0)
  for await (const piece of pieces) {
    if (start === undefined) {
      yield piece
      continue
    }
    start = Buffer.concat([start, piece])
    if (start.length < magicBytes) continue
    yield start
    start = undefined
  }
  if (start !== undefined && start.length > 0) yield start
}

async function* again(first: Buffer, rest: AsyncIterator<Buffer>): AsyncGenerator<Buffer, void, undefined> {
  yield first
  for (let next = await rest.next(); next.done !== true; next = await rest.next()) yield next.value
}

async function* through(decompressor: Transform, pieces: AsyncIterable<Buffer>): AsyncGenerator<Buffer, void, undefined> {
  const source = Readable.from(pieces, { objectMode: false, highWaterMark: pieceBytes })
  source.on('error', (error) => decompressor.destroy(error))
  try {
    // A stream without an encoding has bytes.
    yield* source.pipe(decompressor) as AsyncIterable<Buffer>
  } finally {
    source.destroy()
    decompressor.destroy()
  }
}

/** Yields the bytes of the tar. The first bytes of the layer decide how it is compressed, as they do for container runtimes. */
async function* tarOf(layer: AsyncIterable<Uint8Array>, budget: LayerBudget): AsyncGenerator<Buffer, void, undefined> {
  const pieces = withStart(ofSource(layer))
  const { value: first } = await pieces.next()
  if (first === undefined) return
  const compression = compressionOf(first)
  const whole = again(first, pieces)
  let isFirst = true
  try {
    for await (const piece of compression === undefined ? whole : withStart(through(compression.create(), whole))) {
      // The parser of tars would decompress it again, without a limit.
      if (isFirst && compressionOf(piece) !== undefined) throw new ContentError('UNREADABLE', 'the layer is compressed more than once')
      isFirst = false
      budget.takeBytes(piece.length)
      yield piece
    }
  } finally {
    await pieces.return()
  }
}

/** The field of a header of PAX that makes the next entry sparse. */
const paxSparse = /(^|\n)\d+ GNU\.sparse\./
/** The name of the field that has the path of the file: the path of the entry may be another one. */
const paxSparseName = /(?:^|\n)\d+ GNU\.sparse\.name=([^\n]*)/

/** Says which files a reader wants. */
export type WantsPath = (path: string, mode: number) => boolean

/**
 * Ends the layer at a sparse file that is wanted, and at a header that is too large. The parser skips those of the old form of GNU, and gives those of PAX without their holes: both would be read wrongly.
 * The parser emits these events in the order of the tar.
 */
function refuseSparse(parser: Parser, wants: WantsPath, fail: (error: Error) => void): void {
  let header: string | undefined
  const look = (path: string, mode = 0): void => {
    if (wants(path, mode)) fail(new ContentError('UNSUPPORTED_FORM', `the file ${path.slice(0, 512)} is sparse`))
  }
  parser.on('meta', (text: string) => {
    if (paxSparse.test(text)) header = text
  })
  parser.on('ignoredEntry', (entry: ReadEntry) => {
    // The parser skips headers that are too large: the next entry would have another path or form.
    if (entry.meta) fail(new ContentError('TOO_LARGE', `an entry has a header of more than ${maxHeaderBytes} bytes`))
    else if (entry.type === 'SparseFile') look(entry.path, entry.mode)
  })
  parser.on('entry', (entry: ReadEntry) => {
    if (header !== undefined) look(paxSparseName.exec(header)?.[1] ?? entry.path, entry.mode)
    header = undefined
  })
}

/** Returns the error to report for one that ended the layer. */
function layerError(error: unknown): unknown {
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    if (cause instanceof SourceError) return cause.cause
    if (cause instanceof ContentError) return cause
  }
  return new ContentError('UNREADABLE', 'the layer is no tar, or a damaged one', { cause: error })
}

/** What ends the entries of a layer early: the signal, an error of the stream, or a damaged tar. */
interface Ending {
  current: ReadEntry | undefined
  error: Error | undefined
  fail(error: Error): void
}

function endingOf(parser: Parser): Ending {
  const ending: Ending = {
    current: undefined,
    error: undefined,
    fail: (error) => {
      ending.error ??= error
      // Errors of an entry that is not read any more.
      ending.current?.on('error', () => undefined)
      ending.current?.destroy(error)
      parser.emit('error', error)
    },
  }
  return ending
}

/**
 * Yields the entries of the tar of a layer, which may be compressed by gzip or zstd, and reads it to its end. Each entry is skipped when the next one is asked for.
 * Rejects with ContentError UNREADABLE or TOO_LARGE, and with UNSUPPORTED_FORM at a sparse file that `wants` names. Rejects with the error of `layer` if that rejects, or with the reason of the signal.
 */
export async function* entriesOfLayer(
  layer: AsyncIterable<Uint8Array>,
  { budget, wants }: { readonly budget: LayerBudget; readonly wants: WantsPath },
  signal: AbortSignal,
): AsyncGenerator<ReadEntry, void, undefined> {
  signal.throwIfAborted()
  const parser = new Parser({ maxMetaEntrySize: maxHeaderBytes })
  const source = Readable.from(tarOf(layer, budget), { objectMode: false, highWaterMark: pieceBytes })
  const ending = endingOf(parser)
  refuseSparse(parser, wants, ending.fail)
  parser.on('error', () => undefined)
  parser.on('eof', () => source.unpipe(parser))
  parser.on('warn', (code: string, message: string | Error) => {
    if (code !== 'TAR_ENTRY_INFO') ending.fail(new Error(`${code}: ${message instanceof Error ? message.message : message}`))
  })
  source.on('error', ending.fail)
  const abort = (): void => ending.fail(new Error('aborted'))
  signal.addEventListener('abort', abort)
  const entries = on(parser, 'entry', { close: ['end', 'eof'] }) as AsyncIterableIterator<[ReadEntry]> // the event has one argument
  // A parser takes bytes like a stream, but does not have the type of one.
  source.pipe(parser)
  try {
    for await (const [entry] of entries) {
      // An entry may wait here since before the layer ended.
      if (ending.error !== undefined) throw ending.error
      ending.current = entry
      budget.takeFile()
      yield entry
      entry.resume()
    }
    // The source may check the digest of the layer at the end.
    if (!source.readableEnded) {
      source.resume()
      await once(source, 'end', { signal })
    }
  } catch (error) {
    signal.throwIfAborted()
    throw layerError(error)
  } finally {
    signal.removeEventListener('abort', abort)
    source.destroy()
  }
}
