import { fromBinary } from '@bufbuild/protobuf'
import type { Digest } from '../../base/digest.ts'
import type { Uid } from '../../base/uid.ts'
import { ManifestRecordSchema, type ManifestRecord } from '../../gen/taproot/store/v1/registry_pb.ts'
import type { Entry } from '../../store/store.ts'

/** All manifests of all repos. */
export const manifestPrefix = 'x/manifest/'
/** All referrers: one key per manifest with a subject. */
export const referrerPrefix = 'x/referrer/'

/** Where a repo's manifest is. */
export interface ManifestName {
  readonly repo: Uid
  readonly digest: Digest
}

/** The key of what a repo holds under a digest. */
export function manifestKey(repo: string, digest: string): string {
  return `${manifestPrefix}${repo}/${digest}`
}

/** Key prefix of everything that refers to a digest. */
export function referrerKeyPrefix(repo: string, subject: string): string {
  return `${referrerPrefix}${repo}/${subject}/`
}

/** The record in an entry; undefined where the manifest was deleted. */
export function manifestIn(entry: Entry): ManifestRecord | undefined {
  const record = fromBinary(ManifestRecordSchema, entry.value)
  return record.deleteTimeMs === 0n ? record : undefined
}
