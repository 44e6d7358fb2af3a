import { randomUUID } from 'node:crypto'
import type { AuditEvent, AuditLine, AuditTrail } from '../../base/audit-line.ts'
import type { Log } from '../../base/log.ts'
import type { Clock } from '../../base/runtime.ts'
import { TokenBucket } from '../../base/token-bucket.ts'
import { isUid, lineage, rootOf } from '../../base/uid.ts'
import type { AuditSink } from './sink.ts'

/** The longest text of a field. Clients choose some of them. */
const maxTextLength = 1024

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
  const write = (line: AuditLine): void => {
    const counted = withoutEvent === 0 ? {} : { suppressed: withoutEvent }
    withoutEvent = 0
    const time = new Date(clock.now()).toISOString()
    const event = shortened({ id: randomUUID(), time, ...line, ...placeOf(line.subject, isGroup), ...counted })
    const text = JSON.stringify(event)
    for (const sink of sinks) sink.write(event, text)
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
      write(line)
    },
    async close() {
      if (withoutEvent > 0) write({ outcome: 'denied', method: 'audit/suppressed', transport: 'http' })
      await Promise.all(sinks.map((sink) => sink.close()))
    },
  }
}

/** Returns the nearest group and the organisation of a resource. A person is in no group. */
function placeOf(subject: string | undefined, isGroup: (uid: string) => boolean): Pick<AuditEvent, 'group' | 'root'> {
  if (subject === undefined || !isUid(subject)) return {}
  const group = lineage(subject).find(isGroup)
  return { ...(group === undefined ? {} : { group }), root: rootOf(subject) }
}

function shortened(event: AuditEvent): AuditEvent {
  const fields = Object.entries(event).filter(([, value]) => value !== undefined)
  return Object.fromEntries(
    fields.map(([key, value]) => [key, typeof value === 'string' ? value.slice(0, maxTextLength) : (value as unknown)]),
  ) as unknown as AuditEvent // the same keys
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
