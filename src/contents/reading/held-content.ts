import { createHash } from 'node:crypto'
import type { Readable } from 'node:stream'
import { parseBoundedJson } from '../../base/bounded-json.ts'
import { algorithmOf, digestOfHex, parseDigest, type Digest } from '../../base/digest.ts'
import type { Uid } from '../../base/uid.ts'
import type { Services } from '../../engine/services.ts'
import type { ManifestRecord } from '../../gen/taproot/store/v1/registry_pb.ts'
import { heldBlob, heldManifest, UpstreamError, type Upstream } from '../../registry/index.ts'
import { ContentError } from '../package.ts'

/** A repo whose content is read. */
export interface ReadableRepo {
  readonly services: Services
  readonly upstream: Upstream
  readonly repo: Uid
}

/** A descriptor in a manifest. */
export interface ManifestPart {
  readonly digest: Digest
  readonly mediaType: string
  readonly annotations: Readonly<Record<string, unknown>>
  /** Of a child of an index: for example `linux/arm/v7`; empty if it is unknown. */
  readonly platform: string
}

/** A manifest that the repo holds. */
export interface NamedManifest {
  /** The digest that the repo holds it by. */
  readonly digest: Digest
  readonly record: ManifestRecord
  readonly config: ManifestPart | undefined
  readonly layers: readonly ManifestPart[]
  readonly children: readonly ManifestPart[]
}

/** A blob that the repo holds. */
export interface NamedBlob {
  readonly digest: Digest
  /** In bytes. */
  readonly size: number
  /** Resolves with all bytes in order. Rejects with ContentError UNREADABLE or WRONG_DIGEST, UpstreamError, or the signal's reason. */
  open(signal: AbortSignal): Promise<Readable>
  /** Rejects with ContentError UNREADABLE if the upstream does not have it, with UpstreamError, or with the signal's reason. */
  assertThere(signal: AbortSignal): Promise<void>
}

type JsonRecord = Readonly<Record<string, unknown>>

const manifestBounds = { maxDepth: 64, maxValues: 262_144, maxKeys: 262_144 }
/** The largest config of an image, in bytes. */
const maxConfigBytes = 4 * 1024 * 1024

/** The error about content that the upstream does not have. It may have it later, for example after a restore. */
export function absent(name: string): ContentError {
  return new ContentError('UNREADABLE', `${name} is not there; it is looked for again`, { retry: 'daily' })
}

function recordIn(value: unknown): JsonRecord {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as JsonRecord) : {} // a cast: it is an object of JSON
}

/** Returns the platform that a descriptor or a config names: `os/architecture` or `os/architecture/variant`. Empty if it names none. */
function platformIn(value: unknown): string {
  const { os, architecture, variant } = recordIn(value)
  const names = [os, architecture, ...(variant === undefined || variant === '' ? [] : [variant])]
  return names.every((name) => typeof name === 'string' && /^[a-z0-9_.-]{1,64}$/i.test(name) && name !== 'unknown') ? names.join('/') : ''
}

function partOf(value: unknown): readonly ManifestPart[] {
  const { digest, mediaType, annotations, platform } = recordIn(value)
  const parsed = typeof digest === 'string' ? parseDigest(digest) : undefined
  if (parsed === undefined || typeof mediaType !== 'string') return []
  return [{ digest: parsed, mediaType, annotations: recordIn(annotations), platform: platformIn(platform) }]
}

function partsIn(value: unknown): readonly ManifestPart[] {
  return Array.isArray(value) ? value.flatMap(partOf) : []
}

/**
 * Reads a manifest. Resolves with undefined if the repo does not hold it. Rejects with ContentError UNREADABLE or WRONG_DIGEST, UpstreamError, or the signal's
 * reason.
 */
export async function readManifest(content: ReadableRepo, digest: Digest, signal: AbortSignal): Promise<NamedManifest | undefined> {
  const { services, upstream, repo } = content
  const record = await heldManifest(services, { repo, digest }, signal)
  if (record === undefined) return undefined
  // A cast: the record holds nothing else.
  const found = await upstream.getManifest(repo, record.upstreamDigest as Digest, signal).catch((error: unknown) => {
    if (error instanceof UpstreamError && error.kind === 'corrupt') throw new ContentError('WRONG_DIGEST', `manifest ${digest} is damaged`, { cause: error })
    throw error
  })
  if (found === undefined) throw absent(`manifest ${digest}`)
  // The manifest was valid when it was pushed. Manifests of artifacts have `blobs`.
  const body = recordIn(parseBoundedJson(Buffer.from(found.bytes).toString(), manifestBounds))
  const [config] = partOf(body['config'])
  return { digest, record, config, layers: partsIn(body['layers'] ?? body['blobs']), children: partsIn(body['manifests']) }
}

/** Returns a blob; undefined if the repo does not hold it. */
export async function namedBlob({ services, upstream, repo }: ReadableRepo, digest: Digest, signal: AbortSignal): Promise<NamedBlob | undefined> {
  const record = await heldBlob(services, { repo, digest }, signal)
  if (record === undefined) return undefined
  const size = Number(record.size)
  return {
    digest,
    size,
    async open(opened) {
      // A cast: the record holds nothing else.
      const stream = await upstream.readBlob(repo, { digest: record.upstreamDigest as Digest }, opened).catch((error: unknown) => {
        if (error instanceof UpstreamError && error.kind === 'corrupt') throw new ContentError('WRONG_DIGEST', `${digest} is damaged`, { cause: error })
        throw error
      })
      if (stream === undefined) throw absent(digest)
      if (stream.size === size) return stream.body
      stream.body.destroy()
      throw new ContentError('WRONG_DIGEST', `${digest} has ${stream.size} bytes instead of ${size}`)
    },
    async assertThere(asked) {
      // A cast: the record holds nothing else.
      if ((await upstream.statBlob(repo, record.upstreamDigest as Digest, asked)) === undefined) throw absent(digest)
    },
  }
}

/** Reads a blob into memory and checks its digest. Rejects as `open` does, and with ContentError TOO_LARGE without reading it. */
export async function readWhole(blob: NamedBlob, maxBytes: number, signal: AbortSignal): Promise<Buffer[]> {
  const { digest, size } = blob
  if (size > maxBytes) throw new ContentError('TOO_LARGE', `${digest} has ${size} bytes: at most ${maxBytes} are read`)
  const algorithm = algorithmOf(digest)
  const hash = createHash(algorithm)
  const pieces: Buffer[] = []
  let bytes = 0
  for await (const piece of await blob.open(signal)) {
    bytes += (piece as Buffer).length // a stream without encoding
    if (bytes > size) throw new ContentError('WRONG_DIGEST', `${digest} has more than its ${size} bytes`)
    hash.update(piece as Buffer)
    pieces.push(piece as Buffer)
  }
  if (digestOfHex(algorithm, hash.digest('hex')) !== digest) throw new ContentError('WRONG_DIGEST', `the bytes of ${digest} have another digest`)
  return pieces
}

/** Returns the platform that the config of an image names; empty if it cannot be read. Rejects with UpstreamError, or the signal's reason. */
export async function platformOf(content: ReadableRepo, config: Digest, signal: AbortSignal): Promise<string> {
  const blob = await namedBlob(content, config, signal)
  if (blob === undefined) return ''
  try {
    const pieces = await readWhole(blob, maxConfigBytes, signal)
    return platformIn(parseBoundedJson(Buffer.concat(pieces).toString(), manifestBounds))
  } catch (error) {
    signal.throwIfAborted()
    if (error instanceof UpstreamError) throw error
    return ''
  }
}
