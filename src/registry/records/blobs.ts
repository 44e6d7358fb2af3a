import { create, fromBinary, toBinary } from '@bufbuild/protobuf'
import type { Digest } from '../../base/digest.ts'
import type { Uid } from '../../base/uid.ts'
import { BlobRecordSchema, type BlobRecord } from '../../gen/taproot/store/v1/registry_pb.ts'
import { recordKey } from '../../store/keys.ts'
import type { Guard, Write } from '../../store/store.ts'
import { inAttempts } from '../../engine/attempts.ts'
import { fromStore, notFound } from '../../engine/errors.ts'
import { storedChange, storedRoom } from '../../engine/quota/content.ts'
import { contentLimit } from '../../engine/quota/limits.ts'
import type { Services } from '../../engine/services.ts'
import { guardEpoch, type Epoch } from './content-epoch.ts'
import { pendingDeleteNote } from './pending-deletes.ts'

/** Key prefix of all blobs of all repos. */
export const blobPrefix = 'x/blob/'

/** A blob, by its repo and digest. */
export interface BlobName {
  readonly repo: Uid
  readonly digest: Digest
}

/** Returns the key of a blob's record. */
export function blobKey(repo: string, digest: string): string {
  return `${blobPrefix}${repo}/${digest}`
}

/** Returns the record of a blob; undefined if the repo does not hold it. */
export async function heldBlob(services: Services, { repo, digest }: BlobName, signal: AbortSignal): Promise<BlobRecord | undefined> {
  const entry = await services.store.get(blobKey(repo, digest), signal)
  return entry === undefined ? undefined : fromBinary(BlobRecordSchema, entry.value)
}

/** A blob whose bytes the upstream already has. */
export interface BlobPut extends BlobName {
  /** Size of the blob, in bytes. */
  readonly size: number
  /** The digest under which the upstream stores it. */
  readonly upstreamDigest: Digest
  /** The repo's epoch, read before the bytes were stored. */
  readonly epoch: Epoch
}

/**
 * Records that the repo holds the blob, and adds its size to the organisation's usage. Throws code 10 CONTENT_COLLECTED if bytes were
 * removed since `epoch` (store them again). Throws code 5 if the repo is gone. Throws code 8 QUOTA_EXCEEDED if the organisation has
 * reached its limit. Throws code 10 if concurrent changes conflict too often.
 */
export async function recordBlob(services: Services, put: BlobPut, signal: AbortSignal): Promise<void> {
  const { repo } = put
  await inAttempts({ random: services.random, signal }, async () => {
    const guard = await guardEpoch(services, put, signal)
    const { guards, writes } = await recording(services, put, signal)
    const { committed } = await services.store
      .transact({ guards: [guard, { kind: 'exists', key: recordKey('Repo', repo) }, ...guards], writes }, signal)
      .catch((error: unknown) => {
        throw fromStore(error)
      })
    if (committed) return { done: undefined }
    if ((await services.store.get(recordKey('Repo', repo), signal)) === undefined) throw notFound('Repo', repo)
    return undefined
  })
}

/** Returns the guards and writes that record the blob. Its size counts only if no record has counted it yet. */
async function recording(services: Services, put: BlobPut, signal: AbortSignal): Promise<{ guards: Guard[]; writes: Write[] }> {
  const { repo, digest, size, upstreamDigest } = put
  const key = blobKey(repo, digest)
  const entry = await services.store.get(key, signal)
  const isCounted = entry !== undefined && fromBinary(BlobRecordSchema, entry.value).counted
  const record = create(BlobRecordSchema, { size: BigInt(size), upstreamDigest, touchTimeMs: BigInt(services.clock.now()), counted: true })
  const write: Write = { kind: 'put', key, value: toBinary(BlobRecordSchema, record) }
  const guard: Guard = entry === undefined ? { kind: 'absent', key } : { kind: 'unchanged', key, revision: entry.revision }
  if (isCounted) return { guards: [guard], writes: [write] }
  await storedRoom(services, { repo, limit: contentLimit, bytes: size }, signal)
  const counting = await storedChange(services, { repo, bytes: { [contentLimit]: size } }, signal)
  return { guards: [guard, ...counting.guards], writes: [write, ...counting.writes] }
}

/** Minimum age, in milliseconds, of the last touch before another one is written. Half of the shortest allowed grace period. */
export const touchEveryMs = 1_800_000

/**
 * Records that a client with push permission learned that the repo holds the blob, and will rely on it. The blob then stays for as long as
 * a new one would. Does nothing if this was recorded recently. Resolves with false if the blob no longer exists.
 */
export async function touchBlob(services: Services, { repo, digest }: BlobName, signal: AbortSignal): Promise<boolean> {
  const key = blobKey(repo, digest)
  const entry = await services.store.get(key, signal)
  if (entry === undefined) return false
  const record = fromBinary(BlobRecordSchema, entry.value)
  const nowMs = services.clock.now()
  if (nowMs - Number(record.touchTimeMs) < touchEveryMs) return true
  const value = toBinary(BlobRecordSchema, create(BlobRecordSchema, { ...record, touchTimeMs: BigInt(nowMs) }))
  const guards = [{ kind: 'unchanged', key, revision: entry.revision }] as const
  const { committed } = await services.store.transact({ guards, writes: [{ kind: 'put', key, value }] }, signal)
  return committed || (await services.store.get(key, signal)) !== undefined
}

/** A mark that must be valid while a blob's record is removed. */
export interface ForgetCondition {
  readonly guard: Guard
  /** Throws if the mark is no longer valid. */
  assertStanding(signal: AbortSignal): Promise<void>
}

/**
 * Removes the blob's record: the repo no longer holds it. A garbage collection removes its bytes later. Throws code 5 if the repo does not
 * hold the blob, code 10 if concurrent changes conflict too often, and the errors of `standing`.
 */
export async function forgetBlob(
  services: Services,
  { repo, digest, standing }: BlobName & { readonly standing?: ForgetCondition },
  signal: AbortSignal,
): Promise<BlobRecord> {
  const key = blobKey(repo, digest)
  return inAttempts({ random: services.random, signal }, async () => {
    const entry = await services.store.get(key, signal)
    if (entry === undefined) throw notFound('Blob', `${repo}@${digest}`)
    const record = fromBinary(BlobRecordSchema, entry.value)
    const counted = record.counted ? Number(record.size) : 0
    const counting = await storedChange(services, { repo, bytes: { [contentLimit]: -counted } }, signal)
    const guards: Guard[] = [{ kind: 'unchanged', key, revision: entry.revision }, ...counting.guards, ...(standing === undefined ? [] : [standing.guard])]
    const writes: Write[] = [{ kind: 'delete', key }, pendingDeleteNote(repo, 'blob', { digest: record.upstreamDigest }), ...counting.writes]
    const { committed } = await services.store.transact({ guards, writes }, signal)
    if (committed) return { done: record }
    // Another request touched the blob or removed its record meanwhile.
    await standing?.assertStanding(signal)
    return undefined
  })
}
