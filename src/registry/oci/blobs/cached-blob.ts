import { createHash } from 'node:crypto'
import { algorithmOf, digestOfHex, type Digest } from '../../../base/digest.ts'
import { untilAborted } from '../../../base/timing.ts'
import { release } from '../../release.ts'
import { UpstreamError, type BlobStream } from '../../upstream/upstream.ts'

/** What a blob in memory is made of. */
export interface CachedBlobOptions {
  readonly digest: Digest
  /** As large as the blob. Nothing of it is given to anybody before it is written. */
  readonly memory: Buffer
  /** Begins to read the whole blob, which has the size that was said. What it rejects with is what readers of the blob get. */
  readonly read: (signal: AbortSignal) => Promise<BlobStream>
  /** Called if the blob could not be read. */
  readonly failed: (error: unknown) => void
}

/** A blob in memory, or on its way there. The bytes are those of the digest, or reading them fails before the last of them. */
export class CachedBlob {
  readonly #memory: Buffer
  readonly #stop = new AbortController()
  #available = 0
  #failure: { readonly error: unknown } | undefined
  #progress = Promise.withResolvers<void>()

  /** Begins to fill the memory. */
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

  /** How many bytes are there so far. */
  get available(): number {
    return this.#available
  }

  /** True where all of it is there. */
  get isWhole(): boolean {
    return this.#available === this.size
  }

  /** Bytes from `first` on, before `end`, as far as they are there: waits for the first of them. Rejects with what broke the blob, or the signal's reason. */
  async bytes(first: number, end: number, signal: AbortSignal): Promise<Uint8Array> {
    while (this.#available <= first) {
      if (this.#failure !== undefined) throw this.#failure.error
      await untilAborted(this.#progress.promise, signal)
    }
    return this.#memory.subarray(first, Math.min(end, this.#available))
  }

  /** Fills it no further. */
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
    // It may have broken before anybody listened.
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
