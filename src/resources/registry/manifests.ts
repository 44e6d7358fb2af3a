import { clone, create, fromBinary, toBinary } from '@bufbuild/protobuf'
import { DomainError } from '../../core/errors.ts'
import { algorithmOf, type Digest } from '../../core/digest.ts'
import { randomHex } from '../../core/runtime.ts'
import type { Uid } from '../../core/uid.ts'
import { ManifestRecordSchema, type ManifestRecord } from '../../gen/taproot/store/v1/registry_pb.ts'
import type { Snapshot } from '../../snapshot/snapshot.ts'
import { manifestsKey, recordKey } from '../../store/keys.ts'
import type { Entry, Write } from '../../store/store.ts'
import { ChangeSet } from '../change-set.ts'
import { commitPrepared, type Plan } from '../commit.ts'
import { notFound } from '../faults.ts'
import type { Extra } from '../kind.ts'
import type { MutationContext, Services } from '../services.ts'
import { storedChange, storedRoom } from '../quota/content.ts'
import { contentLimit, manifestsLimit } from '../quota/limits.ts'
import { blobKey } from './blobs.ts'
import { heldAmong } from './held-among.ts'
import { manifestIn, manifestKey, referrerKeyPrefix, type ManifestName } from './manifest-keys.ts'
import { guardEpoch, type Epoch } from './content-epoch.ts'
import { readHead } from './tag-history.ts'
import { emitTagDeleted, planMove, planRemoval, readTagsAt } from './tag-moves.ts'
import { tagsAt } from './tags.ts'
import { writeTraffic, type Traffic } from './traffic.ts'

/** What the repo holds under the digest. */
export async function heldManifest(services: Services, { repo, digest }: ManifestName, signal: AbortSignal): Promise<ManifestRecord | undefined> {
  const entry = await services.store.get(manifestKey(repo, digest), signal)
  return entry === undefined ? undefined : manifestIn(entry)
}

/** A number that changes whenever a manifest of the repo is deleted: what was remembered under another one may be gone. */
export function manifestGeneration(snapshot: Snapshot, repo: Uid): number {
  return snapshot.entry(manifestsKey(repo))?.revision ?? 0
}

/** A manifest whose bytes are upstream already. */
export interface ManifestPut extends ManifestName {
  /** Its times are set here. */
  readonly record: ManifestRecord
  /** Only with a SHA-256 digest. */
  readonly tag?: string
  /** As it was before the bytes were put. */
  readonly epoch: Epoch
  readonly traffic: Traffic
}

/** Up to this many keys are read at once. */
const readsAtOnce = 64

/** The digests that the manifest names and the repo does not hold. A child of an index is a manifest, or a blob, as in the cache that BuildKit exports. */
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
  const precondition = missing.slice(0, 20).map((digest) => ({ type: 'MANIFEST_BLOB_UNKNOWN', subject: digest, description: 'the repo does not hold it' }))
  return new DomainError(9, `the repo does not hold what the manifest names: ${missing[0] ?? ''}`, {
    reason: 'MANIFEST_BLOB_UNKNOWN',
    details: { precondition },
  })
}

/** The keys and times of a record, in bytes, about. */
const recordOverheadBytes = 300

/**
 * What counts the manifest for its organisation: its size towards `content_mib`, its record towards `manifest_mib`. One that is counted already is not counted again. Throws
 * code 8 QUOTA_EXCEEDED.
 */
async function countingOf(
  services: Services,
  { put, entry }: { put: ManifestPut; entry: Entry | undefined },
  signal: AbortSignal,
): Promise<Extra & { readonly size: number; readonly record: number }> {
  const { repo } = put
  const held = entry === undefined ? undefined : fromBinary(ManifestRecordSchema, entry.value)
  if (held !== undefined && held.countedRecord > 0n) return { size: Number(held.countedSize), record: Number(held.countedRecord) }
  const size = Number(put.record.size)
  const record = toBinary(ManifestRecordSchema, put.record).length + recordOverheadBytes
  const bytes = { [contentLimit]: size, [manifestsLimit]: record }
  for (const limit of [contentLimit, manifestsLimit] as const) await storedRoom(services, { repo, limit, bytes: bytes[limit] }, signal)
  return { size, record, ...(await storedChange(services, { repo, bytes }, signal)) }
}

/**
 * Records a manifest, and moves the tag to it, in one transaction with history and event. Resolves with what the tag pointed to before. Throws code 9
 * MANIFEST_BLOB_UNKNOWN where the repo lacks what the manifest names, code 10 CONTENT_COLLECTED where bytes were removed since `epoch` (put them again), code 5
 * where the repo is gone.
 */
export async function putManifest(services: Services, context: MutationContext, put: ManifestPut): Promise<{ previous: Digest | undefined }> {
  const { repo, digest, tag } = put
  if (tag !== undefined && algorithmOf(digest) !== 'sha256') throw DomainError.invalid('digest', 'a tag points to a SHA-256 digest')
  return commitPrepared(services, context, {
    prepare: async (signal) => {
      const [missing, entry, head, epoch] = await Promise.all([
        missingReferences(services, put, signal),
        services.store.get(manifestKey(repo, digest), signal),
        tag === undefined ? undefined : readHead(services.store, { repo, name: tag }, signal),
        guardEpoch(services, put, signal),
      ])
      if (missing.length > 0) throw missingError(missing)
      return { entry, head, epoch, counting: await countingOf(services, { put, entry }, signal) }
    },
    plan: (planning, { entry, head, epoch, counting }): Plan<{ previous: Digest | undefined }> => {
      const row = planning.snapshot.get('Repo', repo)
      if (row === undefined) throw notFound('Repo', repo)
      const changes = new ChangeSet()
      changes.guard(epoch)
      changes.guard({ kind: 'exists', key: recordKey('Repo', repo) })
      const key = manifestKey(repo, digest)
      // The very manifest that this transaction writes is held by then.
      const moved =
        tag === undefined || head === undefined
          ? undefined
          : planMove(planning, changes, { repo, name: tag, state: { digest }, facts: { head, manifest: 'unchecked' } })
      changes.guard(entry === undefined ? { kind: 'absent', key } : { kind: 'unchanged', key, revision: entry.revision })
      changes.add(counting)
      const record = clone(ManifestRecordSchema, put.record)
      record.countedSize = BigInt(counting.size)
      record.countedRecord = BigInt(counting.record)
      record.createTimeMs = BigInt(planning.nowMs)
      record.deleteTimeMs = 0n
      changes.write({ kind: 'put', key, value: toBinary(ManifestRecordSchema, record) })
      if (record.subject !== '') changes.write({ kind: 'put', key: `${referrerKeyPrefix(repo, record.subject)}${digest}`, value: new Uint8Array() })
      const traffic = moved?.previous === undefined ? put.traffic : { ...put.traffic, tagPreviousDigest: moved.previous }
      writeTraffic(planning, changes, { kind: 'push', repo, parent: row.parent, traffic })
      return { changes, result: { previous: moved?.previous } }
    },
  })
}

/**
 * Deletes a manifest by digest, and the tags that point to it: all at once where they are few; else it is gone at once and its tags go in batches behind. Its bytes
 * are removed later, when nothing needs them. Throws code 5 where the repo does not hold it.
 */
export async function removeManifest(services: Services, context: MutationContext, name: ManifestName & { host: string }): Promise<void> {
  const { repo, digest, host } = name
  const key = manifestKey(repo, digest)
  for (let isFirst = true; ; isFirst = false) {
    await commitPrepared(services, context, {
      prepare: async (signal) => ({ entry: await services.store.get(key, signal), tagged: await readTagsAt(services, name, signal) }),
      plan: (planning, { entry, tagged }): Plan<undefined> => {
        const changes = new ChangeSet()
        const isHere = entry !== undefined && manifestIn(entry) !== undefined
        if (isFirst && !isHere && tagged.length === 0) throw notFound('Manifest', `${repo}@${digest}`)
        if (isHere) changes.add(deletionOf(services, name, { entry, nowMs: planning.nowMs }))
        for (const one of tagged) {
          planRemoval(planning, changes, one)
          emitTagDeleted(planning, changes, { uid: one.row.uid, host })
        }
        return { changes, result: undefined }
      },
    })
    // Also those that were made while it went: none is made of one that is gone.
    await services.replica.barrier(context.signal)
    if (tagsAt(services.replica.snapshot, repo, digest).length === 0) return
  }
}

/** What marks a manifest as deleted. */
function deletionOf({ random }: Services, { repo, digest }: ManifestName, { entry, nowMs }: { entry: Entry; nowMs: number }): Extra {
  const record = fromBinary(ManifestRecordSchema, entry.value)
  const value = toBinary(ManifestRecordSchema, create(ManifestRecordSchema, { ...record, deleteTimeMs: BigInt(nowMs) }))
  const referrer: Write[] = record.subject === '' ? [] : [{ kind: 'delete', key: `${referrerKeyPrefix(repo, record.subject)}${digest}` }]
  return {
    guards: [{ kind: 'unchanged', key: entry.key, revision: entry.revision }],
    writes: [{ kind: 'put', key: entry.key, value }, ...referrer, { kind: 'put', key: manifestsKey(repo), value: Buffer.from(randomHex(random, 8)) }],
  }
}

/** Some of what refers to a manifest. */
export interface Referrers {
  readonly items: readonly { readonly digest: Digest; readonly record: ManifestRecord }[]
  /** Where others follow: pass the last digest as `after`. */
  readonly more: boolean
}

/** The manifests whose subject this digest is, in the order of their digests; the subject itself need not be there. */
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
    // Only putManifest writes these keys, of parsed digests.
    const digests = part.map((entry) => entry.key.slice(prefix.length) as Digest)
    const records = await Promise.all(digests.map((digest) => heldManifest(services, { repo, digest }, signal)))
    digests.forEach((digest, index) => {
      const record = records[index]
      if (record !== undefined) items.push({ digest, record })
    })
  }
  return { items, more }
}
