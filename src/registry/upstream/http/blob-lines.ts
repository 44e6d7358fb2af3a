import { BlobLine, type BlobAnswer } from './blob-line.ts'
import type { UpstreamTimeouts } from './registry-answers.ts'

/** Connections in the clear to one registry, for GETs of blobs: as many as there are blobs on their way, each used again. */
export class BlobLines {
  readonly #url: URL
  readonly #timeouts: UpstreamTimeouts
  readonly #lines = new Set<BlobLine>()
  readonly #idle: BlobLine[] = []
  /** What a registry keeps elsewhere is not to be had here. */
  #redirects = false

  constructor(origin: string, timeouts: UpstreamTimeouts) {
    this.#url = new URL(origin)
    this.#timeouts = timeouts
  }

  /**
   * Reads the blob at `path`, or the part of it that the headers request. Resolves with undefined for any other answer, or without one. The caller then has to
   * repeat the request with a client that handles such answers. Rejects with UpstreamError if nothing arrives for too long, or with the signal's reason.
   */
  async read(path: string, headers: Readonly<Record<string, string>>, signal: AbortSignal): Promise<BlobAnswer | undefined> {
    if (this.#redirects) return undefined
    signal.throwIfAborted()
    const line = this.#idle.pop() ?? this.#open()
    const answer = await line.get(path, { host: this.#url.host, 'accept-encoding': 'identity', ...headers }, signal)
    if (answer !== undefined && 'body' in answer) return answer
    if (answer !== undefined && answer.statusCode >= 300 && answer.statusCode < 400) this.#redirects = true
    return undefined
  }

  /** Ends all of them, with this error for those who wait for bytes. */
  close(error: Error): void {
    for (const line of this.#lines) line.close(error)
  }

  #open(): BlobLine {
    const { hostname, port } = this.#url
    const line = new BlobLine({
      host: hostname.replace(/^\[(.*)\]$/, '$1'),
      port: port === '' ? 80 : Number(port),
      timeouts: this.#timeouts,
      changed: (changed, state) => this.#changed(changed, state),
    })
    this.#lines.add(line)
    return line
  }

  #changed(line: BlobLine, state: 'idle' | 'closed'): void {
    if (state === 'idle') {
      this.#idle.push(line)
      return
    }
    this.#lines.delete(line)
    const at = this.#idle.indexOf(line)
    if (at >= 0) this.#idle.splice(at, 1)
  }
}
