import { create, fromBinary, toBinary } from '@bufbuild/protobuf'
import { ManifestRecordSchema } from '../../gen/taproot/store/v1/registry_pb.ts'
import type { Entry, Write } from '../../store/store.ts'
import type { Services } from '../services.ts'
import { touchEveryMs } from './blobs.ts'
import { manifestIn, manifestKey, type ManifestName } from './manifest-keys.ts'

/** Notes in a manifest's record that somebody has come to count on it: nothing removes it for as long as it would keep a new one. */
export function touchOf({ key, value }: Entry, nowMs: number): Write {
  const record = fromBinary(ManifestRecordSchema, value)
  const createTimeMs = BigInt(Math.max(nowMs, Number(record.createTimeMs)))
  return { kind: 'put', key, value: toBinary(ManifestRecordSchema, create(ManifestRecordSchema, { ...record, createTimeMs })) }
}

/**
 * Notes that somebody who may push was told that the manifest is here, and will not bring it: it stays for as long as a new one would. Does nothing where that was
 * noted lately. Resolves with false where the manifest is not there any more.
 */
export async function touchManifest({ store, clock }: Services, { repo, digest }: ManifestName, signal: AbortSignal): Promise<boolean> {
  const key = manifestKey(repo, digest)
  for (;;) {
    const entry = await store.get(key, signal)
    const record = entry === undefined ? undefined : manifestIn(entry)
    if (entry === undefined || record === undefined) return false
    const nowMs = clock.now()
    if (nowMs - Number(record.createTimeMs) < touchEveryMs) return true
    const { committed } = await store.transact({ guards: [{ kind: 'unchanged', key, revision: entry.revision }], writes: [touchOf(entry, nowMs)] }, signal)
    // Else pushed, touched or deleted in between.
    if (committed) return true
  }
}
