import type { Uid } from '../../base/uid.ts'
import type { Row } from '../../cache/records/cached-record.ts'
import { Slices } from '../../cache/slices.ts'
import type { Snapshot } from '../../cache/snapshot.ts'
import type { Services } from '../../engine/services.ts'
import { projected, shownUser, type Projection } from './scim-answers.ts'
import { requiredText, type ScimFilter } from './scim-filter.ts'
import { matches } from './scim-match.ts'
import { bytesOf, userWith, userWithId, usersOf, viewOf } from './scim-users.ts'
import type { ScimObject } from './scim-values.ts'

/** The most users of one answer, and how many there are where nothing is said. */
export const maxPage = 200
const defaultPage = 100
/** A page ends with the user that brings it here (RFC 7644 3.4.2.4 lets us answer fewer than were asked for). */
const maxPageBytes = 4 * 1024 * 1024

/** A page of users (RFC 7644 3.4.2). */
export interface ScimListQuery {
  readonly filter: ScimFilter | undefined
  /** From 1 on. */
  readonly startIndex: number
  /** How many were asked for; undefined where that was not said. */
  readonly count: number | undefined
  readonly projection: Projection
}

/** The users that a filter may let through: by an index where it names one, else all of the provider's. */
function candidates(snapshot: Snapshot, provider: Uid, filter: ScimFilter): readonly Row[] {
  const [userName, externalId, id] = ['username', 'externalid', 'id'].map((name) => requiredText(filter, name))
  const found = [
    ...(id === undefined ? [] : [userWithId(snapshot, provider, id)]),
    // The index does not know who has none.
    ...(externalId === undefined || externalId === '' ? [] : [userWith(snapshot, provider, { filter: 'external_id', value: externalId })]),
    ...(userName === undefined ? [] : [userWith(snapshot, provider, { filter: 'user_name', value: userName })]),
  ]
  if (found.length === 0) return usersOf(snapshot, provider, { skip: 0, limit: Infinity }).rows
  return found[0] === undefined ? [] : [found[0]]
}

/** Rows are of one commit and never change, so that others may write in between. */
async function filtered(rows: readonly Row[], isMatch: (row: Row) => boolean, signal: AbortSignal): Promise<Row[]> {
  const found: Row[] = []
  const slices = new Slices()
  for (const row of rows) {
    if (isMatch(row)) found.push(row)
    if (!slices.isOver) continue
    await slices.pause()
    signal.throwIfAborted()
  }
  return found
}

/** The first of the rows, as many as fit on a page; at least one. */
function fitting(rows: readonly Row[]): readonly Row[] {
  let bytes = 0
  const end = rows.findIndex((row) => {
    bytes += bytesOf(row)
    return bytes >= maxPageBytes
  })
  return end < 0 ? rows : rows.slice(0, end + 1)
}

/** The list's answer. Costs what a page does, and with a filter that names neither `userName`, `externalId` nor `id` what all users do, in slices of a few milliseconds. */
export async function listScimUsers(
  services: Services,
  { provider, endpoint, query }: { provider: Uid; endpoint: string; query: ScimListQuery },
  signal: AbortSignal,
): Promise<{ readonly totalResults: number; readonly startIndex: number; readonly itemsPerPage: number; readonly Resources: readonly ScimObject[] }> {
  const { snapshot } = services.replica
  const { filter, projection } = query
  const startIndex = Math.max(1, query.startIndex)
  const limit = Math.min(Math.max(0, query.count ?? defaultPage), maxPage)
  const skip = startIndex - 1
  const page = async (): Promise<{ rows: readonly Row[]; total: number }> => {
    if (filter === undefined) return usersOf(snapshot, provider, { skip, limit })
    const found = await filtered(candidates(snapshot, provider, filter), (row) => matches(shownUser(viewOf(row), endpoint), filter), signal)
    return { rows: found.slice(skip, skip + limit), total: found.length }
  }
  const { rows, total } = await page()
  const shown = fitting(rows).map((row) => projected(shownUser(viewOf(row), endpoint), projection))
  return { totalResults: total, startIndex, itemsPerPage: shown.length, Resources: shown }
}
