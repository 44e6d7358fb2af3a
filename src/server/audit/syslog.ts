import { isIP, type LookupFunction } from 'node:net'
import { hostname } from 'node:os'
import { connect, type ConnectionOptions } from 'node:tls'
import { once } from 'node:events'
import type { AuditEvent } from '../../base/audit-line.ts'
import { pause } from '../../base/timing.ts'
import type { SendEvents } from './remote-sink.ts'
import type { SpooledEvent } from './spool.ts'

/** Facility "log audit" (RFC 5424, 6.2.1). */
const facility = 13
/** Severities `informational` and `warning`. */
const severities = { done: 6, denied: 4, failed: 4 } as const satisfies Record<AuditEvent['outcome'], number>
/** How long a whole batch may take, in milliseconds. */
const timeoutMs = 30_000
/** Shortest time between the last byte and the end of our side, in milliseconds. */
const leastSettleMs = 50

/** A syslog server. */
export interface SyslogServer {
  readonly host: string
  readonly port: number
  readonly lookup: LookupFunction
  /** Authorities in place of the system's, and the client's certificate and key. They may change. */
  readonly tls: () => Pick<ConnectionOptions, 'ca' | 'cert' | 'key'>
}

/** Formats an event as RFC 5424 says: its header, no structured data, and the JSON of the event as the message. */
export function syslogMessage({ event, text }: SpooledEvent, host = hostname()): string {
  const priority = facility * 8 + severities[event.outcome]
  const name = host.replaceAll(/[^\x21-\x7e]/g, '').slice(0, 255) || '-'
  return `<${priority}>1 ${event.time} ${name} taproot - audit - ${text}`
}

/** Frames a message by its length in bytes (RFC 5425, 4.3). */
export function syslogFrame(message: string): string {
  return `${Buffer.byteLength(message)} ${message}`
}

/**
 * Sends each batch over a TLS connection of its own. Syslog has no acknowledgement. A batch counts as delivered if the server keeps the connection open while
 * the batch arrives, and closes its side after ours. Otherwise it is sent again.
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
      // A server that does not read answers with a reset, within one round trip. A handshake takes more than one.
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
