import { appendFile, mkdtemp, readdir, readFile, rm, stat, truncate } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import type { AuditEvent } from '../../../src/base/audit-line.ts'
import { createSafeFetch, type SafeFetch } from '../../../src/auth/safe-fetch.ts'
import { createResolverLookup } from '../../../src/auth/resolver-lookup.ts'
import { FileSink } from '../../../src/server/audit/file-sink.ts'
import { createJsonLinesSender, createOtlpSender } from '../../../src/server/audit/http-senders.ts'
import { RemoteSink, type SendEvents } from '../../../src/server/audit/remote-sink.ts'
import type { AuditSink, SinkObserver } from '../../../src/server/audit/sink.ts'
import { Spool } from '../../../src/server/audit/spool.ts'
import { createSyslogSender } from '../../../src/server/audit/syslog.ts'
import { systemRandom } from '../../../src/server/runtime.ts'
import { systemTimers, type Timers } from '../../../src/base/timing.ts'
import { FakeTimers } from '../../support/fake-timers.ts'
import { freePorts } from '../../support/parts/free-port.ts'
import { receiverTls, startJsonLines, startOtlp, startSyslog, type Receiver } from './receivers.ts'

let directory: string
let port: number
let fetch: SafeFetch
let closing: (() => Promise<unknown>)[]

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'taproot-audit-'))
  ;[port = 0] = await freePorts(1)
  fetch = createSafeFetch()
  closing = [() => fetch.close(), () => rm(directory, { recursive: true, force: true })]
})

afterEach(async () => {
  for (const step of closing.splice(0)) await step()
})

class Counts implements SinkObserver {
  readonly counts = { delivered: 0, refused: 0, dropped: 0 }
  failures = 0
  readonly counted = (outcome: keyof Counts['counts'], count: number): void => void (this.counts[outcome] += count)
  readonly failed = (): void => void (this.failures += 1)
}

const startMs = Date.parse('2026-11-25T12:00:00.000Z')

function write(sink: AuditSink, number: number, more: Partial<AuditEvent> = {}): void {
  const event: AuditEvent = {
    id: `event-${number}`,
    time: new Date(startMs + number).toISOString(),
    outcome: 'done',
    method: 'taproot.iam.v2.GroupsService/CreateGroup',
    transport: 'http',
    userAgent: 'größe/1',
    ...more,
  }
  sink.write(event, () => JSON.stringify(event))
}

function ids(received: readonly Readonly<Record<string, unknown>>[]): unknown[] {
  return received.map(({ id }) => id)
}

const numbered = (count: number, from = 0): string[] => Array.from({ length: count }, (_, at) => `event-${from + at}`)

/** Waits for a condition while the time of `timers` passes. */
async function until(condition: () => boolean, timers?: FakeTimers): Promise<void> {
  for (const end = performance.now() + 20_000; !condition();) {
    if (performance.now() > end) throw new Error('the condition does not come true')
    await timers?.pass(1_000)
    await new Promise((resolve) => setImmediate(resolve))
  }
}

interface RemoteParts {
  readonly send?: SendEvents
  readonly timers?: Timers
  readonly maxBytes?: number
  readonly observer?: Counts
}

async function openRemote({ send = sendJsonLines(), timers = systemTimers, maxBytes = 10_000_000, observer = new Counts() }: RemoteParts): Promise<RemoteSink> {
  return RemoteSink.open({ name: 'siem', directory: join(directory, 'spool'), maxBytes, send, observer, random: systemRandom, timers, closeMs: 5_000 })
}

const trust = { ca: () => receiverTls.certificate }
const sendJsonLines = (): SendEvents => createJsonLinesSender({ fetch, url: `https://127.0.0.1:${port}/in`, ...trust, token: () => 'planted' })
const sendOtlp = (): SendEvents => createOtlpSender({ fetch, url: `https://127.0.0.1:${port}/v1/logs`, ...trust })
const sendSyslog = (): SendEvents =>
  createSyslogSender({ host: '127.0.0.1', port, lookup: createResolverLookup(), tls: () => ({ ca: receiverTls.certificate }) })

const kinds = [
  { kind: 'syslog', send: sendSyslog, start: startSyslog },
  { kind: 'https', send: sendJsonLines, start: startJsonLines },
  { kind: 'otlp', send: sendOtlp, start: startOtlp },
] as const

describe.each(kinds)('sink $kind', ({ kind, send, start }) => {
  const receive = async (): Promise<Receiver> => {
    const receiver = await start(port)
    closing.unshift(() => receiver.close())
    return receiver
  }

  test('an audit sink delivers events in order, with all their fields', async () => {
    const receiver = await receive()
    const sink = await openRemote({ send: send() })
    for (let number = 0; number < 1_200; number++) write(sink, number, number === 3 ? { outcome: 'denied', code: 7, operator: false } : {})
    await until(() => receiver.received.length === 1_200)
    await sink.close()
    expect(ids(receiver.received)).toEqual(numbered(1_200))
    const common = { time: new Date(startMs + 3).toISOString(), outcome: 'denied', code: 7, operator: false, userAgent: 'größe/1' }
    const severity = { syslog: { priority: 108 }, https: { authorization: 'Bearer planted' }, otlp: { severityNumber: 13 } }[kind]
    expect(receiver.received[3]).toMatchObject({ ...common, ...severity })
  })

  test('an audit sink delivers all events in order to a receiver that was down for an hour', async () => {
    const timers = new FakeTimers()
    const observer = new Counts()
    const sink = await openRemote({ send: send(), timers, observer })
    for (let minute = 0; minute < 60; minute++) {
      write(sink, minute)
      const failures = observer.failures
      await until(() => observer.failures > failures, timers)
      await timers.pass(60_000)
    }
    expect(sink.waitingBytes).toBeGreaterThan(0)
    expect(sink.oldestMs).toBe(startMs)
    const receiver = await receive()
    await until(() => receiver.received.length === 60, timers)
    await until(() => sink.waitingBytes === 0, timers)
    await sink.close()
    expect(ids(receiver.received)).toEqual(numbered(60))
    expect(observer.counts).toEqual({ delivered: 60, refused: 0, dropped: 0 })
    expect(sink.oldestMs).toBeUndefined()
  })
})

describe('the spool of audit events', () => {
  test('the spool of audit events keeps events over a restart, and drops a truncated line', async () => {
    const first = await openRemote({})
    for (let number = 0; number < 10; number++) write(first, number)
    await first.close()
    const spool = join(directory, 'spool')
    const [segment = ''] = (await readdir(spool)).filter((name) => name.endsWith('.jsonl'))
    await appendFile(join(spool, segment), '{"id":"event-cut')
    const receiver = await startJsonLines(port)
    closing.unshift(() => receiver.close())
    const second = await openRemote({})
    write(second, 10)
    await until(() => receiver.received.length === 11)
    await until(() => second.waitingBytes === 0)
    await second.close()
    expect(ids(receiver.received)).toEqual(numbered(11))
  })

  test.each(['cut', 'removed'] as const)('the spool of audit events reports a file that was %s, and delivers later events', async (damage) => {
    const line = (id: string): string => JSON.stringify({ id, time: '' })
    const failures: unknown[] = []
    const options = { directory, maxBytes: 1_000_000, flushed: () => undefined, failed: (error: unknown) => void failures.push(error), timers: systemTimers }
    const first = await Spool.open(options)
    for (const id of ['event-1', 'event-2']) first.append(line(id))
    await first.close()
    const spool = await Spool.open(options)
    const [file = ''] = (await readdir(directory)).filter((name) => name.endsWith('.jsonl'))
    if (damage === 'cut') await truncate(join(directory, file), `${line('event-1')}\n`.length)
    else await rm(join(directory, file))
    spool.append(line('event-3'))
    const found: unknown[] = []
    const wanted = damage === 'cut' ? ['event-1', 'event-3'] : ['event-3']
    await vi.waitFor(async () => {
      const batch = await spool.batch(100)
      found.push(...batch.events.map(({ event }) => event.id))
      await spool.deliver(batch)
      expect(found).toEqual(wanted)
    })
    expect(failures.map(String)).toEqual([expect.stringContaining(`bytes of events are lost: ${file}`)])
    expect(spool.bytes).toBe(0)
    expect((await spool.batch(100)).events).toEqual([])
    await spool.close()
  })

  test('the spool of audit events delivers nothing twice after a clean stop with many segments', async () => {
    const receiver = await startJsonLines(port)
    closing.unshift(() => receiver.close())
    for (let round = 0; round < 3; round++) {
      const timers = new FakeTimers()
      const sink = await openRemote({ timers })
      for (let number = 0; number < 1_000; number++) write(sink, round * 1_000 + number, { userAgent: 'x'.repeat(1_000) })
      await until(() => sink.waitingBytes === 0, timers)
      await sink.close()
    }
    expect(ids(receiver.received)).toEqual(numbered(3_000))
    expect((await readdir(join(directory, 'spool'))).filter((name) => name.endsWith('.jsonl')).length).toBeLessThanOrEqual(1)
  })

  test('the spool of audit events drops and counts further events when full, and delivers those that it has', async () => {
    const timers = new FakeTimers()
    const observer = new Counts()
    const sink = await openRemote({ timers, observer, maxBytes: 10_000 })
    for (let number = 0; number < 100; number++) write(sink, number)
    await until(() => observer.failures > 0, timers)
    const kept = 100 - observer.counts.dropped
    expect(kept).toBeGreaterThan(10)
    expect(observer.counts.dropped).toBeGreaterThan(10)
    expect(sink.waitingBytes).toBeLessThanOrEqual(10_000)
    const receiver = await startJsonLines(port)
    closing.unshift(() => receiver.close())
    await until(() => receiver.received.length === kept, timers)
    await until(() => sink.waitingBytes === 0, timers)
    await sink.close()
    expect(ids(receiver.received)).toEqual(numbered(kept))
    expect(observer.counts.delivered).toBe(kept)
  })
})

describe('a receiver that refuses', () => {
  test('an event permanently loses that event only, which is counted', async () => {
    const receiver = await startJsonLines(port, (body) => ({ status: body.includes('"event-7"') ? 400 : 200 }))
    closing.unshift(() => receiver.close())
    const observer = new Counts()
    const timers = new FakeTimers()
    const sink = await openRemote({ observer, timers })
    for (let number = 0; number < 20; number++) write(sink, number)
    await until(() => sink.waitingBytes === 0, timers)
    await sink.close()
    expect(ids(receiver.received)).toEqual(numbered(20).filter((id) => id !== 'event-7'))
    expect(observer.counts).toEqual({ delivered: 19, refused: 1, dropped: 0 })
  })

  test('OTLP events as rejected has them counted and not sent again', async () => {
    const receiver = await startOtlp(port, () => ({ status: 200, json: { partialSuccess: { rejectedLogRecords: '2', errorMessage: 'no' } } }))
    closing.unshift(() => receiver.close())
    const observer = new Counts()
    const sink = await openRemote({ observer, send: sendOtlp() })
    for (let number = 0; number < 5; number++) write(sink, number)
    await until(() => sink.waitingBytes === 0)
    await sink.close()
    expect(observer.counts).toEqual({ delivered: 3, refused: 2, dropped: 0 })
    expect(receiver.received).toHaveLength(5)
  })

  test.each([401, 404, 429, 500, 503])('a receiver that refuses with status %i gets the events again', async (status) => {
    let failing = true
    const receiver = await startJsonLines(port, () => ({ status: failing ? status : 200 }))
    closing.unshift(() => receiver.close())
    const timers = new FakeTimers()
    const observer = new Counts()
    const sink = await openRemote({ observer, timers })
    write(sink, 0)
    await until(() => observer.failures > 2, timers)
    failing = false
    await until(() => receiver.received.length === 1, timers)
    await sink.close()
    expect(observer.counts).toMatchObject({ refused: 0, dropped: 0 })
  })

  test('a receiver that refuses by closing a syslog connection before reading gets the events again', async () => {
    const receiver = await startSyslog(port, { closesEarly: 3 })
    closing.unshift(() => receiver.close())
    const timers = new FakeTimers()
    const observer = new Counts()
    const sink = await openRemote({ observer, timers, send: sendSyslog() })
    write(sink, 0)
    await until(() => receiver.received.length === 1, timers)
    await until(() => sink.waitingBytes === 0, timers)
    await sink.close()
    expect(observer.failures).toBe(3)
  })

  test('a receiver that refuses with a certificate of another authority gets nothing', async () => {
    const receiver = await startJsonLines(port)
    closing.unshift(() => receiver.close())
    const timers = new FakeTimers()
    const observer = new Counts()
    const sink = await openRemote({ observer, timers, send: createJsonLinesSender({ fetch, url: `https://127.0.0.1:${port}/in` }) })
    write(sink, 0)
    await until(() => observer.failures > 0, timers)
    await sink.close()
    expect(receiver.raw).toEqual([])
  })
})

describe('the audit sink file', () => {
  const openFile = (observer: Counts, limits: { maxBytes: number; maxFiles: number }): Promise<FileSink> =>
    FileSink.open({ name: 'file', path: join(directory, 'audit.log'), ...limits, observer, timers: systemTimers })

  test('the audit sink file keeps the newest files within size and number, with complete lines in order', async () => {
    const observer = new Counts()
    const sink = await openFile(observer, { maxBytes: 2_000, maxFiles: 3 })
    for (let number = 0; number < 100; number++) {
      write(sink, number)
      await until(() => observer.counts.delivered === number + 1)
    }
    await sink.close()
    const names = (await readdir(directory)).filter((name) => name.startsWith('audit.log')).toSorted()
    expect(names).toEqual(['audit.log', 'audit.log.1', 'audit.log.2'])
    const lines: string[] = []
    for (const name of names.toReversed()) {
      expect((await stat(join(directory, name))).size).toBeLessThanOrEqual(2_000)
      lines.push(...(await readFile(join(directory, name), 'utf8')).trimEnd().split('\n'))
    }
    expect(ids(lines.map((line) => JSON.parse(line) as Readonly<Record<string, unknown>>))).toEqual(numbered(lines.length, 100 - lines.length))
    expect(observer.counts.dropped).toBe(0)
  })

  test('the audit sink file continues the same file after a restart; only its owner can read it', async () => {
    for (let round = 0; round < 2; round++) {
      const sink = await openFile(new Counts(), { maxBytes: 1_000_000, maxFiles: 2 })
      write(sink, round)
      await sink.close()
    }
    const path = join(directory, 'audit.log')
    expect((await readFile(path, 'utf8')).trimEnd().split('\n')).toHaveLength(2)
    expect((await stat(path)).mode & 0o777).toBe(0o600)
  })
})
