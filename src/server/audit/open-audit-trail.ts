import { join } from 'node:path'
import { Counter, Gauge, type Registry } from 'prom-client'
import { AuditSegments } from '../../audit/index.ts'
import { createResolverLookup } from '../../auth/resolver-lookup.ts'
import { createSafeFetch, type SafeFetch } from '../../auth/safe-fetch.ts'
import type { AuditReader } from '../../engine/audit-query.ts'
import { errorText } from '../../base/error-text.ts'
import type { Log } from '../../base/log.ts'
import type { Clock, Random } from '../../base/runtime.ts'
import { systemTimers, type Timers } from '../../base/timing.ts'
import type { AuditSinkConfig, Config } from '../../config/config.ts'
import type { ReloadedFiles } from '../../config/files/reloaded-files.ts'
import { SettingError } from '../../config/setting-error.ts'
import type { Upstream } from '../../registry/index.ts'
import type { Store } from '../../store/store.ts'
import { createAuditTrail, createLogSink, type ClosableTrail } from './audit-trail.ts'
import { FileSink } from './file-sink.ts'
import { createJsonLinesSender, createOtlpSender, type HttpReceiver } from './http-senders.ts'
import { KeptEvents } from './kept-events.ts'
import { RemoteSink, type SendEvents } from './remote-sink.ts'
import type { AuditSink, SinkObserver } from './sink.ts'
import { createSyslogSender } from './syslog.ts'

const setting = 'audit.sinks'
const bytesPerMegabyte = 1_000_000
/** Timeout for sending a batch, in milliseconds. */
const sendTimeoutMs = 30_000
/** Minimum time between two log lines about the same sink, in milliseconds. */
const logEveryMs = 60_000

/** Dependencies of the audit trail of a process. */
export interface OpenAuditTrailOptions {
  readonly config: Pick<Config, 'audit' | 'dataDir'>
  /** Name of a folder below `<dataDir>/audit` that only this process uses. */
  readonly owner: string
  readonly files: ReloadedFiles
  readonly log: Log
  /** Log for the sink `log`. */
  readonly auditLog: Log
  readonly metrics: Registry
  readonly clock: Clock
  readonly random: Random
  /** Default: the system's timers. */
  readonly timers?: Timers
  readonly isGroup: (uid: string) => boolean
  /** How long `close` waits for the delivery of waiting events, in milliseconds. */
  readonly closeMs: number
  /** Set to keep events for lists. */
  readonly keeps?: KeepOptions
}

/** How events are kept. */
export interface KeepOptions {
  readonly store: Store
  /** Undefined if none is configured. Then each replica lists its own events only. */
  readonly upstream: Upstream | undefined
  /** True if this process answers lists. */
  readonly isIndexed: boolean
}

/** The audit trail of a process. */
export interface OpenedTrail extends ClosableTrail {
  /** The events that are kept; undefined if none are. */
  readonly reader: AuditReader | undefined
  /** The segments of all replicas; undefined if there are none. */
  readonly segments: AuditSegments | undefined
}

/** Opens the configured sinks. Rejects with SettingError if a file or folder cannot be used. */
export async function openAuditTrail(options: OpenAuditTrailOptions): Promise<OpenedTrail> {
  const { config, clock, isGroup, metrics } = options
  const fetch = createSafeFetch({ timeoutMs: sendTimeoutMs, lookup: createResolverLookup() })
  const counters = createCounters(metrics)
  const sinks: AuditSink[] = []
  let kept: KeptEvents | undefined
  const segments = segmentsOf(options)
  try {
    for (const row of config.audit.sinks) sinks.push(await openSink(row, { ...options, fetch, counters }))
    kept = await openKept({ ...options, fetch, counters }, segments)
    if (kept !== undefined) sinks.push(kept)
  } catch (error) {
    await Promise.all(sinks.map((sink) => sink.close()))
    throw error
  }
  registerGauges(metrics, sinks, clock)
  const trail = createAuditTrail({
    sinks,
    clock,
    isGroup,
    anonymousPerMinute: config.audit.anonymousPerMinute,
    deniedPerMinute: config.audit.deniedPerMinute,
    suppressed: () => counters.suppressed.inc(),
  })
  return {
    reader: options.keeps?.isIndexed === true ? kept : undefined,
    segments,
    record: (line) => trail.record(line),
    async close() {
      await trail.close()
      await fetch.close()
    },
  }
}

interface Parts extends OpenAuditTrailOptions {
  readonly fetch: SafeFetch
  readonly counters: AuditCounters
}

async function openSink(row: AuditSinkConfig, parts: Parts): Promise<AuditSink> {
  const { kind, name = kind } = row
  const { timers = systemTimers, random, closeMs } = parts
  if (kind === 'log') return createLogSink(name, parts.auditLog)
  const observer = createObserver(name, parts)
  try {
    if (kind === 'file') {
      const { path = '', maxMegabytes = 100, maxFiles = 10 } = row
      return await FileSink.open({ name, path, maxBytes: maxMegabytes * bytesPerMegabyte, maxFiles, observer, timers })
    }
    const directory = join(parts.config.dataDir, 'audit', parts.owner, name)
    const maxBytes = (row.spoolMegabytes ?? 256) * bytesPerMegabyte
    return await RemoteSink.open({ name, directory, maxBytes, send: senderOf(row, parts), observer, random, timers, closeMs })
  } catch (error) {
    throw error instanceof SettingError ? error : new SettingError(setting, name, error)
  }
}

function limitsOf({ audit }: Pick<Config, 'audit'>): { readonly keepMs: number; readonly maxBytes: number } {
  return { keepMs: audit.keepDays * 24 * 3_600_000, maxBytes: audit.keepMegabytes * bytesPerMegabyte }
}

function segmentsOf({ config, keeps, clock, random }: OpenAuditTrailOptions): AuditSegments | undefined {
  if (keeps?.upstream === undefined) return undefined
  return new AuditSegments({ store: keeps.store, upstream: keeps.upstream, clock, random, ...limitsOf(config) })
}

/** Opens the events that are kept. No sink can have the name of their folder. A process keeps none if it can neither seal nor list them. */
async function openKept(parts: Parts, segments: AuditSegments | undefined): Promise<KeptEvents | undefined> {
  const { config, owner, clock, random, timers = systemTimers, closeMs, keeps } = parts
  if (keeps === undefined || (segments === undefined && !keeps.isIndexed)) return undefined
  const directory = join(config.dataDir, 'audit', owner, '_kept')
  const observer = createObserver('kept', parts)
  try {
    return await KeptEvents.open({ directory, ...limitsOf(config), segments, isIndexed: keeps.isIndexed, observer, clock, random, timers, closeMs })
  } catch (error) {
    throw new SettingError('dataDir', config.dataDir, error)
  }
}

function senderOf(row: AuditSinkConfig, parts: Parts): SendEvents {
  switch (row.kind) {
    case 'syslog':
      return syslogSender(row, parts)
    case 'otlp':
      return createOtlpSender(receiverOf(row, parts))
    default:
      return createJsonLinesSender(receiverOf(row, parts))
  }
}

function receiverOf({ url = '', tokenFile, caFile }: AuditSinkConfig, { fetch, files }: Parts): HttpReceiver {
  const ca = caFile === undefined ? undefined : files.read({ pem: { setting, path: caFile, kind: 'authorities' } })
  const token = tokenFile === undefined ? undefined : files.read({ text: { setting, path: tokenFile, kind: 'text' } })
  return {
    fetch,
    url,
    ...(ca === undefined ? {} : { ca: () => ca.current.pem.toString('utf8') }),
    ...(token === undefined ? {} : { token: () => token.current.text.toString('utf8').trim() }),
  }
}

function syslogSender({ address = '', caFile, certFile, keyFile }: AuditSinkConfig, { files }: Parts): SendEvents {
  const url = new URL(`https://${address}`)
  const ca = caFile === undefined ? undefined : files.read({ pem: { setting, path: caFile, kind: 'authorities' } })
  const client =
    certFile === undefined || keyFile === undefined
      ? undefined
      : files.read({ cert: { setting, path: certFile, kind: 'certificate' }, key: { setting, path: keyFile, kind: 'key' } })
  return createSyslogSender({
    host: url.hostname.replace(/^\[|\]$/g, ''),
    // The URL parser omits its scheme's default port, which is not the one of syslog. So the port is read from the text.
    port: Number(/:(\d+)$/.exec(address)?.[1] ?? 6514),
    lookup: createResolverLookup(),
    tls: () => ({
      ...(ca === undefined ? {} : { ca: ca.current.pem }),
      ...(client === undefined ? {} : { cert: client.current.cert, key: client.current.key }),
    }),
  })
}

interface AuditCounters {
  readonly events: Counter<'sink' | 'outcome'>
  readonly failures: Counter<'sink'>
  readonly suppressed: Counter
}

/** Registers `taproot_audit_events_total`, `taproot_audit_failures_total` and `taproot_audit_suppressed_total`. */
function createCounters(registry: Registry): AuditCounters {
  const registers = [registry]
  return {
    events: new Counter({
      name: 'taproot_audit_events_total',
      help: 'Audit events by sink and outcome: delivered, refused (by the receiver) or dropped (no room)',
      labelNames: ['sink', 'outcome'],
      registers,
    }),
    failures: new Counter({
      name: 'taproot_audit_failures_total',
      help: 'Failed attempts to deliver or to write audit events, by sink. They are repeated',
      labelNames: ['sink'],
      registers,
    }),
    suppressed: new Counter({ name: 'taproot_audit_suppressed_total', help: 'Denials without an audit event of their own', registers }),
  }
}

/** Registers `taproot_audit_waiting_bytes` and `taproot_audit_oldest_waiting_seconds`. */
function registerGauges(registry: Registry, sinks: readonly AuditSink[], clock: Clock): void {
  const shared = { labelNames: ['sink'] as const, registers: [registry] }
  const waiting: Gauge<'sink'> = new Gauge({
    name: 'taproot_audit_waiting_bytes',
    help: 'Size of the audit events that wait, by sink',
    ...shared,
    collect() {
      for (const { name, waitingBytes } of sinks) waiting.set({ sink: name }, waitingBytes)
    },
  })
  const oldest: Gauge<'sink'> = new Gauge({
    name: 'taproot_audit_oldest_waiting_seconds',
    help: 'Age of the oldest audit event that waits, by sink',
    ...shared,
    collect() {
      for (const { name, oldestMs } of sinks) oldest.set({ sink: name }, oldestMs === undefined ? 0 : Math.max(0, clock.now() - oldestMs) / 1000)
    },
  })
}

/** Returns an observer that counts outcomes. It logs failures and losses, at most once a minute each. */
function createObserver(sink: string, { counters, log, timers = systemTimers }: Parts): SinkObserver {
  const loggedAtMs = { failed: -Infinity, lost: -Infinity }
  let lost = 0
  const isDue = (what: keyof typeof loggedAtMs): boolean => {
    if (timers.now() - loggedAtMs[what] < logEveryMs) return false
    loggedAtMs[what] = timers.now()
    return true
  }
  for (const outcome of ['delivered', 'refused', 'dropped']) counters.events.inc({ sink, outcome }, 0)
  return {
    counted(outcome, count) {
      counters.events.inc({ sink, outcome }, count)
      if (outcome === 'delivered') return
      lost += count
      if (isDue('lost')) log.error('audit events were lost', { sink, outcome, lost })
    },
    failed(error) {
      counters.failures.inc({ sink })
      if (isDue('failed')) log.warn('audit events wait or are lost, because their sink or its files fail', { sink, error: errorText(error) })
    },
  }
}
