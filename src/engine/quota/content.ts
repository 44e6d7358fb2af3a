import { errorText } from '../../base/error-text.ts'
import { rootOf, type Uid } from '../../base/uid.ts'
import type { Entry, Guard, Revision, Store, Write } from '../../store/store.ts'
import type { Services } from '../services.ts'
import { contentLimit, limitsOf, manifestsLimit, mebibyte, uploadsLimit } from './limits.ts'
import { quotaExceeded } from './quotas.ts'

const contentPrefix = 'x/content/'

/**
 * Prefix of the entries for open uploads, by organisation: `x/upload/<root>/<id>`. The value is the start time in milliseconds since 1970 as text. They are
 * only written if a limit is set.
 */
export const uploadPrefix = 'x/upload/'

/** Age in milliseconds at which an upload no longer counts as open. */
export const uploadLifeMs = 24 * 3_600_000

/** Number of counters per organisation. So many transactions can record blobs and manifests at once without a conflict. */
const shards = 16

/** The limits whose usage is counted in the store, not in memory, with the key prefix of their counters. */
export const counterPrefixes = { [contentLimit]: contentPrefix, [manifestsLimit]: 'x/manifests/' } as const

/** The name of a limit whose usage is counted in the store. */
export type StoredLimit = keyof typeof counterPrefixes

/**
 * Reads an organisation's counters of a limit: their sum, and the first counter, which a recount changes to correct the sum. Reads as of `revision`, or as of
 * now.
 */
export async function readCounters(
  store: Store,
  { limit, root, revision }: { limit: StoredLimit; root: Uid; revision?: Revision },
  signal: AbortSignal,
): Promise<{ readonly sum: number; readonly first: { readonly key: string; readonly entry: Entry | undefined } }> {
  const prefix = `${counterPrefixes[limit]}${root}/`
  const { entries } = await store.range({ prefix, limit: shards, ...(revision === undefined ? {} : { revision }) }, signal)
  const key = `${prefix}0`
  return { sum: entries.reduce((sum, { value }) => sum + countIn(value), 0), first: { key, entry: entries.find((entry) => entry.key === key) } }
}

/** Returns the number that a counter's value contains. */
export function countIn(value: Uint8Array): number {
  return Number(Buffer.from(value).toString())
}

/** Returns the organisation's usage of the limit in bytes. A blob in two repos counts twice. Rejects with StoreError. */
export async function storedUse(store: Store, { limit, root }: { limit: StoredLimit; root: Uid }, signal: AbortSignal): Promise<number> {
  return (await readCounters(store, { limit, root }, signal)).sum
}

/** The bytes that a transaction adds to an organisation, by limit. A number is negative if content is removed. */
export type StoredBytes = Readonly<Partial<Record<StoredLimit, number>>>

/**
 * Returns the guards and writes that count `bytes` for the organisation of `repo`. They belong into the transaction that records or removes the content, and
 * may conflict with another transaction.
 */
export async function storedChange(
  services: Services,
  { repo, bytes }: { repo: Uid; bytes: StoredBytes },
  signal: AbortSignal,
): Promise<{ guards: Guard[]; writes: Write[] }> {
  const shard = (services.random.bytes(1)[0] ?? 0) % shards
  const changed = (Object.keys(counterPrefixes) as StoredLimit[]).filter((limit) => (bytes[limit] ?? 0) !== 0)
  const parts = await Promise.all(
    changed.map(async (limit): Promise<{ guard: Guard; write: Write }> => {
      const key = `${counterPrefixes[limit]}${rootOf(repo)}/${shard}`
      const entry = await services.store.get(key, signal)
      return addedTo({ key, entry }, bytes[limit] ?? 0)
    }),
  )
  return { guards: parts.map(({ guard }) => guard), writes: parts.map(({ write }) => write) }
}

/** Returns the guard and the write that add `bytes` to a counter. The guard fails if another transaction changes the counter in the meantime. */
export function addedTo({ key, entry }: { key: string; entry: Entry | undefined }, bytes: number): { guard: Guard; write: Write } {
  const sum = (entry === undefined ? 0 : countIn(entry.value)) + bytes
  return {
    guard: entry === undefined ? { kind: 'absent', key } : { kind: 'unchanged', key, revision: entry.revision },
    write: sum === 0 ? { kind: 'delete', key } : { kind: 'put', key, value: Buffer.from(String(sum)) },
  }
}

/**
 * Returns the number of bytes up to the limit of the organisation of `repo`; undefined without such a limit. Throws code 8 QUOTA_EXCEEDED if `bytes` exceeds
 * that number.
 */
export async function storedRoom(
  { store, cache }: Services,
  { repo, limit, bytes }: { repo: Uid; limit: StoredLimit; bytes: number },
  signal: AbortSignal,
): Promise<number | undefined> {
  const root = rootOf(repo)
  const max = limitsOf(cache.tables, root)?.[limit]
  if (max === undefined) return undefined
  const use = await storedUse(store, { limit, root }, signal)
  const room = max * mebibyte - use
  if (bytes > room) {
    const [inUse, amount] = [use, bytes].map((count) => Math.ceil(count / mebibyte)) as [number, number] // A map of two items has two items.
    throw quotaExceeded(root, { limit, max, use: inUse, amount })
  }
  return room
}

/** Returns the number of open uploads of the organisation. Only uploads that began while a limit was set are counted. */
export async function openUploads({ store, clock }: Services, root: Uid, signal: AbortSignal): Promise<number> {
  const youngAfterMs = clock.now() - uploadLifeMs
  let open = 0
  for (let after: string | undefined; ;) {
    const { entries, more } = await store.range({ prefix: `${uploadPrefix}${root}/`, limit: 1000, ...(after === undefined ? {} : { after }) }, signal)
    open += entries.filter(({ value }) => Number(Buffer.from(value).toString()) > youngAfterMs).length
    after = entries.at(-1)?.key
    if (!more || after === undefined) return open
  }
}

/** Counts an upload as open. Throws code 8 QUOTA_EXCEEDED if there are too many. Uploads that begin at the same moment may exceed the limit. */
export async function countUpload(services: Services, { repo, id }: { repo: Uid; id: string }, signal: AbortSignal): Promise<void> {
  const root = rootOf(repo)
  const limit = limitsOf(services.cache.tables, root)?.[uploadsLimit]
  if (limit === undefined) return
  const use = await openUploads(services, root, signal)
  if (use >= limit) throw quotaExceeded(root, { limit: uploadsLimit, max: limit, use, amount: 1 })
  const value = Buffer.from(String(services.clock.now()))
  await services.store.transact({ guards: [], writes: [{ kind: 'put', key: `${uploadPrefix}${root}/${id}`, value }] }, signal)
}

/** Stops counting an upload as open. Has no effect if it was not counted, or if the store does not answer: the entry then expires by itself. */
export async function uncountUpload({ store, cache, log }: Services, { repo, id }: { repo: Uid; id: string }, signal: AbortSignal): Promise<void> {
  const root = rootOf(repo)
  if (limitsOf(cache.tables, root)?.[uploadsLimit] === undefined) return
  try {
    await store.transact({ guards: [], writes: [{ kind: 'delete', key: `${uploadPrefix}${root}/${id}` }] }, signal)
  } catch (error) {
    log.warn('an upload that ended counts as open until its entry expires', { repo, error: errorText(error) })
  }
}
