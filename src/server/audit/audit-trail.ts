import { randomUUID } from 'node:crypto'
import type { AuditEvent, AuditLine, AuditTrail } from '../../base/audit-line.ts'
import type { Log } from '../../base/log.ts'
import type { Clock } from '../../base/runtime.ts'
import { RecentMap } from '../../base/recent-map.ts'
import { TokenBucket } from '../../base/token-bucket.ts'
import { isUid, lineage, rootOf } from '../../base/uid.ts'
import type { AuditSink } from './sink.ts'

/** Maximum length of a text in an audit event, in characters. Clients choose some of the texts. */
const maxTextLength = 1024
/** The code of a response for a record that is missing, or that the caller may not see. */
const notFoundCode = 5
/** How long events with that code are delayed before they are written, in milliseconds. */
const heldMs = 10

/** Dependencies and limits of an audit trail. */
export interface AuditTrailOptions {
  readonly sinks: readonly AuditSink[]
  readonly clock: Clock
  /** Returns true if there is a group with this uid. */
  readonly isGroup: (uid: string) => boolean
  /** Maximum number of events per minute for denials without a known caller. */
  readonly anonymousPerMinute: number
  /** Maximum number of events per minute for denials of the identities of one organisation. A person counts as an organisation. */
  readonly deniedPerMinute: number
  /** Called for each denial that gets no event because of these limits. */
  readonly suppressed: () => void
}

/** An audit trail that can be closed. */
export interface ClosableTrail extends AuditTrail {
  /** Closes the sinks. Further events are ignored. */
  close(): Promise<void>
}

/** Maximum number of organisations whose denials are counted. */
const maxCounted = 10_000

/** The denials of one organisation, or of callers without an identity. */
interface Denials {
  readonly bucket: TokenBucket
  /** Number of denials since the last event that have none. */
  withoutEvent: number
}

/** Creates an audit trail. It adds id, time and group to each event, and passes the event to all sinks. */
export function createAuditTrail({ sinks, clock, isGroup, anonymousPerMinute, deniedPerMinute, suppressed }: AuditTrailOptions): ClosableTrail {
  const denialsOf = (perMinute: number): Denials => ({
    bucket: new TokenBucket({ perSecond: perMinute / 60, burst: perMinute }, () => clock.now()),
    withoutEvent: 0,
  })
  const anonymous = denialsOf(anonymousPerMinute)
  const byRoot = new RecentMap<string, Denials>(maxCounted)
  /** Returns false if the denial gets no event. */
  const admit = ({ identity }: AuditLine): boolean => {
    const root = identity === undefined || !isUid(identity) ? undefined : rootOf(identity)
    const denials = root === undefined ? anonymous : (byRoot.get(root) ?? denialsOf(deniedPerMinute))
    if (root !== undefined) byRoot.set(root, denials)
    if (denials.bucket.waitMs(1) > 0) {
      denials.withoutEvent += 1
      suppressed()
      return false
    }
    denials.bucket.spend(1)
    return true
  }
  /** Returns the number of denials without an event that the next event states. Only events of an organisation state those of the organisation. */
  const takeWithoutEvent = ({ identity }: AuditLine): number => {
    const own = identity === undefined || !isUid(identity) ? undefined : byRoot.get(rootOf(identity))
    const count = anonymous.withoutEvent + (own?.withoutEvent ?? 0)
    anonymous.withoutEvent = 0
    if (own !== undefined) own.withoutEvent = 0
    return count
  }
  // Access to a hidden record causes an event; access to a missing one may cause none. The delay keeps the time of the response from
  // revealing which it was.
  const held: (() => void)[] = []
  let heldTimer: NodeJS.Timeout | undefined
  const release = (): void => {
    clearTimeout(heldTimer)
    heldTimer = undefined
    for (const writeHeld of held.splice(0)) writeHeld()
  }
  const hold = (line: AuditLine): void => {
    const nowMs = clock.now()
    held.push(() => write(line, nowMs))
    heldTimer ??= setTimeout(release, heldMs)
  }
  const write = (line: AuditLine, nowMs: number): void => {
    const event = eventOf(line, { time: new Date(nowMs).toISOString(), suppressed: takeWithoutEvent(line), isGroup })
    let text: string | undefined
    const json = (): string => (text ??= JSON.stringify(event))
    for (const sink of sinks) sink.write(event, json)
  }
  return {
    record(line) {
      if (line.outcome === 'denied' && !admit(line)) return
      if (line.code === notFoundCode) hold(line)
      else write(line, clock.now())
    },
    async close() {
      release()
      const last = { outcome: 'denied', method: 'audit/suppressed', transport: 'http' } as const
      if (anonymous.withoutEvent > 0) write(last, clock.now())
      for (const [root, { withoutEvent }] of byRoot.entries()) if (withoutEvent > 0) write({ ...last, identity: root, subject: root }, clock.now())
      await Promise.all(sinks.map((sink) => sink.close()))
    },
  }
}

/** What an event needs in addition to its line. */
interface EventFacts extends Pick<AuditTrailOptions, 'isGroup'> {
  readonly time: string
  readonly suppressed: number
}

/**
 * Creates an event from a line: adds id, time, nearest group and organisation, and shortens texts. Persons belong to no group. It builds
 * one object in one pass: a denial must not take much longer than the response for a missing record, which causes no event.
 */
function eventOf(line: AuditLine, { time, suppressed, isGroup }: EventFacts): AuditEvent {
  const fields: Record<string, unknown> = { id: randomUUID(), time }
  let key: keyof AuditLine
  for (key in line) {
    const value = line[key]
    if (value !== undefined) fields[key] = typeof value === 'string' && value.length > maxTextLength ? value.slice(0, maxTextLength) : value
  }
  const { subject } = line
  if (subject !== undefined && isUid(subject)) {
    const group = lineage(subject).find(isGroup)
    if (group !== undefined) fields['group'] = group
    fields['root'] = rootOf(subject)
  }
  if (suppressed > 0) fields['suppressed'] = suppressed
  return fields as unknown as AuditEvent // a cast: these are the fields of a line, and those added above
}

/** Creates a sink that writes events to the log, at every log level. */
export function createLogSink(name: string, log: Log): AuditSink {
  return {
    name,
    write({ time: _time, ...fields }) {
      log.info('audit', { audit: true, ...fields })
    },
    waitingBytes: 0,
    oldestMs: undefined,
    close: () => Promise.resolve(),
  }
}
