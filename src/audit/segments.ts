import { create, fromBinary, toBinary } from '@bufbuild/protobuf'
import { createHash } from 'node:crypto'
import { Readable } from 'node:stream'
import { promisify } from 'node:util'
import { gzip } from 'node:zlib'
import { algorithmOf, digestOf, digestOfHex, type Digest } from '../base/digest.ts'
import { randomHex, type Clock, type Random } from '../base/runtime.ts'
import { AuditSegmentSchema, type AuditSegment } from '../gen/taproot/store/v1/audit_pb.ts'
import { platformRepository, type Upstream } from '../registry/index.ts'
import { entriesOf } from '../store/pages.ts'
import type { Store } from '../store/store.ts'

const compress = promisify(gzip)

const prefix = 'x/audit/'
const hourMs = 3_600_000
/** A segment is merged with others of its hour after this time, in milliseconds. Replicas have read it by then. */
const mergedAfterMs = hourMs
/** Segments that are merged at once, and size of the result, in bytes. A transaction has room for so many keys. */
const maxMerged = 100
const maxMergedBytes = 16 * 1024 * 1024
/** Names that a merged segment can list: a value of the store has room for them. */
const maxMergedNames = 5_000

const manifestType = 'application/vnd.oci.image.manifest.v1+json'
const segmentType = 'application/vnd.taproot.audit.segment.v1'
const contentType = 'application/vnd.taproot.audit.events.v1+jsonl.gzip'
const emptyType = 'application/vnd.oci.empty.v1+json'
const emptyConfig = Buffer.from('{}')

/** A segment in the store. Names sort by the time of sealing. */
export interface NamedSegment extends AuditSegment {
  readonly name: string
}

/** The parts of the segments of audit events. */
export interface AuditSegmentsOptions {
  readonly store: Store
  readonly upstream: Upstream
  readonly clock: Clock
  readonly random: Random
  /** How long segments are kept, in milliseconds, and how many bytes of them. */
  readonly keepMs: number
  readonly maxBytes: number
}

/** Returns the start of all names of segments that are sealed at this time or later. */
export function nameFrom(timeMs: number): string {
  return String(Math.max(0, timeMs)).padStart(13, '0')
}

/**
 * Audit events in the upstream: JSON lines, compressed with gzip, as the layer of an OCI artifact. The store names each segment, so that all replicas find it.
 * Methods reject with UpstreamError, StoreError, or the signal's reason.
 */
export class AuditSegments {
  readonly #options: AuditSegmentsOptions
  /** Names of segments that could not be read, so that they are not read again for each merge. */
  readonly #unreadable = new Set<string>()

  constructor(options: AuditSegmentsOptions) {
    this.#options = options
  }

  /** Stores JSON lines durably. Returns the name and the compressed content of their segment. */
  async seal(lines: Buffer, signal: AbortSignal): Promise<{ readonly name: string; readonly content: Buffer }> {
    // Contents are joined when segments are merged, so the last line must have an end.
    const whole = lines.at(-1) === 10 ? lines : Buffer.concat([lines, Buffer.from('\n')])
    const content = await compress(whole)
    const sealedMs = this.#options.clock.now()
    const { name, value } = await this.#put(content, { sealedMs, merged: [] }, signal)
    await this.#options.store.transact({ guards: [], writes: [{ kind: 'put', key: `${prefix}${name}`, value }] }, signal)
    return { name, content }
  }

  /** Returns the segments with a name after `after`. */
  async list(after: string, signal: AbortSignal): Promise<NamedSegment[]> {
    const found: NamedSegment[] = []
    for await (const { key, value } of entriesOf(this.#options.store, { prefix, after: `${prefix}${after}` }, signal))
      found.push({ ...fromBinary(AuditSegmentSchema, value), name: key.slice(prefix.length) })
    return found
  }

  /** Returns the compressed content of a segment. Undefined if the upstream does not have it, or has other bytes: it may have it later. */
  async content({ content, size }: AuditSegment, signal: AbortSignal): Promise<Buffer | undefined> {
    const digest = content as Digest // of seal or merge
    const blob = await this.#options.upstream.readBlob(platformRepository, { digest }, signal)
    if (blob === undefined) return undefined
    const pieces: Buffer[] = []
    // The digest of the whole would block the process for milliseconds.
    const hash = createHash(algorithmOf(digest))
    let left = Number(size)
    for await (const piece of blob.body as AsyncIterable<Buffer>) {
      left -= piece.length
      if (left < 0) return undefined
      hash.update(piece)
      // The upstream may use the memory of a piece again.
      pieces.push(Buffer.from(piece))
    }
    return digestOfHex(algorithmOf(digest), hash.digest('hex')) === digest ? Buffer.concat(pieces) : undefined
  }

  /** Returns true if the store still names a segment: its content must be in the upstream. */
  async isNamed({ name }: NamedSegment, signal: AbortSignal): Promise<boolean> {
    return (await this.#options.store.get(`${prefix}${name}`, signal)) !== undefined
  }

  /** Removes segments that are too old or too many, and merges those of one hour. For the leader. Returns true if there may be more to merge. */
  async maintain(signal: AbortSignal): Promise<boolean> {
    const { clock, keepMs, maxBytes } = this.#options
    const kept: NamedSegment[] = []
    let bytes = 0
    for (const segment of (await this.list('', signal)).toReversed()) {
      bytes += Number(segment.size)
      if (Number(segment.sealedTimeMs) >= clock.now() - keepMs && bytes <= maxBytes) kept.push(segment)
      else await this.#remove([segment], signal)
    }
    const hours = Map.groupBy(kept.toReversed(), ({ name }) => Math.floor(Number.parseInt(name, 10) / hourMs))
    let more = false
    for (const [hour, segments] of hours) {
      if ((hour + 1) * hourMs + mergedAfterMs > clock.now()) continue
      const first = mergeable(segments.filter(({ name }) => !this.#unreadable.has(name)))
      if (first.length < 2) continue
      await this.#merge(first, signal)
      more = true
    }
    return more
  }

  /** Merges segments. One whose content cannot be read stays as it is: merging it would lose its events. */
  async #merge(candidates: readonly NamedSegment[], signal: AbortSignal): Promise<void> {
    const contents: Buffer[] = []
    const segments: NamedSegment[] = []
    for (const segment of candidates) {
      const content = await this.content(segment, signal)
      if (content === undefined) this.#unreadable.add(segment.name)
      else {
        contents.push(content)
        segments.push(segment)
      }
    }
    if (segments.length < 2) return
    const merged = segments.flatMap((segment) => [segment.name, ...segment.merged])
    const sealedMs = Math.max(...segments.map(({ sealedTimeMs }) => Number(sealedTimeMs)))
    // Joined gzip files are a gzip file.
    const { name, value } = await this.#put(Buffer.concat(contents), { sealedMs, merged }, signal)
    const removed = segments.map((segment) => ({ kind: 'delete', key: `${prefix}${segment.name}` }) as const)
    await this.#options.store.transact({ guards: [], writes: [{ kind: 'put', key: `${prefix}${name}`, value }, ...removed] }, signal)
    await this.#removeContents(segments, signal)
  }

  async #remove(segments: readonly NamedSegment[], signal: AbortSignal): Promise<void> {
    await this.#removeContents(segments, signal)
    const writes = segments.map(({ name }) => ({ kind: 'delete', key: `${prefix}${name}` }) as const)
    await this.#options.store.transact({ guards: [], writes }, signal)
  }

  async #removeContents(segments: readonly AuditSegment[], signal: AbortSignal): Promise<void> {
    for (const { manifest, content } of segments) {
      // Both are of `#put`.
      await this.#options.upstream.deleteManifest(platformRepository, manifest as Digest, signal)
      await this.#options.upstream.deleteBlob(platformRepository, content as Digest, signal)
    }
  }

  /** Stores an artifact. Returns its entry of the store. */
  async #put(
    bytes: Buffer,
    { sealedMs, merged }: { readonly sealedMs: number; readonly merged: string[] },
    signal: AbortSignal,
  ): Promise<{ readonly name: string; readonly value: Uint8Array }> {
    const { upstream, random } = this.#options
    const [content, config] = [await this.#putBlob(bytes, signal), await this.#putBlob(emptyConfig, signal)]
    const manifest = Buffer.from(
      JSON.stringify({
        schemaVersion: 2,
        mediaType: manifestType,
        artifactType: segmentType,
        config: { mediaType: emptyType, digest: config, size: emptyConfig.length },
        layers: [{ mediaType: contentType, digest: content, size: bytes.length }],
      }),
    )
    const digest = digestOf(manifest)
    await upstream.putManifest(platformRepository, { digest, mediaType: manifestType, bytes: manifest }, signal)
    const segment = create(AuditSegmentSchema, { manifest: digest, content, size: BigInt(bytes.length), sealedTimeMs: BigInt(sealedMs), merged })
    return { name: `${nameFrom(sealedMs)}-${randomHex(random, 4)}`, value: toBinary(AuditSegmentSchema, segment) }
  }

  async #putBlob(bytes: Buffer, signal: AbortSignal): Promise<Digest> {
    const { upstream } = this.#options
    const { state } = await upstream.startUpload(platformRepository, signal)
    // The upstream may free the pieces of a body.
    const chunk = { body: Readable.from([Buffer.from(bytes)], { objectMode: false }), length: bytes.length }
    return (await upstream.finishUpload(platformRepository, { state, digest: digestOf(bytes), chunk }, signal)).digest
  }
}

/** Returns the first small segments that fit into one. Any two of them do. */
function mergeable(segments: readonly NamedSegment[]): readonly NamedSegment[] {
  const small = segments.filter(({ size, merged }) => Number(size) <= maxMergedBytes / 2 && merged.length < maxMergedNames / 2)
  let [bytes, names] = [0, 0]
  const end = small.findIndex(({ size, merged }, at) => {
    bytes += Number(size)
    names += merged.length + 1
    return at === maxMerged || bytes > maxMergedBytes || names > maxMergedNames
  })
  return end < 0 ? small : small.slice(0, end)
}
