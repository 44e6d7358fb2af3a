import type { IncomingMessage } from 'node:http'

/** The target of a request line. */
export interface RequestTarget {
  /** The path, not decoded. */
  readonly path: string
  /** The query without the question mark; empty if absent. */
  readonly search: string
}

/**
 * Splits a request's target into path and query. A proxy may send the absolute form (RFC 9112, 3.2.2): then scheme and authority are
 * removed.
 */
export function requestTarget({ url = '/' }: IncomingMessage): RequestTarget {
  const target = url.startsWith('/') ? url : url.replace(/^https?:\/\/[^/?]*/i, '')
  const mark = target.indexOf('?')
  return mark < 0 ? { path: target, search: '' } : { path: target.slice(0, mark), search: target.slice(mark + 1) }
}
