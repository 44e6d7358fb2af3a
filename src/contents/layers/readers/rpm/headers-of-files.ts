import { ContentError } from '../../../package.ts'

/** Integers of one order of bytes. They throw a RangeError outside of the file. */
interface Integers {
  u16(at: number): number
  u32(at: number): number
}

function integersOf(bytes: Buffer, isLittle: boolean): Integers {
  return {
    u16: (at) => (isLittle ? bytes.readUInt16LE(at) : bytes.readUInt16BE(at)),
    u32: (at) => (isLittle ? bytes.readUInt32LE(at) : bytes.readUInt32BE(at)),
  }
}

const ndb = { magic: 'RpmP', slotMagic: 'Slot', blobMagic: 'BlbS', headerBytes: 32, slotBytes: 16, pageBytes: 4096, blockBytes: 16, blobHeaderBytes: 16 }

function unsupported(form: string): ContentError {
  return new ContentError('UNSUPPORTED_DATABASE', `the file is no package database of rpm (${form})`)
}

function magicAt(bytes: Buffer, at: number): string {
  return bytes.toString('latin1', at, at + 4)
}

/** Yields the headers of packages in `Packages.db`: slots, which name blobs. Throws ContentError UNSUPPORTED_DATABASE at another form, or an Error if the file is damaged. */
export function* headersOfNdb(bytes: Buffer): Generator<Buffer, void, undefined> {
  if (magicAt(bytes, 0) !== ndb.magic || bytes.readUInt32LE(4) !== 0) throw unsupported('ndb')
  const end = Math.min(bytes.readUInt32LE(12) * ndb.pageBytes, bytes.length - ndb.slotBytes + 1)
  for (let slot = ndb.headerBytes; slot < end; slot += ndb.slotBytes) {
    if (magicAt(bytes, slot) !== ndb.slotMagic) throw new Error('a slot of the package database is damaged')
    if (bytes.readUInt32LE(slot + 4) === 0) continue
    const blob = bytes.readUInt32LE(slot + 8) * ndb.blockBytes
    const start = blob + ndb.blobHeaderBytes
    if (start > bytes.length || magicAt(bytes, blob) !== ndb.blobMagic) throw new Error('a package in the database is damaged')
    yield bytes.subarray(start, start + bytes.readUInt32LE(blob + 12))
  }
}

const berkeley = { hashMagic: 0x061561, magicAt: 12, pageSizeAt: 20, pageHeaderBytes: 26, hashPages: [2, 13], overflowPage: 7, onPage: 1, offPage: 3 }

/** Joins the bytes of a chain of pages. A chain never has more pages than the file. */
function overflowing(bytes: Buffer, { u16, u32 }: Integers, { pageBytes, first, length }: Readonly<Record<'pageBytes' | 'first' | 'length', number>>): Buffer {
  const pieces: Buffer[] = []
  let left = length
  for (let page = first; left > 0 && page !== 0;) {
    const at = page * pageBytes
    const start = at + berkeley.pageHeaderBytes
    if (bytes[at + 25] !== berkeley.overflowPage || pieces.length * pageBytes > bytes.length) throw new Error('a package in the database is damaged')
    const piece = bytes.subarray(start, start + Math.min(left, u16(at + 22), pageBytes))
    pieces.push(piece)
    left -= piece.length
    page = u32(at + 16)
  }
  if (left > 0) throw new Error('a package in the database is cut off')
  return Buffer.concat(pieces)
}

/** Yields the headers of packages in `Packages`: a hash table of Berkeley DB with numbers as keys. Throws like `headersOfNdb`. */
export function* headersOfBerkeleyDb(bytes: Buffer): Generator<Buffer, void, undefined> {
  const integers = [true, false].map((isLittle) => integersOf(bytes, isLittle)).find(({ u32 }) => u32(berkeley.magicAt) === berkeley.hashMagic)
  if (integers === undefined) throw unsupported('Berkeley DB')
  const { u16, u32 } = integers
  const pageBytes = u32(berkeley.pageSizeAt)
  if (pageBytes < 512 || pageBytes > 65_536) throw new Error('the package database has pages of a wrong size')
  for (let page = pageBytes; page + pageBytes <= bytes.length; page += pageBytes) {
    if (!berkeley.hashPages.includes(bytes.readUInt8(page + 25))) continue
    const entries = Math.min(u16(page + 20), (pageBytes - berkeley.pageHeaderBytes) / 2)
    // Keys and values take turns, from the end of the page to its start.
    for (let entry = 1; entry < entries; entry += 2) {
      const index = page + berkeley.pageHeaderBytes + entry * 2
      const item = page + u16(index)
      const kind = bytes.readUInt8(item)
      if (kind === berkeley.offPage) yield overflowing(bytes, integers, { pageBytes, first: u32(item + 4), length: u32(item + 8) })
      // The value of the first key is a counter of four bytes.
      else if (kind === berkeley.onPage && u16(index - 2) - u16(index) > 8) yield bytes.subarray(item + 1, page + u16(index - 2))
    }
  }
}
