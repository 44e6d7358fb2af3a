import { Readable } from 'node:stream'
import { digestOf, type Digest } from '../../../base/digest.ts'
import type { Uid } from '../../../base/uid.ts'
import type { MutationContext, Services } from '../../../engine/services.ts'
import { recordBlob, touchBlob } from '../../records/blobs.ts'
import { contentEpoch } from '../../records/content-epoch.ts'
import { putManifest as recordManifest } from '../../records/manifests.ts'
import { scheduleDelete } from '../../records/pending-deletes.ts'
import type { Traffic } from '../../records/traffic.ts'
import type { Upstream } from '../../upstream/upstream.ts'
import { parseManifest, type ParsedManifest } from './manifest-parser.ts'
import { whileUncollected } from './uncollected.ts'

/** Where content is kept. */
export interface ContentPlace {
  readonly services: Services
  readonly upstream: Upstream
}

/** A manifest whose references the repo holds. */
interface CheckedManifest {
  readonly repo: Uid
  readonly parsed: ParsedManifest
  readonly traffic: Traffic
  readonly tags: readonly string[]
  /** Stores its bytes in the upstream. */
  readonly store: () => Promise<void>
}

/** Stores the bytes of a manifest, then makes it and its tags visible in one transaction. Throws the errors of `store` and of putManifest. */
export async function keepManifest({ services }: Pick<ContentPlace, 'services'>, mutation: MutationContext, put: CheckedManifest): Promise<void> {
  const { repo, parsed, traffic, tags, store } = put
  const { digest, record, upstreamDigest } = parsed
  let isUpstream = false
  try {
    await whileUncollected(async () => {
      const epoch = await contentEpoch(services, repo, mutation.signal)
      await store()
      isUpstream = true
      await recordManifest(services, mutation, { repo, digest, record, traffic, epoch, tags })
    })
  } catch (error) {
    if (isUpstream) await scheduleDelete(services, { repo, sort: 'manifest', digest: upstreamDigest })
    throw error
  }
}

/** An artifact that this server makes: a manifest and the blobs that it names. */
export interface MadeArtifact {
  readonly repo: Uid
  readonly mediaType: string
  readonly manifest: Uint8Array
  readonly blobs: readonly Uint8Array[]
  /** Data of the push for its event, without digest and type. */
  readonly traffic: Traffic
}

async function putBlob(
  { services, upstream }: ContentPlace,
  { repo, bytes }: { readonly repo: Uid; readonly bytes: Uint8Array },
  signal: AbortSignal,
): Promise<void> {
  const digest = digestOf(bytes)
  // If the repo already holds the blob but no longer needs it, keeps garbage collection from removing the new bytes.
  await touchBlob(services, { repo, digest }, signal)
  await whileUncollected(async () => {
    const epoch = await contentEpoch(services, repo, signal)
    const { state } = await upstream.startUpload(repo, signal)
    const stored = await upstream
      .finishUpload(repo, { state, digest, chunk: { body: Readable.from([bytes]), offset: 0, length: bytes.length } }, signal)
      .catch(async (error: unknown) => {
        await upstream.cancelUpload(repo, state, AbortSignal.timeout(cancelTimeoutMs)).catch(() => undefined)
        throw error
      })
    await recordBlob(services, { repo, digest, size: stored.size, upstreamDigest: stored.digest, epoch }, signal).catch(async (error: unknown) => {
      // The upstream has the bytes, but no record names them. If one does, the collection keeps them.
      await scheduleDelete(services, { repo, sort: 'blob', digest: stored.digest })
      throw error
    })
  })
}

/** Maximum time in milliseconds to cancel an upload that failed. */
const cancelTimeoutMs = 5_000

/**
 * Pushes an artifact to a repo, as a client does: with rights, quotas, history and event. Resolves with its digest. `mutation.authorize` is called before the
 * first byte is stored. Throws UpstreamError, RegistryError, and the errors of recordBlob and putManifest.
 */
export async function putArtifact(place: ContentPlace, mutation: MutationContext, artifact: MadeArtifact): Promise<Digest> {
  const { repo, mediaType, manifest: bytes, blobs, traffic } = artifact
  const { signal } = mutation
  mutation.authorize()
  const parsed = parseManifest({ bytes, contentType: mediaType })
  const { digest, upstreamDigest } = parsed
  for (const blob of blobs) await putBlob(place, { repo, bytes: blob }, signal)
  const store = (): Promise<void> => place.upstream.putManifest(repo, { digest: upstreamDigest, mediaType, bytes }, signal)
  await keepManifest(place, mutation, { repo, parsed, traffic: { ...traffic, digest, type: 'manifest' }, tags: [], store })
  return digest
}
