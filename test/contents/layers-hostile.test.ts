import { DatabaseSync } from 'node:sqlite'
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { deflateRawSync, gzipSync, zstdCompressSync } from 'node:zlib'
import { afterAll, describe, expect, test } from 'vitest'
import { packagesOfLayers } from '../../src/contents/index.ts'
import { entriesOfLayer, LayerBudget } from '../../src/contents/layers/layer-entries.ts'
import { ContentError, contentLimits } from '../../src/contents/package.ts'
import { berkeleyOf, goBuildInfo, ndbOf, rpmHeader, zipOf } from './samples.ts'
import { slowness } from '../budgets.ts'
import { cpuTimeMs } from '../support/cpu-time.ts'
import { layersOf, piecesOf, tarOf, type TestEntry } from './tar-of.ts'

const folder = mkdtempSync(join(tmpdir(), 'taproot-layers-test-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))

const signal = new AbortController().signal
const good = { path: 'z/package.json', data: '{"name":"z","version":"1"}' }
const goodPurl = 'pkg:npm/z@1'

async function read(entries: readonly TestEntry[]): Promise<{ purls: string[]; skipped: string[] }> {
  const { packages, skipped } = await packagesOfLayers([piecesOf(tarOf(entries))], signal)
  return { purls: packages.map(({ purl }) => purl), skipped: skipped.map(({ problem, path }) => `${problem} ${path}`) }
}

async function problemOf(layer: AsyncIterable<Uint8Array>): Promise<unknown> {
  const error: unknown = await packagesOfLayers([layer], signal).then(
    () => undefined,
    (reason: unknown) => reason,
  )
  return error instanceof ContentError ? error.problem : error
}

/** Returns a database of SQLite that the statements make. */
function sqlite(statements: string, change = (bytes: Buffer): Buffer => bytes): Buffer {
  const path = join(folder, 'made.sqlite')
  rmSync(path, { force: true })
  const database = new DatabaseSync(path)
  database.exec(statements)
  database.close()
  return change(readFileSync(path))
}

const endless = 'WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS hnum, x AS blob FROM n'
const tableOf = 'CREATE TABLE Packages (hnum INTEGER PRIMARY KEY, blob BLOB)'
const broken = Buffer.alloc(100_000, 0xff)
const berkeley = berkeleyOf(rpmHeader({ name: 'n'.repeat(500), version: '1', release: '2', arch: 'x', source: '' }), true)
const ndb = ndbOf([rpmHeader({ name: 'a', version: '1', release: '1', arch: 'x', source: '' })])

function changed(bytes: Buffer, change: (copy: Buffer) => void): Buffer {
  const copy = Buffer.from(bytes)
  change(copy)
  return copy
}

/** A zip whose file grows to 1 GiB. */
function zipBomb(): Buffer {
  const zeros = Buffer.alloc(64 * 1024 * 1024)
  const once = deflateRawSync(zeros, { level: 9 })
  return zipOf({ 'inner.jar': Buffer.concat([once, once]), 'META-INF/MANIFEST.MF': zeros })
}

describe('a hostile file is skipped with its problem, and the rest is read', () => {
  const rows: readonly (readonly [string, string, string | Buffer])[] = [
    ['a view that never ends', 'var/lib/rpm/rpmdb.sqlite', sqlite(`CREATE TABLE t (x); CREATE VIEW Packages AS ${endless.replace('x AS', 'i AS')}`)],
    [
      'a column that is computed',
      'var/lib/rpm/rpmdb.sqlite',
      sqlite('CREATE TABLE Packages (hnum INTEGER PRIMARY KEY, blob AS (zeroblob(hnum))); INSERT INTO Packages (hnum) VALUES (900000000)'),
    ],
    ['a damaged schema', 'var/lib/rpm/rpmdb.sqlite', sqlite(tableOf, (bytes) => changed(bytes, (copy) => copy.fill(0xff, 100, 2000)))],
    [
      'a database that is cut off',
      'var/lib/rpm/rpmdb.sqlite',
      sqlite(`${tableOf}; INSERT INTO Packages (blob) VALUES (zeroblob(100000))`, (bytes) => bytes.subarray(0, 8192)),
    ],
    ['no database', 'var/lib/rpm/rpmdb.sqlite', broken],
    ['headers that are too short', 'var/lib/rpm/rpmdb.sqlite', sqlite(`${tableOf}; INSERT INTO Packages (blob) VALUES (x'01')`)],
    ['an ndb with slots behind its end', 'var/lib/rpm/Packages.db', changed(ndb, (copy) => copy.writeUInt32LE(0xffffffff, 40))],
    [
      'an ndb whose packages share bytes',
      'var/lib/rpm/Packages.db',
      changed(ndb, (copy) => {
        for (let slot = 48; slot < 4096; slot += 16) copy.copy(copy, slot, 32, 48)
      }),
    ],
    [
      'a Berkeley DB whose pages go round',
      'var/lib/rpm/Packages',
      changed(berkeley, (copy) => {
        copy.writeUInt32LE(2, 1040)
        copy.writeUInt32LE(0x7fffffff, 1005)
      }),
    ],
    ['an empty Berkeley DB', 'var/lib/rpm/Packages', ''],
    ['JSON that is deep', 'a/package.json', '['.repeat(1_000_000)],
    ['a name that is long', 'a/package.json', `{"name":"${'x'.repeat(100_000)}","version":"1"}`],
    ['a zip bomb', 'app.jar', zipBomb()],
    ['no zip', 'app.jar', broken],
    ['a zip in zips', 'app.jar', [1, 2, 3].reduce((inner) => zipOf({ 'a.jar': inner }), zipOf({}))],
  ]
  test.each(rows)('%s', async (_title, path, data) => {
    const { purls, skipped } = await read([{ path, data }, good])
    expect(purls).toContain(goodPurl)
    expect([...new Set(skipped)]).toEqual([expect.stringMatching(new RegExp(`^(UNREADABLE|TOO_LARGE) /${path}$`))])
  })

  test.each([
    ['a virtual table', 'rpmdb.sqlite', sqlite('CREATE VIRTUAL TABLE Packages USING fts5(blob)')],
    ['no table of packages', 'rpmdb.sqlite', sqlite('CREATE TABLE t (x)')],
    ['no ndb', 'Packages.db', broken],
    ['no Berkeley DB', 'Packages', broken],
  ])('a package database of another form: %s', async (_title, name, data) => {
    const { purls, skipped } = await read([{ path: `var/lib/rpm/${name}`, data }, good])
    expect({ purls, skipped }).toEqual({ purls: [goodPurl], skipped: [`UNSUPPORTED_DATABASE /var/lib/rpm/${name}`] })
  })

  test.each([
    ['executables with wrong lengths', goBuildInfo('go1', 'x').fill(0xff, 64 * 1024 + 32)],
    ['executables with huge offsets', Buffer.concat([Buffer.from('\x7fELF', 'latin1'), broken])],
  ])('%s say nothing', async (_title, data) => {
    expect(await read([{ path: 'bin/x', mode: 0o755, data }, good])).toEqual({ purls: [goodPurl], skipped: [] })
  })

  test('an executable with very many beginnings of build information is skipped', async () => {
    const beginnings = Array.from({ length: 100_000 }, () => Buffer.from('\xff Go buildinf:\x08\x02', 'latin1'))
    const data = Buffer.concat([Buffer.from('\x7fELF            ', 'latin1'), ...beginnings])
    expect(await read([{ path: 'bin/x', mode: 0o755, data }, good])).toEqual({ purls: [goodPurl], skipped: ['TOO_LARGE /bin/x'] })
  })

  test('files whose paths are too long are named', async () => {
    const path = `${'d/'.repeat(101)}package.json`
    const { purls, skipped } = await read([paxOf({ path }), { path: 'x', data: '{"name":"evil","version":"1"}' }, good])
    expect({ purls, skipped }).toEqual({ purls: [goodPurl], skipped: [`UNREADABLE ${path}`] })
  })

  test('paths and links out of the root are not read, and are named', async () => {
    const json = '{"name":"evil","version":"1"}'
    const deep = `${'d/'.repeat(40)}../package.json`
    const entries = ['../package.json', 'a/../../package.json', deep].map((path) => ({ path, data: json }))
    const links = ['1', '2'].map((type) => ({ path: `l${type}/package.json`, type, link: '../../../etc/passwd' }))
    const { purls, skipped } = await read([...entries, ...links, good])
    expect({ purls, skipped }).toEqual({
      purls: [goodPurl],
      skipped: [...entries.map(({ path }) => path), '/l1/package.json'].map((path) => `UNREADABLE ${path}`),
    })
  })

  test('devices and folders in place of files name nothing', async () => {
    const odd = ['3', '4', '5', '6', '7', 'V'].map((type) => ({ path: `o${type}/package.json`, type }))
    expect((await read([...odd, good])).purls).toEqual([goodPurl])
  })
})

/** Returns the tar with a first header that says 2^63 - 1 bytes, as GNU writes it. */
function base256(tar: Buffer): Buffer {
  return changed(tar, (copy) => {
    copy.write('80000000'.padEnd(8, '0') + '7fffffffffffffff', 124, 'hex')
    copy.write('        ', 148)
    const sum = copy.subarray(0, 512).reduce((total, byte) => total + byte, 0)
    copy.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148)
  })
}

/** Returns a header of PAX with the fields. */
function paxOf(fields: Readonly<Record<string, string>>): TestEntry {
  const lines = Object.entries(fields).map(([key, value]) => {
    const rest = ` ${key}=${value}\n`
    const digits = String(rest.length + String(rest.length).length).length
    return `${rest.length + digits}${rest}`
  })
  return { path: 'PaxHeaders/x', type: 'x', data: lines.join('') }
}

describe('a sparse file', () => {
  const database = 'lib/apk/db/installed'
  const data = 'P:a\nV:1\n\n'
  const formsOf = (path: string): readonly (readonly [string, readonly TestEntry[]])[] => [
    ['the old form of GNU', [{ path, type: 'S', data }]],
    ['PAX 0.0', [paxOf({ 'GNU.sparse.size': '9000', 'GNU.sparse.numblocks': '1', 'GNU.sparse.offset': '8000', 'GNU.sparse.numbytes': '10' }), { path, data }]],
    ['PAX 0.1', [paxOf({ 'GNU.sparse.size': '9000', 'GNU.sparse.name': path, 'GNU.sparse.map': '8000,10' }), { path: 'GNUSparseFile.1/x', data }]],
    [
      'PAX 1.0',
      [
        paxOf({ 'GNU.sparse.major': '1', 'GNU.sparse.minor': '0', 'GNU.sparse.name': path, 'GNU.sparse.realsize': '9000' }),
        { path: 'GNUSparseFile.1/x', data: `1\n8000\n10\n`.padEnd(512, '\0') + data },
      ],
    ],
  ]
  test.each(formsOf(database))('in %s is refused as a package database, also after a good one', async (_form, entries) => {
    expect(await problemOf(piecesOf(tarOf([{ path: database, data }, ...entries])))).toBe('UNSUPPORTED_FORM')
    expect(await problemOf(piecesOf(gzipSync(tarOf([...entries, good]))))).toBe('UNSUPPORTED_FORM')
  })
  test.each(formsOf('var/log/lastlog'))('in %s does no harm elsewhere', async (_form, entries) => {
    expect(await read([...entries, good])).toEqual({ purls: [goodPurl], skipped: [] })
  })
})

describe('a hostile layer ends with a ContentError', () => {
  const tar = tarOf([good])
  const rows: readonly (readonly [string, Buffer])[] = [
    ['no tar', broken],
    ['a tar that is cut off', tarOf([{ ...good, size: 10_000_000 }])],
    ['a tar with a size of many bytes', tarOf([{ ...good, size: 8 ** 11 - 1 }])],
    ['a tar with a size of 8 EiB', base256(tarOf([good]))],
    ['a damaged header', changed(tarOf([good, good]), (copy) => copy.fill(1, 1024, 1100))],
    ['gzip that is cut off', gzipSync(tar).subarray(0, 60)],
    ['gzip that is damaged', changed(gzipSync(tar), (copy) => copy.fill(7, 20, 60))],
    ['zstd that is cut off', zstdCompressSync(tar).subarray(0, 60)],
    ['gzip in gzip', gzipSync(gzipSync(tar))],
    ['gzip in zstd', zstdCompressSync(gzipSync(tar))],
  ]
  test.each(rows)('%s', async (_title, layer) => {
    expect(await problemOf(piecesOf(layer))).toBe('UNREADABLE')
  })

  test('a bomb that grows forever is stopped at the limit, and keeps little memory', async () => {
    const zeros = gzipSync(Buffer.alloc(64 * 1024 * 1024), { level: 9 })
    const head = gzipSync(tarOf([{ path: 'zeros', size: 8 ** 11 - 1 }]).subarray(0, 512))
    const endlessLayer = async function* (): AsyncGenerator<Uint8Array> {
      yield head
      for (;;) yield await Promise.resolve(zeros)
    }
    const budget = new LayerBudget()
    budget.takeBytes(contentLimits.layerBytes - 1024 * 1024 * 1024)
    const start = process.memoryUsage().rss
    const readAll = async (): Promise<void> => {
      for await (const entry of entriesOfLayer(endlessLayer(), { budget, wants: () => true }, signal)) entry.resume()
    }
    await expect(readAll()).rejects.toMatchObject({ problem: 'TOO_LARGE' })
    expect(process.memoryUsage().rss - start).toBeLessThan(300 * 1024 * 1024)
  })

  test('a header that is larger than the parser keeps', async () => {
    const long = paxOf({ comment: 'x'.repeat(300 * 1024), path: 'other' })
    expect(await problemOf(piecesOf(tarOf([long, good]), 100_000))).toBe('TOO_LARGE')
  })

  test('more packages than an image may have', async () => {
    const many = { path: 'lib/apk/db/installed', data: 'P:a\nV:1\n\n'.repeat(100_001) }
    expect(await problemOf(piecesOf(tarOf([many, good]), 100_000))).toBe('TOO_LARGE')
  })

  test('the error of a source is no fault of the image', async () => {
    const block = tarOf([good]).subarray(0, -1024)
    const many = Buffer.concat(Array.from({ length: 1000 }, () => block))
    const endlessLayer = async function* (): AsyncGenerator<Uint8Array> {
      for (let part = 0; part < 3; part++) yield await Promise.resolve(many)
      throw new Error('the source failed')
    }
    const error = await problemOf(endlessLayer())
    expect(error).toMatchObject({ message: 'the source failed' })
    expect(error).not.toBeInstanceOf(ContentError)
  })

  test('whiteouts of a large folder, again and again, cost little', async () => {
    const files = Array.from({ length: 5000 }, (_, at) => ({ path: `a/${at}/package.json`, data: `{"name":"p${at}","version":"1"}` }))
    const opaque = Array.from({ length: 20_000 }, () => ({ path: 'a/.wh..wh..opq' }))
    const before = cpuTimeMs()
    const { purls } = await read([...files, ...opaque])
    expect(purls).toHaveLength(5000)
    expect(cpuTimeMs() - before).toBeLessThan(6_000 * slowness())
  })
})

test('the signal ends a layer that never comes', async () => {
  const controller = new AbortController()
  const never = async function* (): AsyncGenerator<Uint8Array> {
    yield tarOf([good]).subarray(0, 700)
    controller.abort(new Error('enough'))
    await new Promise(() => undefined)
  }
  await expect(packagesOfLayers([never()], controller.signal)).rejects.toThrow('enough')
})

test('nothing is left on the disk', async () => {
  const before = readdirSync(tmpdir()).filter((name) => name.startsWith('taproot-layers-') && !name.startsWith('taproot-layers-test-'))
  await packagesOfLayers(layersOf({ 'app.jar': zipOf({}), 'var/lib/rpm/rpmdb.sqlite': sqlite(tableOf) }), signal)
  const after = readdirSync(tmpdir()).filter((name) => name.startsWith('taproot-layers-') && !name.startsWith('taproot-layers-test-'))
  expect(after).toEqual(before)
})
