import { createHash } from 'node:crypto'
import { algorithmOf, digestOfHex, type Digest } from '../../core/digest.ts'
import { untilAborted } from '../../core/until-aborted.ts'
import { release } from '../release.ts'
import { UpstreamError, type BlobStream } from '../upstream/upstream.ts'

/** Begins to read the whole blob, which has the size that was said. What it rejects with is what readers of the blob get. */
export type ReadWhole = (signal: AbortSignal) => Promise<BlobStream>

/** A blob in memory, or on its way there. The bytes are those of the digest, or reading them fails before the last of them. */
export class HotBlob {
  readonly #bytes: Buffer
  readonly #stop = new AbortController()
  #available = 0
  #failure: { readonly error: unknown } | undefined
  #progress = Promise.withResolvers<void>()

  /** Begins to fill it. `failed` is told where that comes to nothing. */
  constructor({ digest, size, read, failed }: { digest: Digest; size: number; read: ReadWhole; failed: () => void }) {
    // Nothing of it is given to anybody before it is written.
    this.#bytes = Buffer.allocUnsafeSlow(size)
    this.#fill(digest, read).catch((error: unknown) => {
      this.#failure = { error }
      this.#progress.resolve()
      failed()
    })
  }

  get size(): number {
    return this.#bytes.length
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
    return this.#bytes.subarray(first, Math.min(end, this.#available))
  }

  /** Fills it no further. */
  abandon(): void {
    this.#stop.abort(new UpstreamError('unavailable', 'nobody waits for the blob any more'))
  }

  async #fill(digest: Digest, read: ReadWhole): Promise<void> {
    const { signal } = this.#stop
    const { body } = await read(signal)
    const hash = createHash(algorithmOf(digest))
    let filled = 0
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    const onAbort = (): void => reject(signal.reason as Error)
    signal.addEventListener('abort', onAbort, { once: true })
    body.on('end', resolve)
    body.on('error', reject)
    body.on('close', () => reject(new UpstreamError('unavailable', 'a blob broke off')))
    body.on('data', (piece: Uint8Array) => {
      if (filled + piece.length > this.size) return reject(new UpstreamError('unavailable', 'the upstream sent more bytes than it promised'))
      hash.update(piece)
      this.#bytes.set(piece, filled)
      filled += piece.length
      release(piece)
      if (filled < this.size) this.#proceed(filled)
    })
    try {
      if (signal.aborted) onAbort()
      await promise
    } finally {
      signal.removeEventListener('abort', onAbort)
      body.destroy()
    }
    if (filled < this.size) throw new UpstreamError('unavailable', `${this.size - filled} bytes are missing of what the upstream promised`)
    if (digestOfHex(algorithmOf(digest), hash.digest('hex')) !== digest)
      throw new UpstreamError('refused', 'the upstream gave other bytes than those of the digest')
    this.#proceed(filled)
  }

  #proceed(filled: number): void {
    this.#available = filled
    const { resolve } = this.#progress
    this.#progress = Promise.withResolvers<void>()
    resolve()
  }
}
