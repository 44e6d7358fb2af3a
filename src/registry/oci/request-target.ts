import type { IncomingMessage } from 'node:http'

/** What a request line asks for. */
export interface RequestTarget {
  /** As it stands there. */
  readonly path: string
  /** The query without the question mark; empty if absent. */
  readonly search: string
}

/** Takes a request's target apart. A proxy may send the absolute form (RFC 9112, 3.2.2): scheme and authority are left out. */
export function requestTarget({ url = '/' }: IncomingMessage): RequestTarget {
  const target = url.startsWith('/') ? url : url.replace(/^https?:\/\/[^/?]*/i, '')
  const mark = target.indexOf('?')
  return mark < 0 ? { path: target, search: '' } : { path: target.slice(0, mark), search: target.slice(mark + 1) }
}
