import type { Uid } from '../../base/uid.ts'
import type { CachedRecord } from '../../cache/records/cached-record.ts'
import { CooperativeTask } from '../../cache/cooperative-task.ts'
import type { RecordTables } from '../../cache/record-tables.ts'
import type { Services } from '../../engine/services.ts'
import { projected, shownUser, type Projection } from './scim-answers.ts'
import { requiredText, type ScimFilter, comparedAttribute, comparedForm, type Literal } from './scim-filter.ts'
import { enterpriseUrn, type ScimAttribute, type ScimTarget } from './scim-schema.ts'
import { bytesOf, userWith, userWithId, usersOf, viewOf } from './scim-users.ts'
import { type ScimObject, isObject, type ScimValue } from './scim-values.ts'

type ScimCompare = Extract<ScimFilter, { kind: 'compare' }>

const texts: Readonly<Record<Exclude<ScimCompare['op'], 'ne'>, (one: string, other: string) => boolean>> = {
  eq: (one, other) => one === other,
  co: (one, other) => one.includes(other),
  sw: (one, other) => one.startsWith(other),
  ew: (one, other) => one.endsWith(other),
  gt: (one, other) => one > other,
  ge: (one, other) => one >= other,
  lt: (one, other) => one < other,
  le: (one, other) => one <= other,
}

/** Returns a string in the form in which it is compared with values of the attribute. */
type CompareForm = (attribute: ScimAttribute, text: string) => string

/** Returns a CompareForm that converts each string once, even if several parts of a filter use it. */
function createForm(): CompareForm {
  const known = new Map<string, string>()
  return (attribute, text) => {
    if (attribute.caseExact || attribute.type === 'dateTime') return comparedForm(attribute, text)
    const found = known.get(text) ?? comparedForm(attribute, text)
    known.set(text, found)
    return found
  }
}

function holds(value: ScimValue, op: Exclude<ScimCompare['op'], 'ne'>, by: { attribute: ScimAttribute; literal: Literal; form: CompareForm }): boolean {
  const { attribute, literal, form } = by
  if (typeof value === 'boolean') return value === literal
  if (typeof value !== 'string' || typeof literal !== 'string') return false
  return texts[op](form(attribute, value), literal)
}

function asList(value: ScimValue | undefined): readonly ScimValue[] {
  if (value === undefined) return []
  return Array.isArray(value) ? (value as readonly ScimValue[]) : [value]
}

/** Returns the values of the target in the object. */
function valuesAt(object: ScimObject, { attribute, sub, enterprise }: ScimTarget): readonly ScimValue[] {
  const extension = object[enterpriseUrn]
  const holder = enterprise ? (isObject(extension) ? extension : {}) : object
  const values = attribute === undefined ? [] : asList(holder[attribute.name])
  return sub === undefined ? values : parts(values, sub.name)
}

function parts(values: readonly ScimValue[], name: string): readonly ScimValue[] {
  return values.flatMap((value) => (isObject(value) ? asList(value[name]) : []))
}

function compares(object: ScimObject, { target, op, literal }: ScimCompare, form: CompareForm): boolean {
  const attribute = comparedAttribute(target)
  if (attribute === undefined) return false
  const found = valuesAt(object, target)
  const values = (target.sub ?? target.attribute)?.subAttributes === undefined ? found : parts(found, attribute.name)
  if (literal === null) return (values.length === 0) === (op === 'eq')
  if (op === 'ne') return !values.some((value) => holds(value, 'eq', { attribute, literal, form }))
  return values.some((value) => holds(value, op, { attribute, literal, form }))
}

function satisfies(object: ScimObject, filter: ScimFilter, form: CompareForm): boolean {
  switch (filter.kind) {
    case 'and':
      return filter.parts.every((part) => satisfies(object, part, form))
    case 'or':
      return filter.parts.some((part) => satisfies(object, part, form))
    case 'not':
      return !satisfies(object, filter.part, form)
    case 'some':
      return valuesAt(object, filter.target).some((value) => isObject(value) && satisfies(value, filter.part, form))
    case 'present':
      return valuesAt(object, filter.target).length > 0
    case 'compare':
      return compares(object, filter, form)
  }
}

/** Returns true if the user matches the filter (RFC 7644 3.4.2.2). A missing value is equal to no literal, and different from every literal. */
function matches(user: ScimObject, filter: ScimFilter): boolean {
  return satisfies(user, filter, createForm())
}

/** Default and maximum number of users on a page. */
export const maxPage = 200
const defaultPage = 100
/** Size in bytes at which a page ends. RFC 7644 3.4.2.4 allows fewer results than requested. */
const maxPageBytes = 4 * 1024 * 1024

/** A requested page of users (RFC 7644 3.4.2). */
export interface ScimListQuery {
  readonly filter: ScimFilter | undefined
  /** Position of the first user, from 1. */
  readonly startIndex: number
  /** Requested number of users; undefined if absent. */
  readonly count: number | undefined
  readonly projection: Projection
}

/** Returns the users that may match a filter: from an index if the filter requires a value of it, otherwise all users of the provider. */
function candidates(tables: RecordTables, provider: Uid, filter: ScimFilter): readonly CachedRecord[] {
  const [userName, externalId, id] = ['username', 'externalid', 'id'].map((name) => requiredText(filter, name))
  const found = [
    ...(id === undefined ? [] : [userWithId(tables, provider, id)]),
    // The index does not contain users without a value.
    ...(externalId === undefined || externalId === '' ? [] : [userWith(tables, provider, { filter: 'external_id', value: externalId })]),
    ...(userName === undefined ? [] : [userWith(tables, provider, { filter: 'user_name', value: userName })]),
  ]
  if (found.length === 0) return usersOf(tables, provider, { skip: 0, limit: Infinity }).records
  return found[0] === undefined ? [] : [found[0]]
}

/** Returns the matching records. Lets other tasks run in between, since the records are of one commit and do not change. */
async function filtered(records: readonly CachedRecord[], isMatch: (record: CachedRecord) => boolean, signal: AbortSignal): Promise<CachedRecord[]> {
  const found: CachedRecord[] = []
  const task = new CooperativeTask()
  for (const record of records) {
    if (isMatch(record)) found.push(record)
    if (!task.shouldYield) continue
    await task.pause()
    signal.throwIfAborted()
  }
  return found
}

/** Returns the first records that fit on a page, at least one. */
function fitting(records: readonly CachedRecord[]): readonly CachedRecord[] {
  let bytes = 0
  const end = records.findIndex((record) => {
    bytes += bytesOf(record)
    return bytes >= maxPageBytes
  })
  return end < 0 ? records : records.slice(0, end + 1)
}

/**
 * Returns a page of users. A filter without `userName`, `externalId` and `id` reads all users, in slices of a few milliseconds. Other
 * requests cost only as much as their page.
 */
export async function listScimUsers(
  services: Services,
  { provider, endpoint, query }: { provider: Uid; endpoint: string; query: ScimListQuery },
  signal: AbortSignal,
): Promise<{ readonly totalResults: number; readonly startIndex: number; readonly itemsPerPage: number; readonly Resources: readonly ScimObject[] }> {
  const { tables } = services.cache
  const { filter, projection } = query
  const startIndex = Math.max(1, query.startIndex)
  const limit = Math.min(Math.max(0, query.count ?? defaultPage), maxPage)
  const skip = startIndex - 1
  const page = async (): Promise<{ records: readonly CachedRecord[]; total: number }> => {
    if (filter === undefined) return usersOf(tables, provider, { skip, limit })
    const found = await filtered(candidates(tables, provider, filter), (record) => matches(shownUser(viewOf(record), endpoint), filter), signal)
    return { records: found.slice(skip, skip + limit), total: found.length }
  }
  const { records, total } = await page()
  const shown = fitting(records).map((record) => projected(shownUser(viewOf(record), endpoint), projection))
  return { totalResults: total, startIndex, itemsPerPage: shown.length, Resources: shown }
}
