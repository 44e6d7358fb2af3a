import { once, on } from 'node:events'
import { createReadStream } from 'node:fs'
import { open, opendir, stat } from 'node:fs/promises'
import { basename, extname, join, posix } from 'node:path'
import { Readable } from 'node:stream'
import { createGunzip, inflateRawSync } from 'node:zlib'
import { Parser, type ReadEntry } from 'tar'
import { getFileNameLowLevel, type Entry, type ZipFile } from 'yauzl'
import { errorMessage } from '../../base/error-text.ts'
import { openZip } from './block-reader.ts'

/** A file to import, or the reason why it cannot be read. `name` is its path; a file in an archive follows the archive's path and an exclamation mark. */
export type SourceFile = { readonly name: string } & ({ readonly pieces: AsyncIterable<Uint8Array> } | { readonly refused: string })

/** Receives the number of bytes that were read from disk. */
export type OnRead = (bytes: number) => void

/** Files in folders and archives that may hold documents. Others, such as a licence, are ignored. */
const documentExtensions = ['.csv', '.json', '.jsonl', '.ndjson', '.yaml', '.yml']
/** A Maven repository has many other files in XML. */
const mavenMetadata = 'maven-metadata.xml'
/** The same, in words. */
export const documentNames = [...documentExtensions, mavenMetadata].join(', ')
/** First bytes of formats that are not read, in hex. */
const unreadFormats = Object.entries({ xz: 'fd377a585a00', zstd: '28b52ffd', bzip2: '425a68', '7z': '377abcaf271c' })
/** How much an archive may grow. Real ones stay below a tenth of this. */
const maxGrowth = 200
const freeBytes = 64 * 1024 * 1024
/** The largest header of a file in a tar, in bytes. The library keeps it in memory. */
const maxHeaderBytes = 64 * 1024
const readBytes = 256 * 1024

const tooMuch = `the archive grows to more than ${maxGrowth} times its size`

/** Yields the pieces as they come, until there are too many for what was read. */
async function* bounded(pieces: AsyncIterable<Uint8Array>, read: () => number): AsyncGenerator<Uint8Array, void, undefined> {
  let written = 0
  for await (const piece of pieces) {
    written += piece.length
    if (written > read() * maxGrowth + freeBytes) throw new Error(tooMuch)
    yield piece
  }
}

async function* counted(pieces: AsyncIterable<Uint8Array>, onRead: OnRead): AsyncGenerator<Uint8Array, void, undefined> {
  for await (const piece of pieces) {
    onRead(piece.length)
    yield piece
  }
}

function readFile(path: string, onRead: OnRead): AsyncIterable<Uint8Array> {
  return counted(createReadStream(path, { highWaterMark: readBytes }), onRead)
}

/** Returns the first bytes of a file, for its format. */
async function firstBytes(path: string): Promise<Buffer> {
  const handle = await open(path)
  try {
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(512), 0, 512, 0)
    return buffer.subarray(0, bytesRead)
  } finally {
    await handle.close()
  }
}

function isDocument(name: string): boolean {
  return documentExtensions.includes(extname(name).toLowerCase()) || posix.basename(name) === mavenMetadata
}

const tarMagic = 257

function isTar(bytes: Buffer): boolean {
  return bytes.toString('latin1', tarMagic, tarMagic + 5) === 'ustar'
}

function isGzip(bytes: Buffer): boolean {
  return bytes[0] === 0x1f && bytes[1] === 0x8b
}

function isZip(bytes: Buffer): boolean {
  return bytes.toString('latin1', 0, 4) === 'PK\x03\x04'
}

/** Decompresses. Errors of the source and of the format end the iteration. */
async function* gunzipped(path: string, onRead: OnRead): AsyncGenerator<Uint8Array, void, undefined> {
  let read = 0
  const source = createReadStream(path, { highWaterMark: readBytes })
  source.on('data', (piece) => {
    read += piece.length
    onRead(piece.length)
  })
  const gunzip = createGunzip()
  source.on('error', (error) => gunzip.destroy(error))
  try {
    yield* bounded(source.pipe(gunzip), () => read)
  } finally {
    source.destroy()
    gunzip.destroy()
  }
}

/** Returns the first bytes, and all of them again. */
async function withFirst(pieces: AsyncGenerator<Uint8Array, void, undefined>): Promise<{ readonly first: Buffer; readonly pieces: AsyncIterable<Uint8Array> }> {
  const { value: first = new Uint8Array() } = await pieces.next()
  const again = async function* (): AsyncGenerator<Uint8Array, void, undefined> {
    try {
      yield first
      yield* pieces
    } finally {
      await pieces.return()
    }
  }
  return { first: Buffer.from(first), pieces: again() }
}

/** The folder that GNU tar puts sparse files into: their content begins with a map of what is left out. */
const sparsePath = /(?:^|\/)GNUSparseFile\.\d+\//
const sparseFile = 'sparse, which is not supported: make the tar without --sparse'

/** Yields the files of a tar. Nothing is written to disk, so no name can lead anywhere. Links and folders are ignored. */
async function* filesOfTar(path: string, pieces: AsyncIterable<Uint8Array>): AsyncGenerator<SourceFile, void, undefined> {
  const parser = new Parser({ maxMetaEntrySize: maxHeaderBytes })
  const source = Readable.from(pieces, { objectMode: false, highWaterMark: readBytes })
  let current: ReadEntry | undefined
  source.on('error', (error) => {
    current?.destroy(error)
    parser.emit('error', error)
  })
  const entries = on(parser, 'entry', { close: ['end', 'eof'] }) as AsyncIterableIterator<[ReadEntry]> // the event has one argument
  // The library reports what it leaves out as warnings, and skips sparse files.
  let problem: string | undefined
  parser.on('warn', (code: string, message: string) => (problem ??= `the tar is damaged (${code}: ${message})`))
  parser.on('ignoredEntry', ({ type, path: inner }: ReadEntry) => {
    if (type === 'SparseFile' && isDocument(inner)) problem ??= `${inner} is ${sparseFile}`
  })
  // A parser takes bytes like a stream, but does not have the type of one.
  source.pipe(parser)
  try {
    for await (const [entry] of entries) {
      current = entry
      const name = `${path}!${entry.path}`
      if (entry.type.endsWith('File') && isDocument(entry.path))
        yield sparsePath.test(entry.path) ? { name, refused: `the file is ${sparseFile}` } : { name, pieces: entry }
      // What was not read is skipped: the next one comes after it.
      entry.resume()
    }
    if (problem !== undefined) yield { name: path, refused: problem }
  } finally {
    source.destroy()
  }
}

/** The largest file in a zip that is decompressed at once: a stream for each file takes longer than its document. */
const smallFileBytes = 1024 * 1024
const deflated = 8

/** Yields the content of a small file. Throws if it is larger than the archive says, or damaged. */
async function* inflated(zip: ZipFile, entry: Entry): AsyncGenerator<Uint8Array, void, undefined> {
  const stream = await zip.openReadStreamPromise(entry, { decompress: false })
  const pieces: Uint8Array[] = []
  for await (const piece of stream) pieces.push(piece as Uint8Array) // a stream without encoding
  const bytes = inflateRawSync(Buffer.concat(pieces), { maxOutputLength: Math.max(1, entry.uncompressedSize) })
  if (bytes.length !== entry.uncompressedSize) throw new Error('the file is smaller than the archive says')
  yield bytes
}

async function filePieces(zip: ZipFile, entry: Entry): Promise<AsyncIterable<Uint8Array>> {
  if (entry.compressionMethod === deflated && Math.max(entry.uncompressedSize, entry.compressedSize) <= smallFileBytes) return inflated(zip, entry)
  const stream = await zip.openReadStreamPromise(entry)
  // A stream without encoding has bytes.
  return stream as AsyncIterable<Uint8Array>
}

async function* filesOfZip(path: string, onRead: OnRead): AsyncGenerator<SourceFile, void, undefined> {
  const zip = await openZip(path)
  let written = 0
  try {
    for await (const entry of zip.eachEntry()) {
      const inner = getFileNameLowLevel(entry.generalPurposeBitFlag, entry.fileNameRaw, entry.extraFields, false)
      if (!isDocument(inner)) continue
      const name = `${path}!${inner}`
      if (entry.uncompressedSize > entry.compressedSize * maxGrowth + freeBytes) yield { name, refused: tooMuch }
      else if (!entry.canDecodeFileData()) yield { name, refused: 'the file is encrypted, or compressed in an unknown way' }
      else {
        // Files of an archive may share their bytes.
        written += entry.uncompressedSize
        if (written > zip.fileSize * maxGrowth + freeBytes) throw new Error(tooMuch)
        // The library fails if a file is larger than the archive says.
        yield { name, pieces: await filePieces(zip, entry) }
      }
      onRead(entry.compressedSize)
    }
  } finally {
    const closed = once(zip, 'close')
    zip.close()
    await closed
  }
}

async function* filesOfFolder(path: string, onRead: OnRead): AsyncGenerator<SourceFile, void, undefined> {
  for await (const entry of await opendir(path)) {
    const inner = join(path, entry.name)
    if (entry.isDirectory()) yield* filesOfFolder(inner, onRead)
    // Symbolic links are ignored: they could lead out of the folder, or around in it.
    else if (entry.isFile() && isDocument(entry.name)) yield { name: inner, pieces: readFile(inner, onRead) }
  }
}

async function* filesOfArchive(path: string, onRead: OnRead): AsyncGenerator<SourceFile, void, undefined> {
  const start = await firstBytes(path)
  const [unread] = unreadFormats.find(([, bytes]) => start.toString('hex').startsWith(bytes)) ?? []
  if (unread !== undefined) yield { name: path, refused: `${unread} is not supported: decompress the file, or make a zip or tar.gz of it` }
  else if (isZip(start)) yield* filesOfZip(path, onRead)
  else if (isTar(start)) yield* filesOfTar(path, readFile(path, onRead))
  else if (isGzip(start)) {
    const { first, pieces } = await withFirst(gunzipped(path, onRead))
    if (isTar(first)) yield* filesOfTar(path, pieces)
    else yield { name: path, pieces }
  } else yield { name: path, pieces: readFile(path, onRead) }
}

/**
 * Yields the files of a path, one after the other: read each before the next. The path is a folder, a zip, a tar, a gzip of a tar or of one file, or one file.
 * Content decides, not names. An archive that cannot be read on is refused, and what was read of it counts. Rejects with the error of the file system if there is no such path.
 */
export async function* sourceFiles(path: string, onRead: OnRead): AsyncGenerator<SourceFile, void, undefined> {
  const found = await stat(path)
  if (found.isDirectory()) {
    yield* filesOfFolder(path, onRead)
    return
  }
  if (!found.isFile()) throw new Error(`${basename(path)} is no file and no folder`)
  try {
    yield* filesOfArchive(path, onRead)
  } catch (error) {
    yield { name: path, refused: `the archive cannot be read on: ${errorMessage(error, path)}` }
  }
}
