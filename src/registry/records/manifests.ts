import { clone, create, fromBinary, toBinary } from '@bufbuild/protobuf'
import { DomainError } from '../../base/errors.ts'
import type { Digest } from '../../base/digest.ts'
import { randomHex } from '../../base/runtime.ts'
import type { Uid } from '../../base/uid.ts'
import { ManifestRecordSchema, type ManifestRecord } from '../../gen/taproot/store/v1/registry_pb.ts'
import type { RecordTables } from '../../cache/record-tables.ts'
import { indexesKey, manifestsKey, recordKey, referrersKey } from '../../store/keys.ts'
import type { Entry, Store, Write } from '../../store/store.ts'
import { ChangeSet } from '../../engine/change-set.ts'
import { commitPrepared, type MutationPlan } from '../../engine/commit.ts'
import { notFound } from '../../engine/errors.ts'
import type { Extra, Planning } from '../../engine/kind.ts'
import type { MutationContext, Services } from '../../engine/services.ts'
import { storedChange, storedRoom } from '../../engine/quota/content.ts'
import { contentLimit, manifestsLimit } from '../../engine/quota/limits.ts'
import { blobKey } from './blobs.ts'
import { describedByTag, manifestIn, manifestKey, referrerKeyPrefix, unreadKey, type ManifestName } from './manifest-keys.ts'
import { guardEpoch, type Epoch } from './content-epoch.ts'
import { readHead, type TagHead } from '../tags/tag-history.ts'
import { emitTagDeleted, planMove, planRemoval, readTags } from '../tags/tag-moves.ts'
import { tagsAt } from './tags.ts'
import { writePush, type Traffic } from './traffic.ts'

/** Returns the record of a manifest; undefined if the repo does not hold it. */
export async function heldManifest(services: Services, { repo, digest }: ManifestName, signal: AbortSignal): Promise<ManifestRecord | undefined> {
  const entry = await services.store.get(manifestKey(repo, digest), signal)
  return entry === undefined ? undefined : manifestIn(entry)
}

/** Resolves with the SHA-256 digests of the manifests that the repo holds under a SHA-512 digest. Rejects with StoreError or the signal's reason. */
export async function namedOtherwise({ store }: Services, repo: Uid, signal: AbortSignal): Promise<ReadonlySet<string>> {
  const prefix = manifestKey(repo, 'sha512:')
  const found = new Set<string>()
  for (let after: string | undefined; ;) {
    const { entries, more } = await store.range({ prefix, ...(after === undefined ? {} : { after }), limit: rangeEntries }, signal)
    for (const entry of entries) {
      const record = manifestIn(entry)
      if (record !== undefined) found.add(record.upstreamDigest)
    }
    after = entries.at(-1)?.key
    if (!more || after === undefined) return found
  }
}

/** A number that changes whenever a manifest of the repo is deleted. Content cached under another number may be gone. */
export function manifestGeneration(tables: RecordTables, repo: Uid): number {
  return tables.entry(manifestsKey(repo))?.revision ?? 0
}

/** A number that changes whenever an index is pushed to the repo. */
export function indexGeneration(tables: RecordTables, repo: Uid): number {
  return tables.entry(indexesKey(repo))?.revision ?? 0
}

/** A number that changes whenever a manifest with a subject is pushed to the repo. */
export function referrerGeneration(tables: RecordTables, repo: Uid): number {
  return tables.entry(referrersKey(repo))?.revision ?? 0
}

/** A manifest whose bytes the upstream already has. */
export interface ManifestPut extends ManifestName {
  /** The record without its times, which the write sets. */
  readonly record: ManifestRecord
  /** Names of tags to move to the manifest. */
  readonly tags: readonly string[]
  /** The repo's epoch, read before the bytes were stored. */
  readonly epoch: Epoch
  /** Data of the request for its event, without a tag. */
  readonly traffic: Traffic
}

/** Maximum number of keys to read one by one, in parallel. */
const readsAtOnce = 64
/** Maximum number of entries to read in one range. */
const rangeEntries = 128

/** Digests to look for; each is the last part of a key with this prefix. */
interface Sought {
  readonly prefix: string
  readonly digests: readonly string[]
  /** Returns true if the entry shows that the repo holds the digest. */
  readonly isHeld: (entry: Entry) => boolean
}

/** Returns the digests that the repo holds. Reads a few by key, and many in ranges. */
async function heldAmong(store: Store, { prefix, digests, isHeld }: Sought, signal: AbortSignal): Promise<Set<string>> {
  const held = new Set<string>()
  const note = (entry: Entry | undefined): void => {
    if (entry !== undefined && isHeld(entry)) held.add(entry.key.slice(prefix.length))
  }
  if (digests.length <= readsAtOnce) {
    for (const entry of await Promise.all(digests.map((digest) => store.get(`${prefix}${digest}`, signal)))) note(entry)
    return held
  }
  const sorted = [...digests].sort()
  for (let at = 0; at < sorted.length;) {
    const first = sorted[at] ?? ''
    // Starts just before the next wanted key.
    const { entries, more } = await store.range({ prefix, after: `${prefix}${first.slice(0, -1)}`, limit: rangeEntries }, signal)
    for (const entry of entries) note(entry)
    const last = entries.at(-1)?.key.slice(prefix.length)
    if (last === undefined || !more) break
    while (at < sorted.length && (sorted[at] ?? '') <= last) at++
  }
  return held
}

/**
 * Returns the digests that the manifest names and the repo does not hold. A child of an index is a manifest, or a blob as in caches
 * exported by BuildKit.
 */
export async function missingReferences({ store }: Services, { repo, record }: Pick<ManifestPut, 'repo' | 'record'>, signal: AbortSignal): Promise<string[]> {
  const children = new Set(record.children.map(({ digest }) => digest))
  const blobs = new Set([...(record.config === undefined ? [] : [record.config]), ...record.layers].map(({ digest }) => digest))
  const manifests = { prefix: manifestKey(repo, ''), digests: [...children], isHeld: (entry: Entry) => manifestIn(entry) !== undefined }
  const heldManifests = await heldAmong(store, manifests, signal)
  const wanted = [...new Set([...blobs, ...children])].filter((digest) => !heldManifests.has(digest))
  const heldBlobs = await heldAmong(store, { prefix: blobKey(repo, ''), digests: wanted, isHeld: () => true }, signal)
  return wanted.filter((digest) => !heldBlobs.has(digest))
}

function missingError(missing: readonly string[]): DomainError {
  const precondition = missing
    .slice(0, 20)
    .map((digest) => ({ type: 'MANIFEST_BLOB_UNKNOWN', subject: digest, description: 'is not in the repo: push it first' }))
  return new DomainError(9, `the manifest refers to content that is not in the repo: ${missing[0] ?? ''}`, {
    reason: 'MANIFEST_BLOB_UNKNOWN',
    details: { precondition },
  })
}

/** Approximate size of the keys and times of a record, in bytes. */
const recordOverheadBytes = 300

/** A record to write. */
interface PutRecord {
  readonly digest: Digest
  /** The current entry; undefined if there is none. */
  readonly entry: Entry | undefined
  /** The size that it adds to the organisation's usage, in bytes. */
  readonly size: number
  readonly bytes: number
}

/** Returns the digests under which to record the manifest: its own, and if it has tags the SHA-256 digest, which tags and their history use. */
function digestsOf({ digest, record, tags }: ManifestPut): Digest[] {
  const upstreamDigest = record.upstreamDigest as Digest // a cast: the record holds nothing else
  return tags.length === 0 || upstreamDigest === digest ? [digest] : [digest, upstreamDigest]
}

/**
 * Returns the record with the usage to count. A record that already counts is unchanged. The bytes of the manifest count once, even with
 * two digests.
 */
function countedRecord(put: ManifestPut, { digest, entry }: Pick<PutRecord, 'digest' | 'entry'>): PutRecord & { readonly isNew: boolean } {
  const held = entry === undefined ? undefined : fromBinary(ManifestRecordSchema, entry.value)
  if (held !== undefined && held.countedRecord > 0n) return { digest, entry, size: Number(held.countedSize), bytes: Number(held.countedRecord), isNew: false }
  const bytes = toBinary(ManifestRecordSchema, put.record).length + recordOverheadBytes
  return { digest, entry, size: digest === put.digest ? Number(put.record.size) : 0, bytes, isNew: true }
}

/**
 * Returns the records to write, and the writes that count them for the organisation: their bytes in `content_mib`, the records in
 * `manifest_mib`. Throws code 8 QUOTA_EXCEEDED.
 */
async function recordsOf(services: Services, put: ManifestPut, signal: AbortSignal): Promise<Extra & { readonly records: readonly PutRecord[] }> {
  const { repo } = put
  const digests = digestsOf(put)
  const entries = await Promise.all(digests.map((digest) => services.store.get(manifestKey(repo, digest), signal)))
  const records = digests.map((digest, at) => countedRecord(put, { digest, entry: entries[at] }))
  const added = records.filter(({ isNew }) => isNew)
  if (added.length === 0) return { records }
  const bytes = { [contentLimit]: 0, [manifestsLimit]: 0 }
  for (const one of added) {
    bytes[contentLimit] += one.size
    bytes[manifestsLimit] += one.bytes
  }
  for (const limit of [contentLimit, manifestsLimit] as const) await storedRoom(services, { repo, limit, bytes: bytes[limit] }, signal)
  return { records, ...(await storedChange(services, { repo, bytes }, signal)) }
}

/**
 * Records a manifest, and moves its tags to it, in one transaction with history and events. A tag points to the SHA-256 digest. It also
 * stores the other digest that the manifest was pushed by, if any. Throws code 9 MANIFEST_BLOB_UNKNOWN if the repo lacks content that the
 * manifest names. Throws code 10 CONTENT_COLLECTED if bytes were removed since `epoch` (store them again). Throws code 5 if the repo is
 * gone.
 */
export async function putManifest(services: Services, context: MutationContext, put: ManifestPut): Promise<void> {
  const { repo, tags } = put
  await commitPrepared(services, context, {
    prepare: async (signal) => {
      const [missing, heads, epoch] = await Promise.all([
        missingReferences(services, put, signal),
        Promise.all(tags.map(async (name) => ({ name, head: await readHead(services.store, { repo, name }, signal) }))),
        guardEpoch(services, put, signal),
      ])
      if (missing.length > 0) throw missingError(missing)
      return { heads, epoch, found: await recordsOf(services, put, signal) }
    },
    plan: (planning, { heads, epoch, found }): MutationPlan<undefined> => {
      const record = planning.tables.get('Repo', repo)
      if (record === undefined) throw notFound('Repo', repo)
      const changes = new ChangeSet()
      changes.guard(epoch)
      changes.guard({ kind: 'exists', key: recordKey('Repo', repo) })
      planRecords(planning, changes, { put, found })
      const push = { repo, parent: record.parent }
      if (tags.length === 0) writePush(planning, changes, { ...push, traffic: put.traffic })
      for (const { name, head } of heads) writePush(planning, changes, { ...push, traffic: planTag(planning, changes, { put, name, head }) })
      return { changes, result: undefined }
    },
  })
}

/** Adds the records of a push to the transaction. */
function planRecords(
  { nowMs, services }: Planning,
  changes: ChangeSet,
  { put, found }: { put: ManifestPut; found: Extra & { records: readonly PutRecord[] } },
): void {
  const { repo } = put
  changes.add(found)
  // A manifest that is pushed by another digest is not new.
  const pushes = found.records.flatMap(({ entry }) => (entry === undefined ? [] : [fromBinary(ManifestRecordSchema, entry.value).firstPushTimeMs]))
  const firstPushMs = pushes.reduce((first, time) => (time < first ? time : first), BigInt(nowMs))
  for (const { digest, entry, size, bytes } of found.records) {
    const key = manifestKey(repo, digest)
    changes.guard(entry === undefined ? { kind: 'absent', key } : { kind: 'unchanged', key, revision: entry.revision })
    const record = clone(ManifestRecordSchema, put.record)
    record.countedSize = BigInt(size)
    record.countedRecord = BigInt(bytes)
    record.createTimeMs = BigInt(nowMs)
    record.firstPushTimeMs = firstPushMs
    record.deleteTimeMs = 0n
    changes.write({ kind: 'put', key, value: toBinary(ManifestRecordSchema, record) })
  }
  // Adds the referrer under the pushed digest only, so that lists of referrers have it once.
  const { subject } = put.record
  if (subject !== '') changes.write({ kind: 'put', key: `${referrerKeyPrefix(repo, subject)}${put.digest}`, value: new Uint8Array() })
  const watched = [...(subject === '' ? [] : [referrersKey(repo)]), ...(put.record.children.length === 0 ? [] : [indexesKey(repo)])]
  for (const key of watched) changes.write({ kind: 'put', key, value: Buffer.from(randomHex(services.random, 8)) })
  for (const digest of toRead(put)) changes.write({ kind: 'put', key: unreadKey(repo, digest), value: new Uint8Array() })
}

/** Returns the digests whose contents a manifest may tell: that of its subject, and those in the names of cosign's tags. */
function describedBy({ record, tags }: { readonly record: ManifestRecord; readonly tags: readonly string[] }): ReadonlySet<string> {
  const named = tags.map(describedByTag).filter((digest) => digest !== undefined)
  return new Set([...(record.subject === '' ? [] : [record.subject]), ...named])
}

/** Returns the digests to read after a push. What can run as an image is read, whatever its subject and its tags say. */
function toRead(put: ManifestPut): ReadonlySet<string> {
  const { digest, record } = put
  const described = describedBy(put)
  const runs = record.isImage === true || record.children.length > 0
  return runs || described.size === 0 ? new Set([...described, digest]) : described
}

/** Adds the move of a tag to the pushed manifest to the transaction. Returns the data of its event. */
function planTag(planning: Planning, changes: ChangeSet, { put, name, head }: { put: ManifestPut; name: string; head: TagHead }): Traffic {
  const { repo, digest: pushed, record, traffic } = put
  const digest = record.upstreamDigest as Digest // a cast: the record holds nothing else
  const state = { digest, pushedDigest: pushed === digest ? ('' as const) : pushed }
  // The same transaction writes the manifest, so its presence needs no check.
  const { previous } = planMove(planning, changes, { repo, name, state, facts: { head, manifest: 'unchecked' } })
  return { ...traffic, tag: name, digest, ...(previous === undefined ? {} : { tagPreviousDigest: previous }) }
}

/**
 * Deletes a manifest by digest, and the tags that point to it. A few tags are deleted in the same transaction, many in batches afterwards.
 * Its bytes are removed later, when nothing needs them. Throws code 5 if the repo does not hold the manifest.
 */
export async function removeManifest(services: Services, context: MutationContext, name: ManifestName & { host: string }): Promise<void> {
  const { repo, digest, host } = name
  const key = manifestKey(repo, digest)
  let upstreamDigest = digest
  for (let isFirst = true; ; isFirst = false) {
    await commitPrepared(services, context, {
      prepare: async (signal) => {
        const entry = await services.store.get(key, signal)
        if (entry !== undefined) upstreamDigest = fromBinary(ManifestRecordSchema, entry.value).upstreamDigest as Digest // a cast: the record holds nothing else
        return { entry, tagged: await readTags(services, { repo, records: tagsAt(services.cache.tables, repo, { digest, upstreamDigest }) }, signal) }
      },
      plan: (planning, { entry, tagged }): MutationPlan<undefined> => {
        const changes = new ChangeSet()
        const isHere = entry !== undefined && manifestIn(entry) !== undefined
        if (isFirst && !isHere && tagged.length === 0) throw notFound('Manifest', `${repo}@${digest}`)
        if (isHere) changes.add(deletionOf(services, name, { entry, nowMs: planning.nowMs }))
        for (const one of tagged) {
          planRemoval(planning, changes, one)
          emitTagDeleted(planning, changes, { uid: one.record.uid, host })
        }
        return { changes, result: undefined }
      },
    })
    // Includes tags that were created during the deletion. No later tag can point to the deleted manifest.
    await services.cache.barrier(context.signal)
    if (tagsAt(services.cache.tables, repo, { digest, upstreamDigest }).length === 0) return
  }
}

/** Returns the writes that mark a manifest as deleted. */
function deletionOf({ random }: Services, { repo, digest }: ManifestName, { entry, nowMs }: { entry: Entry; nowMs: number }): Extra {
  const record = fromBinary(ManifestRecordSchema, entry.value)
  const value = toBinary(ManifestRecordSchema, create(ManifestRecordSchema, { ...record, deleteTimeMs: BigInt(nowMs) }))
  const { subject } = record
  // What was read from the manifest must not count any more.
  const referrer: Write[] = [
    { kind: 'delete', key: `${referrerKeyPrefix(repo, subject)}${digest}` },
    { kind: 'put', key: unreadKey(repo, subject), value: new Uint8Array() },
  ]
  return {
    guards: [{ kind: 'unchanged', key: entry.key, revision: entry.revision }],
    writes: [
      { kind: 'put', key: entry.key, value },
      ...(subject === '' ? [] : referrer),
      { kind: 'put', key: manifestsKey(repo), value: Buffer.from(randomHex(random, 8)) },
    ],
  }
}

/** One page of the manifests that refer to a manifest. */
export interface Referrers {
  readonly items: readonly { readonly digest: Digest; readonly record: ManifestRecord }[]
  /** True if more follow: pass the last digest as `after`. */
  readonly more: boolean
}

/** Returns the manifests whose subject is this digest, sorted by digest. The repo need not hold the subject itself. */
export async function referrersOf(
  services: Services,
  query: { repo: Uid; subject: Digest; after?: string; limit: number },
  signal: AbortSignal,
): Promise<Referrers> {
  const { repo, subject, after, limit } = query
  const prefix = referrerKeyPrefix(repo, subject)
  const { entries, more } = await services.store.range({ prefix, ...(after === undefined ? {} : { after: `${prefix}${after}` }), limit }, signal)
  const items: { digest: Digest; record: ManifestRecord }[] = []
  for (let at = 0; at < entries.length; at += readsAtOnce) {
    const part = entries.slice(at, at + readsAtOnce)
    // Only putManifest writes these keys, from parsed digests.
    const digests = part.map((entry) => entry.key.slice(prefix.length) as Digest)
    const records = await Promise.all(digests.map((digest) => heldManifest(services, { repo, digest }, signal)))
    digests.forEach((digest, index) => {
      const record = records[index]
      if (record !== undefined) items.push({ digest, record })
    })
  }
  return { items, more }
}
