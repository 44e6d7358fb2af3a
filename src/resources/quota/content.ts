import { rootOf, type Uid } from '../../core/uid.ts'
import type { Store, Write, Guard } from '../../store/store.ts'
import type { Services } from '../services.ts'
import { contentLimit, limitsOf, mebibyte, uploadsLimit } from './limits.ts'
import { quotaExceeded } from './quotas.ts'

const contentPrefix = 'x/content/'

/** Uploads by organisation: `x/upload/<root>/<id>`, with the time of their beginning in milliseconds since 1970 as text. Only where a limit is set. */
export const uploadPrefix = 'x/upload/'

/** An upload that was begun so long ago, in milliseconds, counts no more. */
export const uploadLifeMs = 24 * 3_600_000

/** So many blobs of an organisation can be recorded at once without standing in each other's way. */
const shards = 16

/** Bytes of all blobs that the repos of an organisation hold; a blob that two repos hold counts twice. Rejects with StoreError. */
export async function contentUse(store: Store, root: Uid, signal: AbortSignal): Promise<number> {
  const { entries } = await store.range({ prefix: `${contentPrefix}${root}/`, limit: shards }, signal)
  return entries.reduce((sum, { value }) => sum + Number(Buffer.from(value).toString()), 0)
}

/** What adds `bytes`, which may be less than 0, to what the organisation of `repo` holds: for the transaction that records or removes them. It may conflict with another. */
export async function contentChange(
  services: Services,
  change: { repo: Uid; bytes: number },
  signal: AbortSignal,
): Promise<{ guards: Guard[]; writes: Write[] }> {
  if (change.bytes === 0) return { guards: [], writes: [] }
  const shard = (services.random.bytes(1)[0] ?? 0) % shards
  const key = `${contentPrefix}${rootOf(change.repo)}/${shard}`
  const entry = await services.store.get(key, signal)
  const sum = (entry === undefined ? 0 : Number(Buffer.from(entry.value).toString())) + change.bytes
  return {
    guards: [entry === undefined ? { kind: 'absent', key } : { kind: 'unchanged', key, revision: entry.revision }],
    writes: [sum === 0 ? { kind: 'delete', key } : { kind: 'put', key, value: Buffer.from(String(sum)) }],
  }
}

/** The bytes that the organisation of `repo` may still add; undefined where nothing limits them. Throws code 8 QUOTA_EXCEEDED where `bytes` more are too many. */
export async function contentRoom(
  { store, replica }: Services,
  { repo, bytes }: { repo: Uid; bytes: number },
  signal: AbortSignal,
): Promise<number | undefined> {
  const root = rootOf(repo)
  const limit = limitsOf(replica.snapshot, root)?.[contentLimit]
  if (limit === undefined) return undefined
  const use = await contentUse(store, root, signal)
  const room = limit * mebibyte - use
  if (bytes > room) {
    const [inUse, amount] = [use, bytes].map((count) => Math.ceil(count / mebibyte)) as [number, number] // of two
    throw quotaExceeded(root, { limit: contentLimit, max: limit, use: inUse, amount })
  }
  return room
}

/** How many uploads of the organisation are open: of those that began while there was a limit. */
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

/** Counts an upload as open. Throws code 8 QUOTA_EXCEEDED where there are too many; those that begin at the same moment may go over. */
export async function countUpload(services: Services, { repo, id }: { repo: Uid; id: string }, signal: AbortSignal): Promise<void> {
  const root = rootOf(repo)
  const limit = limitsOf(services.replica.snapshot, root)?.[uploadsLimit]
  if (limit === undefined) return
  const use = await openUploads(services, root, signal)
  if (use >= limit) throw quotaExceeded(root, { limit: uploadsLimit, max: limit, use, amount: 1 })
  const value = Buffer.from(String(services.clock.now()))
  await services.store.transact({ guards: [], writes: [{ kind: 'put', key: `${uploadPrefix}${root}/${id}`, value }] }, signal)
}

/** Counts an upload as open no more. Does nothing where it was not counted, or the store does not answer: it ends by itself. */
export async function uncountUpload({ store, replica, log }: Services, { repo, id }: { repo: Uid; id: string }, signal: AbortSignal): Promise<void> {
  const root = rootOf(repo)
  if (limitsOf(replica.snapshot, root)?.[uploadsLimit] === undefined) return
  try {
    await store.transact({ guards: [], writes: [{ kind: 'delete', key: `${uploadPrefix}${root}/${id}` }] }, signal)
  } catch (error) {
    log.warn('an upload that ended still counts as open', { repo, error: String(error) })
  }
}
