import type { ByteRange } from '../../upstream/upstream.ts'

/** What a `Range` header selects of content with a known size. */
export type RangeRequest = { readonly kind: 'whole' } | { readonly kind: 'part'; readonly range: ByteRange } | { readonly kind: 'unsatisfiable' }

const whole: RangeRequest = { kind: 'whole' }

/**
 * Parses `bytes=<first>-<last>`, `bytes=<first>-` and `bytes=-<count>` (RFC 9110, 14.2). Treats anything else, including several ranges,
 * as a request for the whole content.
 */
export function parseRange(header: string | undefined, size: number): RangeRequest {
  const match = header === undefined ? null : /^bytes=[ \t]*(\d{0,15})-(\d{0,15})[ \t]*$/i.exec(header)
  if (match === null) return whole
  const [, from = '', to = ''] = match
  if (from === '' && to === '') return whole
  if (from === '') {
    const count = Math.min(Number(to), size)
    return count === 0 ? { kind: 'unsatisfiable' } : { kind: 'part', range: { first: size - count, last: size - 1 } }
  }
  const first = Number(from)
  if (to !== '' && Number(to) < first) return whole
  if (first >= size) return { kind: 'unsatisfiable' }
  return { kind: 'part', range: { first, last: to === '' ? size - 1 : Math.min(Number(to), size - 1) } }
}

/** Parses the range of a chunk: `<first>-<last>`, as the distribution specification spells `Content-Range`. Returns undefined if it is invalid. */
export function parseContentRange(header: string): ByteRange | undefined {
  const match = /^(?:bytes[ =])?(\d{1,15})-(\d{1,15})(?:\/(?:\d+|\*))?$/.exec(header.trim())
  if (match === null) return undefined
  const range = { first: Number(match[1]), last: Number(match[2]) }
  return range.last < range.first ? undefined : range
}

/** Returns the `Range` header of an upload that holds `offset` bytes. The format cannot express an empty upload: it is `0-0` too. */
export function uploadRange(offset: number): string {
  return `0-${Math.max(0, offset - 1)}`
}
