import { describe, expect, test } from 'vitest'
import yauzl from 'yauzl'
import { zipEnd, zipEntry, ZipTooLarge } from '../../src/catalogue/exports/zip-records.ts'

/** A zip with a number of small files. From the third on they are the same one, since compressing takes long. */
function zipWith(count: number): Buffer {
  const [bytes, records]: [Uint8Array[], Uint8Array[]] = [[], []]
  let offset = 0
  for (let at = 0; at < Math.min(count, 3); at++) {
    const entry = zipEntry(`${String(at)}.json`, `{"id":"${String(at)}"}`, offset)
    bytes.push(entry.bytes)
    records.push(entry.record)
    offset += entry.bytes.length
  }
  while (records.length < count) records.push(...records.slice(2, 3))
  const length = records.reduce((sum, record) => sum + record.length, 0)
  return Buffer.concat([...bytes, ...records, zipEnd({ count, length, offset })])
}

describe('zip files', () => {
  test.each([0, 1, 0xfffe, 0xffff, 70_000])('%d documents are read by another library', async (count) => {
    const bytes = zipWith(count)
    const zip = await yauzl.fromBufferPromise(bytes)
    expect(zip.entryCount).toBe(count)
    let found = 0
    for await (const entry of zip.eachEntry()) if (entry.fileName === `${String(Math.min(found, 2))}.json`) found += 1
    expect(found).toBe(count)
  })

  test('a zip of more than 4 GiB is refused', () => {
    expect(() => zipEntry('a', 'b', 0xffff_ffff)).toThrow(ZipTooLarge)
    expect(() => zipEnd({ count: 1, length: 10, offset: 0xffff_ffff })).toThrow(ZipTooLarge)
  })
})
