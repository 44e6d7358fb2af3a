import type { Digest } from '../../../base/digest.ts'
import { RecentMap } from '../../../base/recent-map.ts'
import { untilAborted } from '../../../base/timing.ts'
import type { Uid } from '../../../base/uid.ts'
import type { ManifestName } from '../../records/manifest-keys.ts'
import { heldManifest, manifestGeneration } from '../../records/manifests.ts'
import type { Services } from '../../../engine/services.ts'
import { UpstreamError, type Upstream } from '../../upstream/upstream.ts'
import { contentHeaders, type HeaderLines } from '../exchange.ts'

/** A manifest of a repo, with all that a response needs. */
export interface CachedManifest {
  readonly bytes: Uint8Array
  /** The `ETag` header: `"<digest>"`. */
  readonly etag: string
  readonly headers: HeaderLines
  /** The repo's generation before the record was read. */
  readonly generation: number
}

/** Dependencies and limits of the manifest cache. */
export interface ManifestCacheOptions {
  readonly services: Services
  readonly upstream: Pick<Upstream, 'getManifest'>
  /** Maximum size of all cached manifests, in bytes. */
  readonly maxBytes: number
  /** Called if the upstream lacks a manifest that a repo holds. */
  readonly missing: (held: ManifestName) => void
}

/** Timeout for reading a manifest, in milliseconds. */
const timeoutMs = 30_000
/** Memory for an entry in addition to its bytes, in bytes. */
const overheadBytes = 1024

/**
 * Cache of manifests by repo and digest. Bytes never change under a digest, and every delete changes a repo's generation. So an entry is valid while the
 * generation is the one it was filled under. This holds on every replica, without a read of the store.
 */
export class ManifestCache {
  readonly #options: ManifestCacheOptions
  readonly #entries: RecentMap<string, CachedManifest>
  readonly #filling = new Map<string, Promise<CachedManifest | undefined>>()

  constructor(options: ManifestCacheOptions) {
    this.#options = options
    this.#entries = new RecentMap(options.maxBytes, ({ bytes }) => bytes.length + overheadBytes)
  }

  /** Returns the manifest if it is cached, and if the repo still holds it as of the snapshot. */
  at({ repo, digest }: ManifestName): CachedManifest | undefined {
    const entry = this.#entries.get(`${repo} ${digest}`)
    return entry !== undefined && entry.generation === this.#generationOf(repo) ? entry : undefined
  }

  /** The manifest; undefined if the repo does not contain it. Rejects with StoreError, UpstreamError, or the signal's reason. */
  async get(held: ManifestName, signal: AbortSignal): Promise<CachedManifest | undefined> {
    const generation = this.#generationOf(held.repo)
    // A request that arrives after a delete must not get the result of a read that started before it.
    const key = `${held.repo} ${held.digest} ${generation}`
    let filling = this.#filling.get(key)
    if (filling === undefined) {
      filling = this.#fill(held, generation).finally(() => this.#filling.delete(key))
      this.#filling.set(key, filling)
    }
    return untilAborted(filling, signal)
  }

  #generationOf(repo: Uid): number {
    return manifestGeneration(this.#options.services.cache.tables, repo)
  }

  async #fill(held: ManifestName, generation: number): Promise<CachedManifest | undefined> {
    // Several clients may wait for this read, so the signal of one client does not abort it.
    const signal = AbortSignal.timeout(timeoutMs)
    try {
      return await this.#read(held, { generation, signal })
    } catch (error) {
      throw signal.aborted ? new UpstreamError('unavailable', 'a manifest took too long', error) : error
    }
  }

  async #read(held: ManifestName, { generation, signal }: { generation: number; signal: AbortSignal }): Promise<CachedManifest | undefined> {
    const { services, upstream, missing } = this.#options
    const record = await heldManifest(services, held, signal)
    if (record === undefined) return undefined
    const found = await upstream.getManifest(held.repo, record.upstreamDigest as Digest, signal) // a cast: the record holds nothing else
    if (found === undefined) {
      missing(held)
      return undefined
    }
    const entry = toCached(held, { bytes: found.bytes, mediaType: record.mediaType, generation })
    this.#entries.set(`${held.repo} ${held.digest}`, entry)
    return entry
  }
}

function toCached({ digest }: ManifestName, source: { bytes: Uint8Array; mediaType: string; generation: number }): CachedManifest {
  const { mediaType, generation } = source
  const bytes = ownBytes(source.bytes)
  const etag = `"${digest}"`
  const headers = ['Content-Type', mediaType, 'Content-Length', bytes.length, 'Docker-Content-Digest', digest, 'ETag', etag, ...contentHeaders]
  return { bytes, etag, headers, generation }
}

/**
 * Copies the bytes into memory of their own if they are part of a larger block, such as Node's pool or a socket's read. The cache would otherwise keep the
 * whole block for as long as the part.
 */
function ownBytes(bytes: Uint8Array): Uint8Array {
  if (bytes.buffer.byteLength === bytes.byteLength) return bytes
  const own = Buffer.allocUnsafeSlow(bytes.length)
  own.set(bytes)
  return own
}
