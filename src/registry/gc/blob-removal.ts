import { fromBinary } from '@bufbuild/protobuf'
import { DomainError } from '../../base/errors.ts'
import { ManifestRecordSchema } from '../../gen/taproot/store/v1/registry_pb.ts'
import { forgetBlob, heldBlob, type BlobName } from '../records/blobs.ts'
import { contentEpoch } from '../records/content-epoch.ts'
import { manifestPrefix } from '../records/manifest-keys.ts'
import { notFound } from '../../engine/errors.ts'
import type { Services } from '../../engine/services.ts'
import { entriesOf } from '../../store/pages.ts'
import { MarkLost, underMark, type HeldMark } from './mark.ts'
import { needsBlob } from './needed.ts'

/** Maximum number of attempts if a garbage collection is removing content of the repo at the same time. */
const maxAttempts = 12

/** Maximum duration of a removal while it holds the repo's mark, in milliseconds. It continues if the client disconnects. */
const workMs = 20_000

/**
 * Removes a blob from the repo, unless a held manifest needs it. Then resolves with the digest of that manifest. The decision and the
 * removal happen under one mark of the repo's content epoch. A manifest that is pushed meanwhile is recorded after the removal, and then
 * lacks the blob. Throws code 5 if the repo does not hold the blob. Throws code 14 if a removal of the repo's content takes too long.
 */
export async function removeBlob(services: Services, name: BlobName, signal: AbortSignal): Promise<string | undefined> {
  const { repo, digest } = name
  if ((await heldBlob(services, name, signal)) === undefined) throw notFound('Blob', `${repo}@${digest}`)
  for (let attempt = 1; attempt <= maxAttempts; attempt++) {
    await contentEpoch(services, repo, signal)
    let done: Promise<string | undefined> | undefined
    try {
      await underMark(
        { services, repo },
        async (mark) => {
          done = decide(services, name, mark)
          // If this fails, no request to the upstream is still running, so the mark can be reset.
          await Promise.allSettled([done])
        },
        signal,
      )
      return await done
    } catch (error) {
      if (!(error instanceof MarkLost)) throw error
    }
  }
  throw new DomainError(14, 'unused content of the repo is being removed; try again', { details: { retryAfterMs: 1_000 } })
}

async function decide(services: Services, name: BlobName, mark: HeldMark): Promise<string | undefined> {
  const signal = AbortSignal.timeout(workMs)
  const needing = await needingManifest(services, name, signal)
  if (needing === undefined) await forgetBlob(services, { ...name, standing: mark }, signal)
  return needing
}

async function needingManifest(services: Services, { repo, digest }: BlobName, signal: AbortSignal): Promise<string | undefined> {
  const prefix = `${manifestPrefix}${repo}/`
  for await (const { key, value } of entriesOf(services.store, { prefix }, signal)) {
    if (needsBlob(fromBinary(ManifestRecordSchema, value), digest)) return key.slice(prefix.length)
  }
  return undefined
}
