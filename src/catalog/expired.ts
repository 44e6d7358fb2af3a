import { fromBinary } from '@bufbuild/protobuf'
import { RefreshFamilySchema } from '../gen/taproot/store/v1/people_pb.ts'
import { entriesOf } from '../store/pages.ts'
import type { Entry, Store } from '../store/store.ts'
import { oneByOne } from '../engine/one-by-one.ts'
import { accessRequestPrefix, accessWindowMs, pendingLoginEndMs, pendingLoginPrefix, refreshPrefix } from '../iam/index.ts'
import { uploadLifeMs, uploadPrefix } from '../engine/quota/content.ts'
import { trimBatch } from '../engine/expire/batch.ts'

/** Entries that say themselves when they have no use any more. */
interface Expiring {
  readonly prefix: string
  /** Milliseconds since 1970. */
  endMs(entry: Entry): number
}

const sorts = {
  /** Requests for access that stand in the way of another. */
  accessRequests: { prefix: accessRequestPrefix, endMs: ({ value }) => Number(Buffer.from(value).toString()) + accessWindowMs },
  /** Families of refresh tokens. */
  refreshTokens: { prefix: refreshPrefix, endMs: ({ value }) => Number(fromBinary(RefreshFamilySchema, value).expireTimeMs) },
  /** Sign-ins of devices and of headless clients. */
  pendingLogins: { prefix: pendingLoginPrefix, endMs: pendingLoginEndMs },
  /** Uploads that nobody ended: they count as open no more. */
  openUploads: { prefix: uploadPrefix, endMs: ({ value }) => Number(Buffer.from(value).toString()) + uploadLifeMs },
} as const satisfies Readonly<Record<string, Expiring>>

/** What expires. */
export type ExpiringSort = keyof typeof sorts

/** The names of what expires. */
export const expiringSorts = Object.keys(sorts) as ExpiringSort[] // a cast: the keys of the table

/**
 * Removes what has expired of one sort. Returns how many entries. One that can not be read stays and holds up no other: its failure is thrown at the end. Rejects with
 * StoreError, or the signal's reason.
 */
export async function trimExpired(store: Store, sort: ExpiringSort, { nowMs, signal }: { nowMs: number; signal: AbortSignal }): Promise<number> {
  const { prefix, endMs }: Expiring = sorts[sort]
  let removed = 0
  const removeOld = async (old: readonly Entry[]): Promise<void> => {
    if (old.length === 0) return
    // Guarded: one may be renewed at this moment. Those are left for the next time.
    const guards = old.map(({ key, revision }) => ({ kind: 'unchanged', key, revision }) as const)
    const outcome = await store.transact({ guards, writes: old.map(({ key }) => ({ kind: 'delete', key })) }, signal)
    if (outcome.committed) removed += old.length
  }
  let old: Entry[] = []
  const look = async (entry: Entry): Promise<void> => {
    if (endMs(entry) > nowMs) return
    if (old.push(entry) < trimBatch) return
    const full = old
    old = []
    await removeOld(full)
  }
  try {
    await oneByOne(entriesOf(store, { prefix }, signal), look, { signal })
  } finally {
    await removeOld(old)
  }
  return removed
}
