import { create, fromBinary, toBinary } from '@bufbuild/protobuf'
import { ManifestRecordSchema } from '../../gen/taproot/store/v1/registry_pb.ts'
import type { Entry, Write } from '../../store/store.ts'
import { inAttempts } from '../../engine/attempts.ts'
import type { Services } from '../../engine/services.ts'
import { touchEveryMs } from './blobs.ts'
import { manifestIn, manifestKey, type ManifestName } from './manifest-keys.ts'

/**
 * Returns a write that notes that a request counts on a manifest, which then stays for as long as a new one would. Returns undefined if that was noted within
 * the last `everyMs`. Many requests may count on one manifest at once, and each write makes the others plan again.
 */
export function touchOf({ key, value }: Entry, { nowMs, everyMs }: { nowMs: number; everyMs: number }): Write | undefined {
  const record = fromBinary(ManifestRecordSchema, value)
  if (nowMs - Number(record.createTimeMs) < everyMs) return undefined
  return { kind: 'put', key, value: toBinary(ManifestRecordSchema, create(ManifestRecordSchema, { ...record, createTimeMs: BigInt(nowMs) })) }
}

/**
 * Notes that a client with push permission learned that the manifest is here, and will not send it. The manifest stays for as long as a new one would. Does
 * nothing if that was noted recently. Resolves with false if the manifest no longer exists. Throws code 10 if it changes too often.
 */
export async function touchManifest({ store, clock, random }: Services, { repo, digest }: ManifestName, signal: AbortSignal): Promise<boolean> {
  const key = manifestKey(repo, digest)
  return inAttempts({ random, signal }, async () => {
    const entry = await store.get(key, signal)
    if (entry === undefined || manifestIn(entry) === undefined) return { done: false }
    const touch = touchOf(entry, { nowMs: clock.now(), everyMs: touchEveryMs })
    if (touch === undefined) return { done: true }
    const { committed } = await store.transact({ guards: [{ kind: 'unchanged', key, revision: entry.revision }], writes: [touch] }, signal)
    // Else pushed, touched or deleted in between.
    return committed ? { done: true } : undefined
  })
}
