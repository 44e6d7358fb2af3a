import type { JsonObject } from '@bufbuild/protobuf'

/** The first page of a list, and its parameters. */
export interface ListPage {
  readonly records: readonly JsonObject[]
  /** The number of records on all pages. */
  readonly total: number
  readonly hasNext: boolean
  readonly pageSize: number
  /** One field with its direction; the uid if absent (the default of every kind in the workload). */
  readonly orderBy?: string | undefined
}

/** Returns what is wrong with a single page, for people; undefined if nothing is. */
export function pageError({ records, total, hasNext, pageSize, orderBy = 'uid asc' }: ListPage): string | undefined {
  const shown = `shows ${records.length} of ${total} records`
  if (records.length > pageSize) return `${shown}, more than the ${pageSize} that were asked for`
  if (hasNext && records.length < pageSize) return `${shown} and says that more follow, though the page has room for ${pageSize}`
  if (hasNext ? total <= records.length : total !== records.length) return `${shown} and says that ${hasNext ? 'more' : 'none'} follow`
  const at = records.findIndex((record, index) => index > 0 && !isBefore(records[index - 1] ?? {}, record, orderBy))
  return at < 0 ? undefined : `shows ${String(records[at]?.['uid'])} out of the order "${orderBy}", or twice`
}

/** Returns whether `one` comes first. Ties are in the order of uids, so that there is only one order. */
function isBefore(one: JsonObject, other: JsonObject, orderBy: string): boolean {
  const [field = '', direction] = orderBy.split(' ')
  const [first, second] = direction === 'desc' ? [other, one] : [one, other]
  const [smaller, greater] = [String(first[field]), String(second[field])]
  return smaller === greater ? String(one['uid']) < String(other['uid']) : smaller < greater
}
