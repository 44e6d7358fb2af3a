import { decide } from '../../authz/effective-permissions.ts'
import { setOf } from '../../base/capability.ts'
import { DomainError } from '../../base/errors.ts'
import { isUid, type Uid } from '../../base/uid.ts'
import { firstTimeMs, isBefore, lastTimeMs, millisecondFrom, millisecondUpTo } from '../../base/schema/whole-milliseconds.ts'
import type { RecordTables } from '../../cache/record-tables.ts'
import { assertNotSuspended } from '../../engine/authorize.ts'
import { notFound } from '../../engine/errors.ts'
import { callerOf, type Context, type Services } from '../../engine/services.ts'
import type { ImageRef, ListResolvedVulnsReportsRequest } from '../../gen/taproot/advisory/v2/advisory_pb.ts'
import { findRepository } from '../../registry/index.ts'

/** The length of a day in milliseconds. */
export const dayMs = 24 * 3_600_000
/** The bounds of one answer. */
const maxDays = 366
const maxImages = 100
/** The most bytes of an answer. Clients of gRPC accept 4 MiB. */
export const maxReportBytes = 3.5 * 1024 * 1024
/** What to do about an answer that is larger. */
export const reportTooLarge = `the answer is larger than ${maxReportBytes / 1024 / 1024} MiB: name fewer images, or choose a shorter period`
const defaultTag = 'latest'

/** An image of the request. */
export interface NamedImage {
  readonly repo: Uid
  readonly tag: string
}

/** Whole days in UTC, as milliseconds since 1970. */
export interface DayRange {
  readonly firstMs: number
  readonly days: number
}

/** A request for reports about images in a period. */
type ReportRequest = Pick<ListResolvedVulnsReportsRequest, 'imageRefs' | 'startTime' | 'endTime'>

/** Returns the days of a request. Throws code 3. */
export function daysOf({ imageRefs, startTime, endTime }: ReportRequest): DayRange {
  const missing = [
    ...(imageRefs.length === 0 ? ['image_refs'] : []),
    ...(startTime === undefined ? ['start_time'] : []),
    ...(endTime === undefined ? ['end_time'] : []),
    ...imageRefs.flatMap(({ repo }, at) => (repo === '' ? [`image_refs[${at}].repo`] : [])),
  ]
  if (startTime === undefined || endTime === undefined || missing.length > 0)
    throw DomainError.invalidFields(missing.map((field) => ({ field, description: 'is required' })))
  for (const [field, time] of Object.entries({ start_time: startTime, end_time: endTime }))
    if (millisecondUpTo(time) < firstTimeMs || millisecondUpTo(time) > lastTimeMs) throw DomainError.invalid(field, 'must be in the years 1 to 9999')
  if (isBefore(endTime, startTime)) throw DomainError.invalid('end_time', 'must not be before start_time')
  const [first, last] = [startTime, endTime].map((time) => Math.floor(millisecondFrom(time) / dayMs))
  const days = (last ?? 0) - (first ?? 0) + 1
  if (days > maxDays) throw DomainError.invalid('end_time', `at most ${maxDays} days after start_time`)
  return { firstMs: (first ?? 0) * dayMs, days }
}

/** Returns the repo with this uid, or at this path, as of `tables`. Throws code 5 or 7 if the caller may not see what its images contain. */
export function visibleRepo(tables: RecordTables, context: Context, name: string): Uid {
  const { method } = context
  const permissions = callerOf(context).permissions()
  const found = isUid(name) ? name : findRepository(tables, name)
  const uid = typeof found === 'object' ? (found.kind === 'repo' ? found.uid : undefined) : found
  const decision = uid === undefined ? undefined : decide(permissions, uid, setOf(method.capabilities))
  if (uid === undefined || decision?.kind === 'hidden') throw notFound('Repo', name, { concealed: true })
  if (decision?.kind === 'denied') throw DomainError.denied(decision.missing, uid)
  assertNotSuspended(tables, permissions, uid)
  if (tables.get('Repo', uid) === undefined) throw notFound('Repo', name)
  return uid
}

/** Returns the images of a request, each once. Throws code 3, 5 or 7. */
export function imagesOf(services: Services, context: Context, refs: readonly ImageRef[]): NamedImage[] {
  const { tables } = services.cache
  const images = new Map<string, NamedImage>()
  for (const { repo: name, tags } of refs) {
    const repo = visibleRepo(tables, context, name)
    for (const tag of tags.length === 0 ? [defaultTag] : tags) images.set(`${repo}:${tag}`, { repo, tag })
  }
  if (images.size > maxImages) throw DomainError.invalid('image_refs', `at most ${maxImages} tags together`)
  return [...images.values()]
}
