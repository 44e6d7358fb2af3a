import { crc32, deflateRawSync } from 'node:zlib'

// The records of a zip file (APPNOTE.TXT of PKWARE, sections 4.3.7, 4.3.12, 4.3.14 to 4.3.16). Files are made piece by piece, in a thread: no package
// makes an entry and its directory record apart from the whole file.

/** A file in a zip, as it is written, and its record in the directory at the end. */
export interface ZipEntry {
  readonly bytes: Uint8Array
  readonly record: Uint8Array
}

/** Larger numbers would need records of another form. */
const maxOffset = 0xffff_fffe
const maxCount = 0xfffe
const versionNeeded = 45
const deflated = 8
/** Names are UTF-8. */
const flags = 0x0800
/** 1980-01-01: the same content makes the same bytes. */
const dosDate = 0x21

/** Thrown if the whole file becomes larger than 4 GiB. */
export class ZipTooLarge extends Error {
  override readonly name = 'ZipTooLarge'
}

/** The members that an entry and its record share, from `version needed` to the length of the name. */
function sharedHeader({
  data,
  name,
  checksum,
  length,
}: {
  readonly data: Uint8Array
  readonly name: Uint8Array
  readonly checksum: number
  readonly length: number
}): Buffer {
  const header = Buffer.alloc(24)
  header.writeUInt16LE(versionNeeded, 0)
  header.writeUInt16LE(flags, 2)
  header.writeUInt16LE(deflated, 4)
  header.writeUInt16LE(dosDate, 8)
  header.writeUInt32LE(checksum, 10)
  header.writeUInt32LE(data.length, 14)
  header.writeUInt32LE(length, 18)
  header.writeUInt16LE(name.length, 22)
  return header
}

/** Makes an entry that begins at `offset` of the file. Throws ZipTooLarge. */
export function zipEntry(name: string, content: string, offset: number): ZipEntry {
  if (offset > maxOffset) throw new ZipTooLarge('the zip would be larger than 4 GiB')
  const [nameBytes, bytes] = [Buffer.from(name), Buffer.from(content)]
  const data = deflateRawSync(bytes)
  const shared = sharedHeader({ data, name: nameBytes, checksum: crc32(bytes), length: bytes.length })
  const start = Buffer.alloc(14)
  start.writeUInt32LE(offset, 10)
  return {
    bytes: Buffer.concat([Buffer.from('PK\u0003\u0004', 'latin1'), shared, Buffer.alloc(2), nameBytes, data]),
    // The record has no extra field, no comment and no attributes.
    record: Buffer.concat([Buffer.from('PK\u0001\u0002', 'latin1'), Buffer.of(versionNeeded, 0), shared, Buffer.alloc(2), start, nameBytes]),
  }
}

/** Returns the end of a zip, after the records of its directory, which begin at `offset`. */
export function zipEnd({ count, length, offset }: { readonly count: number; readonly length: number; readonly offset: number }): Uint8Array {
  if (offset > maxOffset || length > maxOffset) throw new ZipTooLarge('the zip would be larger than 4 GiB')
  const large = Buffer.alloc(56 + 20)
  large.write('PK\u0006\u0006', 'latin1')
  large.writeBigUInt64LE(44n, 4)
  large.writeUInt16LE(versionNeeded, 12)
  large.writeUInt16LE(versionNeeded, 14)
  for (const at of [24, 32]) large.writeBigUInt64LE(BigInt(count), at)
  large.writeBigUInt64LE(BigInt(length), 40)
  large.writeBigUInt64LE(BigInt(offset), 48)
  large.write('PK\u0006\u0007', 56, 'latin1')
  large.writeBigUInt64LE(BigInt(offset + length), 64)
  large.writeUInt32LE(1, 72)
  const end = Buffer.alloc(22)
  end.write('PK\u0005\u0006', 'latin1')
  for (const at of [8, 10]) end.writeUInt16LE(Math.min(count, maxCount + 1), at)
  end.writeUInt32LE(length, 12)
  end.writeUInt32LE(offset, 16)
  // The first two records hold counts of 65,535 and more.
  return count > maxCount ? Buffer.concat([large, end]) : end
}
