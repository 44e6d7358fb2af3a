// Reads one file in a zip archive. Plain JavaScript for Node 20, without packages.
import { inflateRawSync } from 'node:zlib'

const signatures = { end: 0x06054b50, central: 0x02014b50 }
const centralHeaderBytes = 46
const localHeaderBytes = 30
const endBytes = 22
const methods = { stored: 0, deflated: 8 }

/**
 * Returns the content of the entry with that name. Throws if it does not exist, or is neither stored nor deflated (APPNOTE 4.3.7, 4.3.12,
 * 4.3.16).
 */
export function readZipEntry(archive, name) {
  const end = archive.lastIndexOf(Buffer.from(Uint32Array.of(signatures.end).buffer))
  if (end < 0 || end + endBytes > archive.length) throw new Error('not a zip archive')
  let at = archive.readUInt32LE(end + 16)
  for (let left = archive.readUInt16LE(end + 10); left > 0; left -= 1) {
    if (archive.readUInt32LE(at) !== signatures.central) throw new Error('the zip archive is damaged')
    const nameBytes = archive.readUInt16LE(at + 28)
    const entryName = archive.toString('utf8', at + centralHeaderBytes, at + centralHeaderBytes + nameBytes)
    if (entryName === name) return contentOf(archive, at)
    at += centralHeaderBytes + nameBytes + archive.readUInt16LE(at + 30) + archive.readUInt16LE(at + 32)
  }
  throw new Error(`the zip archive has no ${name}`)
}

function contentOf(archive, central) {
  const method = archive.readUInt16LE(central + 10)
  const bytes = archive.readUInt32LE(central + 20)
  const local = archive.readUInt32LE(central + 42)
  // The local header repeats the name and extra field, with other lengths.
  const start = local + localHeaderBytes + archive.readUInt16LE(local + 26) + archive.readUInt16LE(local + 28)
  const content = archive.subarray(start, start + bytes)
  if (method === methods.stored) return content
  if (method === methods.deflated) return inflateRawSync(content)
  throw new Error(`the zip archive uses the unsupported compression method ${method}`)
}
