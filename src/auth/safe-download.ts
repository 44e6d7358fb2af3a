import { createWriteStream } from 'node:fs'
import { pipeline } from 'node:stream/promises'
import { request } from 'undici'
import type { Dispatcher } from 'undici'
import { FetchError, parseUrl, retryAfterOf, translate, type FetchPolicy } from './safe-agent.ts'

/** Where a download goes, and its limits. */
export interface DownloadTarget {
  readonly path: string
  readonly maxBytes: number
  readonly maxRedirects: number
  /** Receives the number of bytes of this file so far. */
  readonly onBytes?: (bytes: number) => void
}

/** A download that succeeded, with what the server said of the version. */
export interface DownloadResult {
  readonly isModified: boolean
  readonly etag: string | undefined
  readonly lastModified: string | undefined
}

interface Download extends DownloadTarget {
  readonly headers: Readonly<Record<string, string>>
  readonly dispatcher: Dispatcher
}

const redirects: ReadonlySet<number> = new Set([301, 302, 303, 307, 308])

/** True for an error of the file system, for example a full disk. */
function isFileError(error: unknown): boolean {
  return error instanceof Error && 'syscall' in error && (error.syscall === 'write' || error.syscall === 'open')
}

function textOf(header: string | string[] | undefined): string | undefined {
  return typeof header === 'string' ? header : undefined
}

/** Writes the body of one answer into the file. Resolves with the address of a redirect instead. Rejects with FetchError or an error of the client. */
async function downloadFile(
  url: URL,
  { headers, dispatcher, path, maxBytes, onBytes }: Download,
  signal: AbortSignal,
): Promise<DownloadResult | { readonly location: string }> {
  const response = await request(url, { dispatcher, signal, headers })
  const { statusCode: status, body } = response
  const location = textOf(response.headers['location'])
  const result = { etag: textOf(response.headers['etag']), lastModified: textOf(response.headers['last-modified']) }
  if (status !== 200) {
    // Discard the unread rest of the body. An error in it does not matter.
    body.on('error', () => undefined).destroy()
    if (status === 304) return { isModified: false, ...result }
    if (redirects.has(status) && location !== undefined) return { location }
    const challenge = status === 401 ? textOf(response.headers['www-authenticate']) : undefined
    throw new FetchError('status', { status, retryAfterMs: retryAfterOf(response.headers['retry-after']), challenge })
  }
  let bytes = 0
  const bounded = async function* (pieces: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array, void, undefined> {
    for await (const piece of pieces) {
      bytes += piece.length
      if (bytes > maxBytes) throw new FetchError('too_large', { status })
      onBytes?.(bytes)
      yield piece
    }
  }
  await pipeline(body, bounded, createWriteStream(path, { mode: 0o600, flags: 'w' }), { signal })
  return { isModified: true, ...result }
}

/** What to download. */
interface DownloadRequest extends FetchPolicy {
  readonly url: string
  readonly headers?: Readonly<Record<string, string>>
}

/** Downloads a body into a new file, and follows redirects. Only the first server gets its `authorization`. Throws like SafeFetch. */
export async function download(
  request: DownloadRequest,
  target: DownloadTarget & { readonly dispatcher: Dispatcher },
  signal: AbortSignal,
): Promise<DownloadResult> {
  try {
    const first = parseUrl(request)
    const { authorization: _, ...others } = request.headers ?? {}
    for (let url = first, followed = 0; ; followed++) {
      const headers = url.origin === first.origin ? (request.headers ?? {}) : others
      const answer = await downloadFile(url, { ...target, headers }, signal)
      if (!('location' in answer)) return answer
      if (followed >= target.maxRedirects) throw new FetchError('redirect')
      url = parseUrl({ ...request, url: URL.parse(answer.location, url)?.href ?? '' })
    }
  } catch (error) {
    signal.throwIfAborted()
    throw isFileError(error) ? error : translate(error)
  }
}
