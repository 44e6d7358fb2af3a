import { Alarm } from '../../base/timing.ts'
import { methods, resources } from '../../base/schema/schema.ts'
import type { ClientContext } from '../client/client-command.ts'
import { ClientError, textOf, type Json } from '../client/client-error.ts'
import { columnsOf } from '../client/columns.ts'
import { jsonLine } from '../client/output.ts'
import { followEvents, readEventPage, Retries } from '../client/event-stream.ts'
import type { ClientKind } from '../client/kinds.ts'
import { createChangePrinter, type WatchedChange, type RecordFormat } from '../client/records.ts'
import { UsageError } from '../exit-codes.ts'

/** Milliseconds to wait after an event for further ones, so that many changes cost one list. */
const settleMs = 500
/** Milliseconds after which the list is read without an event. What a caller may see can change without an event of the records. */
const readEveryMs = 60_000

/** The list to watch. */
export interface WatchRequest {
  readonly kind: ClientKind
  /** The event types of `watchedTypes`. */
  readonly types: readonly string[]
  /** Reads the whole list. */
  readonly list: () => AsyncIterable<readonly Json[]>
  /** Uid of the group whose events are followed; undefined for all that the caller may see. */
  readonly group: string | undefined
  readonly format: RecordFormat
  /** Stops the watch. If absent, it never stops. */
  readonly signal?: AbortSignal
}

/**
 * Prints the records of a list, and then each change, until `signal` aborts. An event has the list read again, and what differs is printed: so no change is
 * missed, whatever its reason. Rejects with UsageError, or with ClientError if the API refuses.
 */
export async function watchRecords(context: ClientContext, request: WatchRequest): Promise<void> {
  const { note, client, output, clock, source } = context
  const { kind, types, list, group, format } = request
  const print = createChangePrinter(format, { output, kind, clock })
  const query = { types, ...(group === undefined ? {} : { 'uidp.descendants_of': group }) }
  // Before the list is read: a change during the reading then has an event.
  const { cursor } = await readEventPage(client, { ...query, cursor: 'now', page_size: '1' })
  let known = await recordsOf(list)
  await print([...known.values()].map((object) => ({ change: 'ADDED', object })))
  if (known.size === 0) note(`no ${kind.words} yet that you may see: waiting for changes`)
  const alarm = new Alarm()
  const stop = new AbortController()
  const signal = request.signal === undefined ? stop.signal : AbortSignal.any([request.signal, stop.signal])
  const following = follow(context, { query, cursor, signal, ring: alarm.ring }).finally(() => stop.abort())
  // The loop ends after a failure of the stream, which is then thrown.
  following.catch(() => undefined)
  const retries = new Retries({ note, source }, 'the list could not be read: trying again')
  while (!signal.aborted) {
    await alarm.within(readEveryMs, signal)
    await new Alarm().within(settleMs, signal)
    if (signal.aborted) break
    alarm.arm()
    try {
      const found = await recordsOf(list)
      await print(changesBetween(known, found))
      known = found
      retries.succeeded()
    } catch (error) {
      await retries.wait(error, signal).catch((final: unknown) => {
        stop.abort()
        throw final
      })
      alarm.ring()
    }
  }
  await following
}

/** Rings at each event. If events have expired, starts again at the end: the list is read anyway. */
async function follow(
  context: ClientContext,
  { query, cursor, signal, ring }: { query: Readonly<Record<string, string | readonly string[]>>; cursor: string; signal: AbortSignal; ring: () => void },
): Promise<void> {
  const print = (): Promise<void> => Promise.resolve(ring())
  for (let from = cursor; !signal.aborted; from = 'now') {
    try {
      await followEvents(context, { query, print, from, signal })
    } catch (error) {
      if (!(error instanceof ClientError && error.code === 11)) throw error
      ring()
    }
  }
}

/** Returns the types of the events after which records of a kind, or their paths, can be different. Throws UsageError for kinds without events. */
export function watchedTypes({ kind, words, listVariable }: ClientKind): readonly string[] {
  const own = listVariable === undefined ? typesOfKind(kind) : []
  if (own.length === 0) throw new UsageError(`${words} cannot be watched: they have no events`)
  const above = [...kindsAbove(kind), ...kindsShown(kind)].flatMap(typesOfKind)
  return [...new Set([...own, ...above, ...(kind === 'Tag' || kind === 'Repo' ? ['dev.taproot.registry.push.'] : [])])]
}

/** Returns the start of the event types of a kind, such as `dev.taproot.api.iam.group.`. */
function typesOfKind(kind: string): readonly string[] {
  return methods.flatMap((method) =>
    method.kind === kind && method.event?.internal === false ? [`dev.taproot.api.${method.event.type.replace(/[^.]*(?:\.batch)?\.v\d+$/, '')}`] : [],
  )
}

/** Returns the kinds whose names the table of a kind shows: those of the identity and the role of a role binding. */
function kindsShown(kind: string): readonly string[] {
  const members = columnsOf(kind).flatMap(({ at }) => at.filter((path) => path.includes('.')).map((path) => path.slice(0, path.indexOf('.'))))
  return [...resources.keys()].filter((name) => members.includes(name.toLowerCase()))
}

/** Returns the kinds that records of this kind can lie below, at any depth. */
function kindsAbove(kind: string, seen = new Set<string>()): ReadonlySet<string> {
  for (const parent of resources.get(kind)?.parents ?? []) if (!seen.has(parent)) kindsAbove(parent, seen.add(parent))
  return seen
}

async function recordsOf(list: () => AsyncIterable<readonly Json[]>): Promise<ReadonlyMap<string, Json>> {
  const found = new Map<string, Json>()
  for await (const page of list()) for (const record of page) found.set(textOf(record['uid']), record)
  return found
}

function changesBetween(before: ReadonlyMap<string, Json>, after: ReadonlyMap<string, Json>): readonly WatchedChange[] {
  const changes: WatchedChange[] = []
  for (const [uid, object] of after) {
    const old = before.get(uid)
    if (old === undefined) changes.push({ change: 'ADDED', object })
    else if (jsonLine(old) !== jsonLine(object)) changes.push({ change: 'MODIFIED', object })
  }
  for (const [uid, object] of before) if (!after.has(uid)) changes.push({ change: 'DELETED', object })
  return changes
}
