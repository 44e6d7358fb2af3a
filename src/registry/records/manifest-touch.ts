import { create, fromBinary, toBinary } from '@bufbuild/protobuf'
import { ManifestRecordSchema } from '../../gen/taproot/store/v1/registry_pb.ts'
import type { Entry, Write } from '../../store/store.ts'
import { inAttempts } from '../../engine/attempts.ts'
import type { Services } from '../../engine/services.ts'
import { touchEveryMs } from './blobs.ts'
import { manifestIn, manifestKey, type ManifestName } from './manifest-keys.ts'

/**
 * Returns a write which records that a request relies on a manifest. The manifest then stays for as long as a new one would. Returns
 * undefined if this was recorded within the last `everyMs`. Otherwise many requests that rely on one manifest would make each other retry.
 */
export function touchOf({ key, value }: Entry, { nowMs, everyMs }: { nowMs: number; everyMs: number }): Write | undefined {
  const record = fromBinary(ManifestRecordSchema, value)
  if (nowMs - Number(record.createTimeMs) < everyMs) return undefined
  return { kind: 'put', key, value: toBinary(ManifestRecordSchema, create(ManifestRecordSchema, { ...record, createTimeMs: BigInt(nowMs) })) }
}

/**
 * Records that a client with push permission learned that the repo holds the manifest, and will not send it. The manifest stays for as
 * long as a new one would. Does nothing if this was recorded recently. Resolves with false if the manifest no longer exists. Throws code
 * 10 if it changes too often.
 */
export async function touchManifest({ store, clock, random }: Services, { repo, digest }: ManifestName, signal: AbortSignal): Promise<boolean> {
  const key = manifestKey(repo, digest)
  return inAttempts({ random, signal }, async () => {
    const entry = await store.get(key, signal)
    if (entry === undefined || manifestIn(entry) === undefined) return { done: false }
    const touch = touchOf(entry, { nowMs: clock.now(), everyMs: touchEveryMs })
    if (touch === undefined) return { done: true }
    const { committed } = await store.transact({ guards: [{ kind: 'unchanged', key, revision: entry.revision }], writes: [touch] }, signal)
    // Otherwise another request pushed, touched or deleted the manifest meanwhile.
    return committed ? { done: true } : undefined
  })
}
