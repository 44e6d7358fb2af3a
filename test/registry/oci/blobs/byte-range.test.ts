import { describe, expect, test } from 'vitest'
import { parseContentRange, parseRange, uploadRange } from '../../../../src/registry/oci/blobs/byte-range.ts'
import { maxPageItems, nextLink, parsePageLimit } from '../../../../src/registry/oci/list-routes.ts'
import { RegistryError } from '../../../../src/registry/registry-error.ts'

describe('the range of a Range header is', () => {
  const whole = { kind: 'whole' }
  const none = { kind: 'unsatisfiable' }
  const part = (first: number, last: number): object => ({ kind: 'part', range: { first, last } })
  const rows: [string, string | undefined, number, object][] = [
    ['all where there is no header', undefined, 10, whole],
    ['both ends count', 'bytes=2-4', 10, part(2, 4)],
    ['to the end', 'bytes=7-', 10, part(7, 9)],
    ['the last ones', 'bytes=-3', 10, part(7, 9)],
    ['more last ones than there are', 'bytes=-30', 10, part(0, 9)],
    ['past the end', 'bytes=8-100', 10, part(8, 9)],
    ['one byte', 'bytes=0-0', 10, part(0, 0)],
    ['nothing where it begins behind the end', 'bytes=10-12', 10, none],
    ['nothing where no last one is wanted', 'bytes=-0', 10, none],
    ['nothing of nothing', 'bytes=0-0', 0, none],
    ['all where several are asked for', 'bytes=0-1,4-5', 10, whole],
    ['all where the ends are swapped', 'bytes=5-2', 10, whole],
    ['all where the unit is another', 'items=0-1', 10, whole],
    ['all where it is no range', 'bytes=a-b', 10, whole],
    ['all where both ends are missing', 'bytes=-', 10, whole],
  ]
  test.each(rows)('%s', (_, header, size, expected) => {
    expect(parseRange(header, size)).toEqual(expected)
  })
})

describe('the range of a chunk', () => {
  const rows: [string, string, object | undefined][] = [
    ['as written in the distribution specification', '0-99', { first: 0, last: 99 }],
    ['as written in HTTP', 'bytes 100-199/*', { first: 100, last: 199 }],
    ['invalid with swapped ends', '5-2', undefined],
    ['invalid as a word', 'all', undefined],
    ['invalid as a size', '100', undefined],
  ]
  test.each(rows)('the range of a chunk is parsed: %s', (_, header, expected) => {
    expect(parseContentRange(header)).toEqual(expected)
  })

  test('the range of an upload ends with its last byte', () => {
    expect([uploadRange(0), uploadRange(1), uploadRange(100)]).toEqual(['0-0', '0-0', '0-99'])
  })
})

describe('the page parameters', () => {
  test('limit n to the size of a page', () => {
    const limit = (query: string): number => parsePageLimit(new URLSearchParams(query))
    expect([limit(''), limit('n=0'), limit('n=3'), limit('n=99999')]).toEqual([maxPageItems, 0, 3, maxPageItems])
    for (const bad of ['n=-1', 'n=', 'n=1.5', 'n=x']) expect(() => limit(bad), bad).toThrow(RegistryError)
  })

  test('the page parameters are repeated in the link to the next page', () => {
    expect(nextLink('/v2/a/tags/list', { n: '2', last: 'b+c', x: undefined })).toBe('</v2/a/tags/list?n=2&last=b%2Bc>; rel="next"')
  })
})
