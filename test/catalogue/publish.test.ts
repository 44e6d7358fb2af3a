import { readdir } from 'node:fs/promises'
import { DatabaseSync } from 'node:sqlite'
import { Readable, Transform } from 'node:stream'
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest'
import { trustedUid } from '../../src/base/uid.ts'
import { uidOrder } from '../../src/cache/lists/order.ts'
import { Catalogues, type PublishedImport } from '../../src/catalogue/index.ts'
import { importInProcess } from '../../src/catalogue/import/import-process.ts'
import { importInto, type ImportRunner, type OpenTarget } from '../../src/catalogue/import/run-import.ts'
import { cataloguesKey } from '../../src/catalogue/publish/catalogue-record.ts'
import type { AdvisorySource } from '../../src/cache/lists/advisory-source.ts'
import { platformRepository } from '../../src/registry/index.ts'
import { Collector } from '../../src/registry/gc/collector.ts'
import { createDiskUpstream, type DiskUpstream } from '../../src/registry/upstream/disk/disk-upstream.ts'
import { systemClock, systemRandom } from '../../src/server/runtime.ts'
import { osvDocument } from '../support/import-advisories.ts'
import { describeOnStores } from '../support/parts/require-part.ts'
import { smallFileSystem } from '../support/parts/small-file-system.ts'
import { startTestServer, type LogLine, type TestServer } from '../support/test-server.ts'
import { fileOf, temporaryFolder } from './documents.ts'

const groups = ['a'.repeat(40), 'b'.repeat(40)] as const
const signal = AbortSignal.timeout(600_000)

/** A process that imports and serves catalogues. */
interface CatalogueProcess {
  readonly catalogues: Catalogues
  readonly directory: string
  readonly logs: readonly LogLine[]
  stop(): Promise<void>
}

/** A real upstream, whose bytes change on their way. */
function changingUpstream(upstream: DiskUpstream, change: (body: Readable) => Readable): DiskUpstream {
  return new Proxy(upstream, {
    get(target, name) {
      if (name !== 'readBlob') {
        const value: unknown = Reflect.get(target, name)
        return typeof value === 'function' ? (value.bind(target) as unknown) : value
      }
      return async (...parameters: Parameters<DiskUpstream['readBlob']>) => {
        const blob = await target.readBlob(...parameters)
        return blob === undefined ? undefined : { ...blob, body: change(blob.body) }
      }
    },
  })
}

describeOnStores('published catalogues', (store) => {
  let server: TestServer | undefined
  const running: CatalogueProcess[] = []

  beforeAll(async () => {
    // Without an upstream of its own it follows no catalogue.
    server = await startTestServer({ store, keepsContent: false })
  })
  afterAll(() => server?.stop())
  afterEach(async () => {
    for (const one of running.splice(0)) await one.stop()
    const engine = server?.running.engine
    const outcome = await engine?.store.transact({ guards: [], writes: [{ kind: 'delete', key: cataloguesKey }] }, signal)
    if (outcome?.committed === true) await engine?.cache.reached(outcome.revision, signal)
  })

  const upstreamIn = async (folder?: string): Promise<DiskUpstream> =>
    createDiskUpstream({ directory: folder ?? (await temporaryFolder()), clock: systemClock, random: systemRandom })

  async function start(
    upstream: DiskUpstream,
    { follows = true, folder }: { readonly follows?: boolean; readonly folder?: string } = {},
  ): Promise<CatalogueProcess> {
    if (server === undefined) throw new Error('no server yet')
    const logs: LogLine[] = []
    const at =
      (level: string) =>
      (message: string, fields: LogLine['fields'] = {}): void =>
        void logs.push({ level, message, fields })
    const log = { debug: at('debug'), info: at('info'), warn: at('warn'), error: at('error') }
    const directory = folder ?? (await temporaryFolder())
    const { store: openStore, cache } = server.running.engine
    const catalogues = new Catalogues({ store: openStore, cache, upstream, directory, clock: systemClock, random: systemRandom, log })
    const end = follows ? catalogues.serve() : undefined
    const one = { catalogues, directory, logs, stop: async () => end?.() }
    running.push(one)
    return one
  }

  async function importIds(
    { catalogues }: Pick<CatalogueProcess, 'catalogues'>,
    ids: readonly string[],
    { group = groups[0], runner, mayBegin = true }: { readonly group?: string | undefined; readonly runner?: ImportRunner; readonly mayBegin?: boolean } = {},
  ): Promise<PublishedImport> {
    const path = await fileOf('documents.jsonl', ids.map((id) => `${JSON.stringify(osvDocument(id))}\n`).join(''))
    const how = { replace: false, dryRun: false, onRefusal: () => undefined, onProgress: () => undefined, ...(runner === undefined ? {} : { runner }) }
    const imported = await catalogues.import({ paths: [path], group: trustedUid(group), mayBegin, ...how }, signal)
    expect(imported.rows.get('advisories')?.added).toBe(ids.length)
    return imported
  }

  async function countOf(source: AdvisorySource | undefined): Promise<number> {
    const filter = { groups: groups.map(trustedUid), uids: undefined, anyOf: [], noneOf: [], text: '' }
    return (await source?.page({ filter, order: uidOrder, after: undefined, skip: 0, limit: 1 }, { key: '', signal }))?.total ?? 0
  }

  /** Waits until a process serves so many advisories. */
  const untilServed = ({ catalogues }: CatalogueProcess, count: number): Promise<void> =>
    vi.waitFor(async () => expect(await countOf(catalogues.source('advisories'))).toBe(count), { timeout: 120_000, interval: 5 })

  test('every process serves a new catalogue soon', async () => {
    const upstream = await upstreamIn()
    const [one, other] = [await start(upstream), await start(upstream)]
    expect([one.catalogues.source('advisories'), other.catalogues.source('advisories')]).toEqual([undefined, undefined])
    await importIds(one, ['A-1', 'A-2'])
    await Promise.all([untilServed(one, 2), untilServed(other, 2)])
    await importIds(other, ['A-3'])
    await Promise.all([untilServed(one, 3), untilServed(other, 3)])
    await untilServed(await start(upstream), 3)
  })

  test('dates of products need no group, are kept like other catalogues, and are served', async () => {
    const { catalogues } = await start(await upstreamIn())
    const path = await fileOf('python.json', JSON.stringify([{ cycle: '3.12', eol: '2028-10-31' }]))
    const how = { replace: false, dryRun: false, onRefusal: () => undefined, onProgress: () => undefined }
    const { published } = await catalogues.import({ paths: [path], group: undefined, mayBegin: true, ...how }, signal)
    expect(await catalogues.kept(signal)).toMatchObject([{ kind: 'lifecycle', manifest: published.get('lifecycle')?.manifest, isCurrent: true }])
    await vi.waitFor(() => expect(catalogues.source('lifecycle')).toBeDefined(), { timeout: 120_000, interval: 5 })
    const found = await catalogues.source('lifecycle')?.cyclesOf([{ product: 'python', version: '3.12.1' }], { key: '', signal })
    expect(found).toMatchObject([{ product: 'python', cycle: '3.12', lifeEnd: { day: '2028-10-31' } }])
  })

  test('until the first catalogue is here, the answer is code 14 and not an empty list', async () => {
    const upstream = await upstreamIn()
    await importIds(await start(upstream, { follows: false }), ['A-1'])
    const late = await start(upstream, { follows: false })
    expect(() => late.catalogues.source('advisories')).toThrow(expect.objectContaining({ code: 14, reason: 'CATALOGUE_LOADING' }) as Error)
  })

  test('imports at the same time lose nothing', async () => {
    const upstream = await upstreamIn()
    const processes = [await start(upstream), await start(upstream)]
    await Promise.all(processes.map((one, at) => importIds(one, [`A-${at}`, `B-${at}`], { group: groups[at] })))
    await Promise.all(processes.map((one) => untilServed(one, 4)))
  })

  test('an import does not start again because another kind of catalogue changed', async () => {
    const { catalogues } = await start(await upstreamIn(), { follows: false })
    const path = await fileOf('python.json', JSON.stringify([{ cycle: '3.12', eol: '2028-10-31' }]))
    const how = { replace: false, dryRun: false, onRefusal: () => undefined, onProgress: () => undefined }
    let runs = 0
    const meanwhile: ImportRunner = async (open, options, until) => {
      runs += 1
      const counts = await importInto(open, options, until)
      await catalogues.import({ paths: [path], group: undefined, mayBegin: true, ...how }, until)
      return counts
    }
    await importIds({ catalogues }, ['A-1'], { runner: meanwhile })
    expect(runs).toBe(1)
    expect((await catalogues.kept(signal)).map(({ kind }) => kind).sort()).toEqual(['advisories', 'lifecycle', 'vulnerabilities'])
  })

  test('a catalogue whose bytes changed is not served: the old one stays, until the bytes are right again', async () => {
    const upstream = await upstreamIn()
    const one = await start(upstream)
    await importIds(one, ['A-1'])
    let isBroken = false
    const flip = (): Transform =>
      new Transform({
        transform(piece: Buffer, _, done) {
          const copy = Buffer.from(piece)
          copy[copy.length >> 1] = (copy[copy.length >> 1] ?? 0) ^ 1
          done(null, copy)
        },
      })
    const changing = changingUpstream(upstream, (body) => (isBroken ? body.pipe(flip()) : body))
    const victim = await start(changing)
    await untilServed(victim, 1)
    isBroken = true
    await importIds(one, ['A-2'])
    const isReported = (): boolean => victim.logs.some(({ level, fields }) => level === 'error' && String(fields['error']).includes('changed the bytes'))
    await vi.waitFor(() => expect(isReported()).toBe(true), { timeout: 120_000, interval: 5 })
    expect(await countOf(victim.catalogues.source('advisories'))).toBe(1)
    isBroken = false
    await untilServed(victim, 2)
  })

  test('of a catalogue, no more bytes are read than it has', async () => {
    const upstream = await upstreamIn()
    const one = await start(upstream)
    await importIds(one, ['A-1'])
    const size = Math.max(...(await one.catalogues.kept(signal)).map((kept) => kept.size))
    let read = 0
    const endless = function* (): Generator<Buffer, void, undefined> {
      // Without a limit, the test ends too.
      for (; read < size + 256 * 1024 * 1024; read += 65_536) yield Buffer.alloc(65_536)
    }
    const victim = await start(
      changingUpstream(upstream, (body) => {
        body.destroy()
        return Readable.from(endless())
      }),
    )
    await vi.waitFor(() => expect(victim.logs).toContainEqual(expect.objectContaining({ level: 'error' })), { timeout: 120_000, interval: 5 })
    expect(String(victim.logs[0]?.fields['error'])).toContain('sent more bytes than the catalogue')
    expect(read).toBeLessThan(size + 8 * 1024 * 1024)
    expect((await readdir(victim.directory)).filter((name) => name.endsWith('.part'))).toEqual([])
  })

  test('an import over a catalogue of another release starts without its rows, says so, and keeps the old catalogue', async () => {
    const one = await start(await upstreamIn())
    const makeOlder: ImportRunner = async (open, options, until) => {
      const paths: string[] = []
      const openNoted: OpenTarget = async (kind) => {
        const target = await open(kind)
        paths.push(target.path)
        return target
      }
      const counts = await importInto(openNoted, options, until)
      for (const path of paths) {
        const database = new DatabaseSync(path)
        database.exec("UPDATE meta SET value = '0' WHERE key = 'format'")
        database.close()
      }
      return counts
    }
    await importIds(one, ['A-1'], { runner: makeOlder })
    const { begun } = await importIds(one, ['A-2', 'A-3'])
    await untilServed(one, 2)
    expect([...begun.values()].map(({ reason }) => reason)).toEqual(['otherRelease', 'otherRelease'])
    expect(one.logs.filter(({ level }) => level === 'warn')).toContainEqual(
      expect.objectContaining({
        message: expect.stringContaining('another release') as unknown,
        fields: expect.objectContaining({ kind: 'advisories', format: '0' }) as unknown,
      }),
    )
    expect((await one.catalogues.kept(signal)).filter(({ kind }) => kind === 'advisories')).toHaveLength(2)
  })

  test('an import over a catalogue that the upstream lost fails, or starts without its rows and says so if it may', async () => {
    const upstream = await upstreamIn()
    await importIds(await start(upstream, { follows: false }), ['A-1'])
    const lost = new Set((await running[0]?.catalogues.kept(signal))?.map(({ manifest }) => manifest))
    for await (const { repo, kind, digest } of upstream.stored())
      if (repo === platformRepository && kind === 'blob') await upstream.deleteBlob(repo, digest, signal)
    const restored = await start(upstream)
    const lines = (level: string): LogLine[] => restored.logs.filter((line) => line.level === level)
    await vi.waitFor(() => expect(String(lines('error')[0]?.fields['error'])).toContain('import again'), { timeout: 120_000, interval: 5 })
    await expect(importIds(restored, ['A-2', 'A-3'], { mayBegin: false })).rejects.toThrow('the upstream does not have the current catalogue')
    expect(new Set((await restored.catalogues.kept(signal)).map(({ manifest }) => manifest))).toEqual(lost)
    const { begun } = await importIds(restored, ['A-2', 'A-3'])
    expect([...begun.values()].map(({ reason }) => reason)).toEqual(['lost', 'lost'])
    expect(new Set([...begun.values()].map(({ manifest }) => manifest))).toEqual(lost)
    await untilServed(restored, 2)
    expect(lines('warn').map(({ message }) => message)).toContainEqual(expect.stringContaining('lost the current catalogue'))
  })

  test('three catalogues are kept, and the collector of unused bytes leaves them alone', async () => {
    const upstream = await upstreamIn()
    const one = await start(upstream)
    for (let at = 1; at <= 5; at++) {
      await importIds(one, [`A-${at}`])
      await untilServed(one, at)
    }
    const stored = async (): Promise<string[]> => {
      const kinds: string[] = []
      for await (const { repo, kind } of upstream.stored()) if (repo === platformRepository) kinds.push(kind)
      return kinds.sort()
    }
    // Of advisories and of vulnerabilities three files and three manifests each, and the empty configuration that all manifests name.
    const kept = [...Array<string>(7).fill('blob'), ...Array<string>(6).fill('manifest')]
    expect(await stored()).toEqual(kept)
    // Old files go after the switch.
    const files = async (): Promise<number> => (await readdir(one.directory)).filter((name) => name.endsWith('.sqlite')).length
    await expect.poll(files).toBeLessThanOrEqual(6)
    if (server === undefined) return
    const collector = new Collector(server.running.engine.services, upstream, { graceMs: -1_000 })
    expect(await collector.collectOrphans(upstream, signal)).toEqual({ manifests: 0, blobs: 0 })
    expect(await stored()).toEqual(kept)
  })

  // Full disks do not depend on the store.
  if (store !== 'sqlite') return

  /** Many advisories: they need 3 MB. */
  const manyIds = Array.from({ length: 1_000 }, (_, at) => `MANY-${at}`)

  test.each([
    ['in a process of its own', importInProcess],
    ['in the process of the command', importInto],
  ] as const)('a disk that is full ends an import %s: the old catalogue stays, nothing is left, and the next import works', async (_, runner) => {
    const disk = await smallFileSystem(8 * 1024 * 1024)
    const one = await start(await upstreamIn(), { folder: disk.directory })
    await importIds(one, ['A-1'], { runner })
    await untilServed(one, 1)
    const files = async (): Promise<string[]> => (await readdir(disk.directory)).filter((name) => name !== 'ballast').sort()
    const before = await files()
    await disk.fill(7.25 * 1024 * 1024)
    await expect(importIds(one, manyIds, { runner })).rejects.toThrow('the disk of the data folder is full')
    expect(await files()).toEqual(before)
    expect(await countOf(one.catalogues.source('advisories'))).toBe(1)
    await disk.makeRoom()
    await importIds(one, manyIds, { runner })
    await untilServed(one, 1 + manyIds.length)
  })

  test('a disk without room for a copy of the current catalogue ends an import before it begins', async () => {
    const disk = await smallFileSystem(8 * 1024 * 1024)
    const one = await start(await upstreamIn(), { folder: disk.directory })
    await importIds(one, ['A-1'])
    await untilServed(one, 1)
    await disk.fill()
    await expect(importIds(one, ['A-2'])).rejects.toThrow(/needs \d+ bytes of free space in/)
    await disk.makeRoom()
    await importIds(one, ['A-2'])
    await untilServed(one, 2)
  })

  test('a process with a full disk serves the old catalogue, keeps no part of the new one, and serves it once there is room', async () => {
    const upstream = await upstreamIn()
    const disk = await smallFileSystem(16 * 1024 * 1024)
    const [one, victim] = [await start(upstream), await start(upstream, { folder: disk.directory })]
    await importIds(one, ['A-1'])
    await untilServed(victim, 1)
    const before = await readdir(disk.directory)
    await disk.fill()
    await importIds(one, manyIds)
    await untilServed(one, 1 + manyIds.length)
    const isReported = (): boolean => victim.logs.some(({ level, fields }) => level === 'error' && String(fields['error']).includes('no space left'))
    await vi.waitFor(() => expect(isReported()).toBe(true), { timeout: 120_000, interval: 5 })
    expect(await countOf(victim.catalogues.source('advisories'))).toBe(1)
    await disk.makeRoom()
    await untilServed(victim, 1 + manyIds.length)
    expect(await readdir(disk.directory)).toHaveLength(before.length * 2)
  })

  test('an upstream without room ends an import, which leaves nothing there, and the next one works', async () => {
    const disk = await smallFileSystem(16 * 1024 * 1024)
    const upstream = await upstreamIn(disk.directory)
    const one = await start(upstream)
    await importIds(one, ['A-1'])
    await untilServed(one, 1)
    const stored = async (): Promise<string[]> => {
      const found = await readdir(disk.directory, { recursive: true, withFileTypes: true })
      return found.flatMap((entry) => (entry.isFile() && entry.name !== 'ballast' ? [entry.name] : [])).sort()
    }
    const before = await stored()
    await disk.fill()
    await expect(importIds(one, manyIds)).rejects.toThrow('the disk of the embedded upstream is full')
    expect(await stored()).toEqual(before)
    expect(await countOf(one.catalogues.source('advisories'))).toBe(1)
    await disk.makeRoom()
    await importIds(one, manyIds)
    await untilServed(one, 1 + manyIds.length)
  })
})
