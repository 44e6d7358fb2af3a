import { createHash } from 'node:crypto'
import { algorithmOf, digestOfHex, type Digest } from '../../../base/digest.ts'
import { untilAborted } from '../../../base/timing.ts'
import { release } from '../../release.ts'
import { UpstreamError, type BlobStream } from '../../upstream/upstream.ts'

/** What a cached blob is created from. */
export interface CachedBlobOptions {
  readonly digest: Digest
  /** Memory of the blob's size. Readers get only bytes that were written since. */
  readonly memory: Buffer
  /** Starts to read the whole blob, which must have the size of `memory`. Readers of the cached blob get its errors. */
  readonly read: (signal: AbortSignal) => Promise<BlobStream>
  /** Called if the blob could not be read. */
  readonly failed: (error: unknown) => void
}

/**
 * A blob in memory, complete or still being read. Verifies the digest before it gives out the last byte, and fails if the bytes do not
 * match.
 */
export class CachedBlob {
  readonly #memory: Buffer
  readonly #stop = new AbortController()
  #available = 0
  #failure: { readonly error: unknown } | undefined
  #progress = Promise.withResolvers<void>()

  /** Starts to read the blob into the memory. */
  constructor(options: CachedBlobOptions) {
    this.#memory = options.memory
    this.#fill(options).catch((error: unknown) => {
      this.#failure = { error }
      this.#progress.resolve()
      options.failed(error)
    })
  }

  get size(): number {
    return this.#memory.length
  }

  /** Number of bytes read so far. */
  get available(): number {
    return this.#available
  }

  /** True if all bytes are in memory. */
  get isWhole(): boolean {
    return this.#available === this.size
  }

  /**
   * Returns the available bytes of the range from `first`, inclusive, to `end`, exclusive. Waits until at least one is available. Rejects
   * with the error of the read, or with the signal's reason.
   */
  async bytes(first: number, end: number, signal: AbortSignal): Promise<Uint8Array> {
    while (this.#available <= first) {
      if (this.#failure !== undefined) throw this.#failure.error
      await untilAborted(this.#progress.promise, signal)
    }
    return this.#memory.subarray(first, Math.min(end, this.#available))
  }

  /** Stops the read. */
  abandon(): void {
    this.#stop.abort(new UpstreamError('unavailable', 'no client waits for the blob any more'))
  }

  async #fill({ digest, read }: CachedBlobOptions): Promise<void> {
    const { signal } = this.#stop
    const { body } = await read(signal)
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    const onAbort = (): void => reject(signal.reason as Error)
    const hash = createHash(algorithmOf(digest))
    let filled = 0
    signal.addEventListener('abort', onAbort, { once: true })
    body.on('end', resolve)
    body.on('error', reject)
    body.on('close', () => reject(brokenOff()))
    body.on('data', (piece: Uint8Array) => {
      if (filled + piece.length > this.size) {
        body.destroy(new UpstreamError('unavailable', 'the upstream sent more bytes than it announced'))
        return
      }
      hash.update(piece)
      this.#memory.set(piece, filled)
      filled += piece.length
      release(piece)
      if (filled < this.size) this.#proceed(filled)
    })
    if (signal.aborted) onAbort()
    // The body may have failed before these listeners were added.
    else if (body.closed) reject(body.errored ?? brokenOff())
    try {
      await promise
    } finally {
      body.destroy()
    }
    if (filled < this.size) throw new UpstreamError('unavailable', `${this.size - filled} bytes are missing of those that the upstream announced`)
    if (digestOfHex(algorithmOf(digest), hash.digest('hex')) !== digest)
      throw new UpstreamError('corrupt', 'the upstream returned bytes that do not match the digest')
    this.#proceed(filled)
  }

  #proceed(filled: number): void {
    this.#available = filled
    const { resolve } = this.#progress
    this.#progress = Promise.withResolvers<void>()
    resolve()
  }
}

function brokenOff(): UpstreamError {
  return new UpstreamError('unavailable', 'a blob was not read completely')
}
