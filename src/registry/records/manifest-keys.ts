import { fromBinary } from '@bufbuild/protobuf'
import { digestOfHex, type Digest } from '../../base/digest.ts'
import type { Uid } from '../../base/uid.ts'
import { ManifestRecordSchema, type ManifestRecord } from '../../gen/taproot/store/v1/registry_pb.ts'
import type { Entry } from '../../store/store.ts'

/** Key prefix of all manifests of all repos. */
export const manifestPrefix = 'x/manifest/'
/** Key prefix of all referrers. There is one key for each manifest with a subject. */
export const referrerPrefix = 'x/referrer/'

/** Key prefix of manifests whose contents are to be read, or read again. */
export const unreadPrefix = 'x/unread/'
/** Key prefix of manifests whose contents are to be read again later. */
export const rereadPrefix = 'x/reread/'

/** Key prefixes of images that a scanner is to scan, that it is to scan again later, and that it has scanned. Its name follows, then repo and digest. */
export const scanPrefixes = { waiting: 'x/unscanned/', later: 'x/rescan/', done: 'x/scanned/' } as const

/** A manifest, by its repo and digest. */
export interface ManifestName {
  readonly repo: Uid
  readonly digest: Digest
}

/** Returns the key of a manifest's record. */
export function manifestKey(repo: string, digest: string): string {
  return `${manifestPrefix}${repo}/${digest}`
}

/** Returns the key that asks for the contents of an image or index. */
export function unreadKey(repo: string, digest: string): string {
  return `${unreadPrefix}${repo}/${digest}`
}

/** Returns the digest of the image that a tag of cosign says something about: `sha256-….att`, `.sbom` or `.sig`. Undefined for other tags. */
export function describedByTag(name: string): Digest | undefined {
  const hex = /^sha256-([0-9a-f]{64})\.(?:att|sbom|sig)$/.exec(name)?.[1]
  return hex === undefined ? undefined : digestOfHex('sha256', hex)
}

/** Returns the key that says when the contents of an image or index are to be read again. */
export function rereadKey(repo: string, digest: string): string {
  return `${rereadPrefix}${repo}/${digest}`
}

/** Returns the key of one of `scanPrefixes` for an image. */
export function scanKey(prefix: string, scanner: string, { repo, digest }: { readonly repo: string; readonly digest: string }): string {
  return `${prefix}${scanner}/${repo}/${digest}`
}

/** Returns the key prefix of all manifests whose subject is this digest. */
export function referrerKeyPrefix(repo: string, subject: string): string {
  return `${referrerPrefix}${repo}/${subject}/`
}

/** Returns the record in an entry; undefined if the manifest was deleted. */
export function manifestIn(entry: Entry): ManifestRecord | undefined {
  const record = fromBinary(ManifestRecordSchema, entry.value)
  return record.deleteTimeMs === 0n ? record : undefined
}
