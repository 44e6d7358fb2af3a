import { randomUUID } from 'node:crypto'
import type { AuditEvent, AuditLine, AuditTrail } from '../../base/audit-line.ts'
import type { Log } from '../../base/log.ts'
import type { Clock } from '../../base/runtime.ts'
import { TokenBucket } from '../../base/token-bucket.ts'
import { isUid, lineage, rootOf } from '../../base/uid.ts'
import type { AuditSink } from './sink.ts'

/** The longest text of a field. Clients choose some of them. */
const maxTextLength = 1024
/** The code of an answer for a record that is missing, or that the caller may not see. */
const notFoundCode = 5
/** How long events of that code wait, in milliseconds. */
const heldMs = 10

/** The parts of a trail. */
export interface AuditTrailOptions {
  readonly sinks: readonly AuditSink[]
  readonly clock: Clock
  /** Whether a group of this uid exists. */
  readonly isGroup: (uid: string) => boolean
  /** Denials without a known caller that get an event, per minute. */
  readonly anonymousPerMinute: number
  /** Called for each denial without an event. */
  readonly suppressed: () => void
}

/** A trail that ends. */
export interface ClosableTrail extends AuditTrail {
  /** Ends the sinks. Takes no further events. */
  close(): Promise<void>
}

/** Creates the trail that gives each event its id, time and place, and passes it to all sinks. */
export function createAuditTrail({ sinks, clock, isGroup, anonymousPerMinute, suppressed }: AuditTrailOptions): ClosableTrail {
  const anonymous = new TokenBucket({ perSecond: anonymousPerMinute / 60, burst: anonymousPerMinute }, () => clock.now())
  let withoutEvent = 0
  // A concealed record leaves an event, and a missing one may leave none. The event is made apart from the answer, so that the time of the answer reveals nothing.
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
    const event = eventOf(line, { time: new Date(nowMs).toISOString(), suppressed: withoutEvent, isGroup })
    withoutEvent = 0
    let text: string | undefined
    const json = (): string => (text ??= JSON.stringify(event))
    for (const sink of sinks) sink.write(event, json)
  }
  return {
    record(line) {
      if (line.outcome === 'denied' && line.identity === undefined) {
        if (anonymous.waitMs(1) > 0) {
          withoutEvent += 1
          suppressed()
          return
        }
        anonymous.spend(1)
      }
      if (line.code === notFoundCode) hold(line)
      else write(line, clock.now())
    },
    async close() {
      release()
      if (withoutEvent > 0) write({ outcome: 'denied', method: 'audit/suppressed', transport: 'http' }, clock.now())
      await Promise.all(sinks.map((sink) => sink.close()))
    },
  }
}

/** What an event has besides its line. */
interface EventFacts extends Pick<AuditTrailOptions, 'isGroup'> {
  readonly time: string
  readonly suppressed: number
}

/**
 * Adds id, time, nearest group and organisation to a line, and shortens its texts. A person is in no group. It makes one object in one pass: a denial must not take
 * much longer than the answer for a missing record, which leaves no event.
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
  return fields as unknown as AuditEvent // the fields of a line, and those above
}

/** Writes events to the log, at any level. */
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
