import { isIP, type LookupFunction } from 'node:net'
import { hostname } from 'node:os'
import { connect, type ConnectionOptions } from 'node:tls'
import { once } from 'node:events'
import type { AuditEvent } from '../../base/audit-line.ts'
import { pause } from '../../base/timing.ts'
import type { SendEvents } from './remote-sink.ts'
import type { SpooledEvent } from './spool.ts'

/** The facility "log audit" (RFC 5424, 6.2.1). */
const facility = 13
/** The severities `informational` and `warning`, by outcome. */
const severities = { done: 6, denied: 4, failed: 4 } as const satisfies Record<AuditEvent['outcome'], number>
/** Timeout for sending a whole batch, in milliseconds. */
const timeoutMs = 30_000
/** Minimum time between sending the last byte and closing this side of the connection, in milliseconds. */
const leastSettleMs = 50

/** A syslog server. */
export interface SyslogServer {
  readonly host: string
  readonly port: number
  readonly lookup: LookupFunction
  /** Returns CA certificates to trust in place of the system's, and the client's certificate and key. They may change. */
  readonly tls: () => Pick<ConnectionOptions, 'ca' | 'cert' | 'key'>
}

/** Formats an event by RFC 5424: header, no structured data, and the event's JSON as the message. */
export function syslogMessage({ event, text }: SpooledEvent, host = hostname()): string {
  const priority = facility * 8 + severities[event.outcome]
  const name = host.replaceAll(/[^\x21-\x7e]/g, '').slice(0, 255) || '-'
  return `<${priority}>1 ${event.time} ${name} taproot - audit - ${text}`
}

/** Prefixes a message with its length in bytes (RFC 5425, 4.3). */
export function syslogFrame(message: string): string {
  return `${Buffer.byteLength(message)} ${message}`
}

/**
 * Returns a function that sends each batch over a separate TLS connection. Syslog has no acknowledgement. A batch counts as delivered if
 * the server keeps the connection open while it arrives, and closes its side only after this side. Otherwise the batch is sent again.
 */
export function createSyslogSender({ host, port, lookup, tls }: SyslogServer): SendEvents {
  return async (events, signal) => {
    const startedMs = performance.now()
    const socket = connect({ host, port, ...(isIP(host) === 0 ? { servername: host } : {}), lookup, minVersion: 'TLSv1.2', ...tls() })
    const over = AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)])
    const abort = (): void => void socket.destroy(new Error('the syslog server does not answer in time'))
    over.addEventListener('abort', abort, { once: true })
    const ended = once(socket, 'end')
    const closed = once(socket, 'close').then(() => Promise.reject(new Error('the connection to the syslog server was closed')))
    const left = ended.then(() => Promise.reject(new Error('the syslog server closed the connection before it had read everything')))
    for (const outcome of [ended, closed, left]) outcome.catch(() => undefined)
    try {
      socket.resume()
      await Promise.race([once(socket, 'secureConnect'), closed])
      const handshakeMs = performance.now() - startedMs
      socket.write(events.map((event) => syslogFrame(syslogMessage(event))).join(''))
      // A server that does not read responds with a reset within one round trip. A handshake takes longer than that.
      await Promise.race([pause(Math.max(leastSettleMs, handshakeMs), over), left, closed])
      socket.end()
      await Promise.race([ended, closed])
      return 0
    } finally {
      over.removeEventListener('abort', abort)
      socket.on('error', () => undefined).destroy()
    }
  }
}
