import { crc32, deflateRawSync } from 'node:zlib'

/** Returns an executable of Go with build information, as far as it is read. */
export function goBuildInfo(version: string, modules: string): Buffer {
  const text = (bytes: Buffer): Buffer => {
    const length: number[] = []
    for (let left = bytes.length; ; left = Math.floor(left / 128)) {
      length.push(left >= 128 ? (left % 128) | 128 : left)
      if (left < 128) break
    }
    return Buffer.concat([Buffer.from(length), bytes])
  }
  const header = Buffer.alloc(32)
  header.write('\xff Go buildinf:', 'latin1')
  header[14] = 8
  header[15] = 2
  const sentinel = Buffer.alloc(16, 0x77)
  const start = Buffer.alloc(64 * 1024)
  start.write('\x7fELF', 'latin1')
  return Buffer.concat([start, header, text(Buffer.from(version)), text(Buffer.concat([sentinel, Buffer.from(modules), sentinel])), Buffer.alloc(1000)])
}

/** Fields of a package of rpm. */
export interface RpmFields {
  readonly name: string
  readonly version: string
  readonly release: string
  readonly arch: string
  readonly source: string
  readonly epoch?: number
}

/** Returns the header of a package of rpm: an index, and a store of values. */
export function rpmHeader({ name, version, release, arch, source, epoch }: RpmFields): Buffer {
  const texts = [
    [1000, name],
    [1001, version],
    [1002, release],
    [1022, arch],
    [1044, source],
  ] as const
  const index: number[][] = epoch === undefined ? [] : [[1003, 4, 0, 1]]
  const store: Buffer[] = [Buffer.from([0, 0, 0, epoch ?? 0])]
  for (const [tag, value] of texts) {
    index.push([tag, 6, Buffer.concat(store).length, 1])
    store.push(Buffer.from(`${value}\0`))
  }
  const words = [index.length, Buffer.concat(store).length, ...index.flat()]
  const bytes = Buffer.alloc(words.length * 4)
  words.forEach((word, at) => bytes.writeUInt32BE(word, at * 4))
  return Buffer.concat([bytes, ...store])
}

/** Returns a `Packages.db` with the headers. */
export function ndbOf(headers: readonly Buffer[]): Buffer {
  const page = Buffer.alloc(4096)
  page.write('RpmP', 'latin1')
  page.writeUInt32LE(1, 12)
  for (let slot = 32; slot < page.length; slot += 16) page.write('Slot', slot, 'latin1')
  const blobs: Buffer[] = []
  headers.forEach((header, at) => {
    const before = page.length + Buffer.concat(blobs).length
    page.writeUInt32LE(at + 1, 32 + at * 16 + 4)
    page.writeUInt32LE(before / 16, 32 + at * 16 + 8)
    const start = Buffer.alloc(16)
    start.write('BlbS', 'latin1')
    start.writeUInt32LE(at + 1, 4)
    start.writeUInt32LE(header.length, 12)
    blobs.push(start, header, Buffer.alloc((16 - (header.length % 16)) % 16))
  })
  return Buffer.concat([page, ...blobs])
}

/** Returns a `Packages` of Berkeley DB with one header: a page of metadata, one of a hash table, and those of the header. */
export function berkeleyOf(header: Buffer, isLittle: boolean): Buffer {
  const pageBytes = 512
  const room = pageBytes - 26
  const u16 = (page: Buffer, value: number, at: number): number => (isLittle ? page.writeUInt16LE(value, at) : page.writeUInt16BE(value, at))
  const u32 = (page: Buffer, value: number, at: number): number => (isLittle ? page.writeUInt32LE(value, at) : page.writeUInt32BE(value, at))
  const metadata = Buffer.alloc(pageBytes)
  u32(metadata, 0x061561, 12)
  u32(metadata, pageBytes, 20)
  const table = Buffer.alloc(pageBytes)
  table[25] = 13
  u16(table, 4, 20)
  const places = [507, 502, 497, 485]
  places.forEach((place, entry) => u16(table, place, 26 + entry * 2))
  for (const place of places.slice(0, 3)) table[place] = 1
  table[485] = 3
  u32(table, 2, 489)
  u32(table, header.length, 493)
  const count = Math.ceil(header.length / room)
  const pages = Array.from({ length: count }, (_, at) => {
    const page = Buffer.alloc(pageBytes)
    const piece = header.subarray(at * room, (at + 1) * room)
    u32(page, at + 1 < count ? at + 3 : 0, 16)
    u16(page, piece.length, 22)
    page[25] = 7
    piece.copy(page, 26)
    return page
  })
  return Buffer.concat([metadata, table, ...pages])
}

/** Returns a zip with the files: name -> content. */
export function zipOf(files: Readonly<Record<string, string | Uint8Array>>): Buffer {
  const locals: Buffer[] = []
  const directory: Buffer[] = []
  for (const [name, content] of Object.entries(files)) {
    const data = Buffer.from(content)
    const packed = deflateRawSync(data)
    const common = Buffer.alloc(26)
    common.writeUInt16LE(20, 0)
    common.writeUInt16LE(8, 4)
    common.writeUInt32LE(crc32(data), 10)
    common.writeUInt32LE(packed.length, 14)
    common.writeUInt32LE(data.length, 18)
    common.writeUInt16LE(Buffer.byteLength(name), 22)
    const offset = Buffer.alloc(14)
    offset.writeUInt32LE(Buffer.concat(locals).length, 10)
    locals.push(Buffer.from('PK\x03\x04', 'latin1'), common, Buffer.from(name), packed)
    directory.push(Buffer.from('PK\x01\x02\x14\x00', 'latin1'), common, offset, Buffer.from(name))
  }
  const start = Buffer.concat(locals).length
  const entries = Buffer.concat(directory)
  const end = Buffer.alloc(22)
  end.write('PK\x05\x06', 'latin1')
  end.writeUInt16LE(Object.keys(files).length, 8)
  end.writeUInt16LE(Object.keys(files).length, 10)
  end.writeUInt32LE(entries.length, 12)
  end.writeUInt32LE(start, 16)
  return Buffer.concat([...locals, entries, end])
}
