import { mkdtemp, readdir, rm, stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { Registry } from 'prom-client'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { AuditSegments } from '../../src/audit/index.ts'
import type { AuditLine } from '../../src/base/audit-line.ts'
import { pause } from '../../src/base/timing.ts'
import { ReloadedFiles } from '../../src/config/files/reloaded-files.ts'
import type { AuditQuery } from '../../src/engine/audit-query.ts'
import { createDiskUpstream, createHttpUpstream, type Upstream } from '../../src/registry/index.ts'
import { openAuditTrail, type OpenedTrail } from '../../src/server/audit/open-audit-trail.ts'
import { systemClock, systemRandom } from '../../src/server/runtime.ts'
import { createSqliteStore } from '../../src/store/sqlite/sqlite-store.ts'
import type { Store } from '../../src/store/store.ts'
import { startRegistry } from '../support/parts/registry.ts'
import { describeWithPart } from '../support/parts/require-part.ts'

const deadlineMs = 120_000
const hourMs = 3_600_000
const root = 'a'.repeat(40)
const log = { debug: () => undefined, info: () => undefined, warn: () => undefined, error: () => undefined }
const query: AuditQuery = { groups: undefined, newestFirst: false, skip: 0, limit: 200 }

/** An upstream of one test. */
interface Opened {
  readonly upstream: Upstream
  stop(): Promise<void>
}

/** Tests of segments over one kind of upstream. */
function segmentsSuite(openUpstream: (directory: string) => Promise<Opened>): void {
  let directory: string
  let opened: Opened
  let store: Store
  let nowMs: number
  const trails: OpenedTrail[] = []
  const signal = new AbortController().signal

  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), 'taproot-segments-'))
    opened = await openUpstream(directory)
    store = createSqliteStore({ path: join(directory, 'store.db'), log })
    nowMs = systemClock.now()
  })
  afterEach(async () => {
    for (const trail of trails.splice(0)) await trail.close()
    await store.close()
    await opened.stop()
    await rm(directory, { recursive: true, force: true })
  })

  async function replica(owner: string, upstream: Upstream | undefined = opened.upstream): Promise<OpenedTrail> {
    const audit = { sinks: [], anonymousPerMinute: 600, deniedPerMinute: 600, keepDays: 30, keepMegabytes: 1_000 }
    const trail = await openAuditTrail({
      config: { audit, dataDir: directory },
      owner,
      files: new ReloadedFiles(log),
      log,
      auditLog: log,
      metrics: new Registry(),
      clock: { now: () => nowMs },
      random: systemRandom,
      isGroup: () => true,
      closeMs: 10_000,
      keeps: { store, upstream, isIndexed: true },
    })
    trails.push(trail)
    return trail
  }
  async function close(trail: OpenedTrail): Promise<void> {
    trails.splice(trails.indexOf(trail), 1)
    await trail.close()
  }
  const event = (name: string): AuditLine => ({ outcome: 'done', method: 'm', transport: 'http', identity: `${root}/x`, subject: root, name })
  const namesOf = async (trail: OpenedTrail, more: Partial<AuditQuery> = {}): Promise<unknown[]> => {
    const { events = [] } = (await trail.reader?.read({ ...query, ...more }, { key: root, signal })) ?? {}
    return events.map(({ name }) => name)
  }
  const segments = (keepMs = 30 * 24 * hourMs): AuditSegments =>
    new AuditSegments({ store, upstream: opened.upstream, clock: { now: () => nowMs }, random: systemRandom, keepMs, maxBytes: 1_000_000_000 })

  test('a replica lists its own audit events at once, and those of other replicas after their segment is written', async () => {
    const [one, other] = [await replica('one'), await replica('other')]
    one.record(event('first'))
    expect(await namesOf(one)).toEqual(['first'])
    nowMs += 1
    other.record(event('second'))
    await close(other)
    await expect.poll(() => namesOf(one), { timeout: deadlineMs }).toEqual(['first', 'second'])
  })

  test('a segment of audit events is written after 4 MiB, before 10 s have passed', async () => {
    const [one, other] = [await replica('one'), await replica('other')]
    for (let number = 0; number < 6_000; number += 1) {
      one.record({ ...event(`event ${number}`), userAgent: 'x'.repeat(1_000) })
      // The queue of the disk has room for 4 MiB.
      if (number % 1_000 === 999) await pause(20, signal)
    }
    await expect.poll(async () => (await namesOf(other, { limit: 1 })).length, { timeout: deadlineMs }).toBe(1)
  })

  test('a replica without its disk reads all audit events from the segments', async () => {
    const one = await replica('one')
    for (const name of ['first', 'second']) {
      one.record(event(name))
      nowMs += 1
    }
    expect(await namesOf(one)).toEqual(['first', 'second'])
    await close(one)
    await rm(join(directory, 'audit'), { recursive: true })
    expect(await namesOf(await replica('one'))).toEqual(['first', 'second'])
  })

  test('audit events without a segment at the end of a process get one from the next process', async () => {
    const failing: Upstream = Object.create(opened.upstream, { startUpload: { value: () => Promise.reject(new Error('the upstream is away')) } }) as Upstream // the same, but for one method
    const one = await replica('one', failing)
    one.record(event('first'))
    await close(one)
    const again = await replica('one')
    expect(await namesOf(again)).toEqual(['first'])
    expect(await segments().list('', signal)).toHaveLength(1)
  })

  test('the segments of an hour are merged, and replicas with their content do not read them again', async () => {
    for (const name of ['first', 'second', 'third']) {
      const one = await replica('one')
      one.record(event(name))
      await close(one)
      nowMs += 1
    }
    const one = await replica('one')
    expect(await namesOf(one)).toEqual(['first', 'second', 'third'])
    await segments().maintain(signal)
    expect(await segments().list('', signal)).toHaveLength(3)
    nowMs += 3 * hourMs
    while (await segments().maintain(signal));
    const [merged, ...others] = await segments().list('', signal)
    expect([merged?.merged.length, others]).toEqual([3, []])
    expect(await namesOf(await replica('new'))).toEqual(['first', 'second', 'third'])
  })

  /** Makes a segment for each name. */
  async function sealed(...names: readonly string[]): Promise<void> {
    for (const name of names) {
      const one = await replica('one')
      one.record(event(name))
      await close(one)
      nowMs += 1
    }
  }
  /** The same upstream, but for the blobs of this digest: `body` is their content, and undefined means that it has none. */
  const upstreamWith = (digest: string, body: Buffer | undefined): Upstream => {
    const readBlob: Upstream['readBlob'] = (repository, blob, until) =>
      blob.digest !== digest
        ? opened.upstream.readBlob(repository, blob, until)
        : Promise.resolve(body === undefined ? undefined : { body: Readable.from([body]), size: body.length })
    const get = (target: Upstream, name: keyof Upstream): unknown => {
      const value = target[name]
      return name === 'readBlob' ? readBlob : typeof value === 'function' ? value.bind(target) : value
    }
    return new Proxy(opened.upstream, { get: (target, name) => get(target, name as keyof Upstream) }) // callers ask for its methods only
  }

  test.each([
    ['missing', undefined],
    ['replaced', Buffer.from('other bytes')],
    ['longer', Buffer.alloc(20_000_000)],
  ])('a segment whose content is %s for a while is kept, others are merged without it, and replicas read it later', async (_what, body) => {
    await sealed('first', 'second', 'third')
    const [lost] = await segments().list('', signal)
    const upstream = upstreamWith(lost?.content ?? '', body)
    nowMs += 3 * hourMs
    const leader = new AuditSegments({ store, upstream, clock: { now: () => nowMs }, random: systemRandom, keepMs: 30 * 24 * hourMs, maxBytes: 1e9 })
    while (await leader.maintain(signal));
    expect((await segments().list('', signal)).map(({ merged }) => merged.length).toSorted()).toEqual([0, 2])
    expect(await namesOf(await replica('short', upstream))).toEqual(['second', 'third'])
    expect(await namesOf(await replica('new'))).toEqual(['first', 'second', 'third'])
  })

  test('expired segments of audit events are removed with their content', async () => {
    const one = await replica('one')
    one.record(event('first'))
    await close(one)
    const [segment] = await segments().list('', signal)
    nowMs += 31 * 24 * hourMs
    await segments().maintain(signal)
    expect(await segments().list('', signal)).toEqual([])
    if (segment !== undefined) expect(await segments().content(segment, signal)).toBeUndefined()
    expect(await namesOf(await replica('new'))).toEqual([])
  })

  test('only the owner of a replica can read its audit files', async () => {
    const one = await replica('one')
    one.record(event('first'))
    await namesOf(one)
    const kept = join(directory, 'audit', 'one', '_kept')
    const names = await readdir(kept, { recursive: true })
    expect(names).toEqual(expect.arrayContaining(['index.sqlite', 'spool']))
    for (const name of names) expect((await stat(join(kept, name))).mode & 0o077, name).toBe(0)
  })
}

describe('segments of audit events in the embedded upstream', () => {
  segmentsSuite(async (directory) => {
    const upstream = await createDiskUpstream({ directory: join(directory, 'upstream'), clock: systemClock, random: systemRandom })
    return { upstream, stop: () => upstream.close() }
  })
})

describeWithPart('registry', 'segments of audit events in a registry', () => {
  segmentsSuite(async () => {
    const registry = await startRegistry({})
    const upstream = createHttpUpstream({ url: registry.url, clock: systemClock })
    const stop = async (): Promise<void> => {
      await upstream.close()
      await registry.stop()
    }
    return { upstream, stop }
  })
})
