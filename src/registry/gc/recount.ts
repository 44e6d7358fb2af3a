import { fromBinary } from '@bufbuild/protobuf'
import { errorText } from '../../base/error-text.ts'
import { isUid, rootOf, trustedUid, type Uid } from '../../base/uid.ts'
import { BlobRecordSchema, ManifestRecordSchema } from '../../gen/taproot/store/v1/registry_pb.ts'
import { entriesOf, pagesOf } from '../../store/pages.ts'
import type { Revision } from '../../store/store.ts'
import { blobPrefix } from '../records/blobs.ts'
import { manifestPrefix } from '../records/manifest-keys.ts'
import { oneByOne } from '../../engine/jobs/one-by-one.ts'
import type { Services } from '../../engine/services.ts'
import { addedTo, counterPrefixes, readCounters, type StoredLimit } from '../../engine/quota/content.ts'
import { contentLimit, manifestsLimit } from '../../engine/quota/limits.ts'

/** Usage in bytes, by limit. */
type Sums = Record<StoredLimit, number>

/** The prefixes of counted records, and the usage that each record adds. Records written by a version without these limits add nothing. */
const sources: readonly { readonly prefix: string; readonly add: (sums: Sums, value: Uint8Array) => void }[] = [
  {
    prefix: blobPrefix,
    add(sums, value) {
      const { counted, size } = fromBinary(BlobRecordSchema, value)
      if (counted) sums[contentLimit] += Number(size)
    },
  },
  {
    prefix: manifestPrefix,
    add(sums, value) {
      const { countedSize, countedRecord } = fromBinary(ManifestRecordSchema, value)
      sums[contentLimit] += Number(countedSize)
      sums[manifestsLimit] += Number(countedRecord)
    },
  },
]

/** Number of records to read at a time: the record of a manifest may have 1 MiB. */
const recordsAtOnce = 50
/** Maximum number of attempts if other transactions change the counter. The next recount corrects what is left. */
const maxCounts = 3

/** Returns the sums of the organisation's records as of the revision. */
async function recorded({ store }: Services, { root, revision }: { root: Uid; revision: Revision }, signal: AbortSignal): Promise<Sums> {
  const sums: Sums = { [contentLimit]: 0, [manifestsLimit]: 0 }
  for (const { prefix, add } of sources) {
    for await (const page of pagesOf(store, { prefix: `${prefix}${root}/`, limit: recordsAtOnce, revision }, signal))
      for (const { value } of page) add(sums, value)
  }
  return sums
}

/**
 * Counts one organisation as of one revision, and adds the difference to its counters. A transaction changes records and counters together, so the difference
 * stays valid. Two corrections of one difference cannot both commit: each guards and changes the first counter. Resolves with the added sums; undefined if
 * other transactions changed that counter each time.
 */
async function recount(services: Services, root: Uid, signal: AbortSignal): Promise<Sums | undefined> {
  const { store } = services
  for (let count = 1; count <= maxCounts; count++) {
    // `revision` of the store only covers watched keys; this is the newest revision of all.
    const { revision } = await store.range({ prefix: counterPrefixes[contentLimit], limit: 1 }, signal)
    const sums = await recorded(services, { root, revision }, signal)
    const limits = Object.keys(counterPrefixes) as StoredLimit[] // a cast: it has no other keys
    const changes = []
    for (const limit of limits) {
      const { sum, first } = await readCounters(store, { limit, root, revision }, signal)
      sums[limit] -= sum
      if (sums[limit] !== 0) changes.push(addedTo(first, sums[limit]))
    }
    if (changes.length === 0) return sums
    const { committed } = await store.transact({ guards: changes.map(({ guard }) => guard), writes: changes.map(({ write }) => write) }, signal)
    if (committed) return sums
  }
  return undefined
}

/** Returns the existing organisations, and deleted ones that still have counters. */
async function countedRoots({ store, cache }: Services, signal: AbortSignal): Promise<ReadonlySet<Uid>> {
  const roots = new Set<Uid>()
  for (const record of cache.tables.table('Repo').records()) roots.add(rootOf(record.uid))
  for (const prefix of Object.values(counterPrefixes)) {
    for await (const { key } of entriesOf(store, { prefix }, signal)) {
      const root = key.slice(prefix.length).split('/', 1)[0] ?? ''
      if (isUid(root)) roots.add(trustedUid(root))
    }
  }
  return roots
}

/**
 * Corrects the content counters of organisations. They are wrong if a version without these limits wrote records. Only the leader calls
 * it, at intervals, because it reads the records of all blobs and manifests. Resolves with the number of organisations whose counters were
 * wrong. If a record cannot be read, the counters of its organisation stay, and the error is thrown after all other organisations are
 * done. Rejects with StoreError or the signal's reason.
 */
export async function recountContent(services: Services, signal: AbortSignal): Promise<number> {
  const { log } = services
  let corrected = 0
  const correct = async (root: Uid): Promise<void> => {
    const added = await recount(services, root, signal)
    if (added === undefined || Object.values(added).every((bytes) => bytes === 0)) return
    corrected += 1
    log.warn('corrected the content usage of an organisation', { root, ...added })
  }
  await oneByOne(await countedRoots(services, signal), correct, {
    signal,
    failed: (root, error) => log.warn('could not recount the content usage of an organisation', { root, error: errorText(error) }),
  })
  return corrected
}
