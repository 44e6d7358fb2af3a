import { randomBytes } from 'node:crypto'
import { existsSync } from 'node:fs'
import { mkdir, open, readdir, readFile, stat, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { gzipSync } from 'node:zlib'
import { describe, expect, test } from 'vitest'
import { fromBinary, type JsonObject } from '@bufbuild/protobuf'
import { uidOrder } from '../../src/cache/lists/order.ts'
import { AdvisoryReader } from '../../src/catalogue/advisories/advisory-reader.ts'
import { importInProcess } from '../../src/catalogue/import/import-process.ts'
import { AdvisorySchema } from '../../src/gen/taproot/vulnerabilities/v2/advisories_pb.ts'
import { osvDocument } from '../support/import-advisories.ts'
import { tarOf, zipOf, type ArchivedFile } from './archives.ts'
import { fileOf, importPaths, temporaryFolder, testGroup } from './documents.ts'

const json = (id: string, more: JsonObject = {}): string => JSON.stringify(osvDocument(id, more))

const yaml = `id: Y-1
modified: 2026-01-01T00:00:00Z
affected:
- package:
    ecosystem: PyPI
    name: example
  ranges:
  - type: ECOSYSTEM
    events:
    - introduced: 0
    - fixed: 1.0
`

/** Resolves with the most memory of an import process of this one, besides that of the program itself, in MB. */
async function memoryOfImports(): Promise<number> {
  let most = 0
  for (const thread of await readdir('/proc/self/task')) {
    const children = await readFile(`/proc/self/task/${thread}/children`, 'utf8').catch(() => '')
    for (const child of children.split(' ').filter((text) => text !== '')) {
      // Before it runs its own program, a child has the memory and the arguments of its parent.
      const command = await readFile(`/proc/${child}/cmdline`, 'utf8').catch(() => '')
      if (!command.includes('import-process-main')) continue
      // A process may have ended.
      const status = await readFile(`/proc/${child}/status`, 'utf8').catch(() => '')
      most = Math.max(most, Number(/^RssAnon:\s+(\d+)/m.exec(status)?.[1] ?? 0) / 1024)
    }
  }
  return most
}

/** The ids in a catalogue, in order of uid, sorted. */
function idsIn(target: string): string[] {
  // Without advisories, an import writes no file.
  if (!existsSync(target)) return []
  const reader = new AdvisoryReader(target)
  try {
    const filter = { groups: [testGroup], uids: undefined, anyOf: [], noneOf: [], text: '' }
    const { advisories } = reader.page({ filter, order: uidOrder, after: undefined, skip: 0, limit: 1_000 })
    return advisories.map(({ body }) => fromBinary(AdvisorySchema, body).advisoryId).sort()
  } finally {
    reader.close()
  }
}

const files: readonly ArchivedFile[] = [
  { name: 'osv/J-1.json', content: JSON.stringify(osvDocument('J-1'), undefined, 2) },
  { name: 'osv/LICENSE', content: 'not a document' },
  { name: 'osv/lines.jsonl', content: `${json('L-1')}\n\n${json('L-2')}` },
  { name: 'osv/Y-1.yaml', content: yaml },
]

describe('what is imported', () => {
  test.each([
    ['JSON', 'one.json', json('J-1'), ['J-1']],
    ['JSON with line breaks', 'one.json', JSON.stringify(osvDocument('J-1'), undefined, 2), ['J-1']],
    ['a list in JSON', 'all.json', `\n[${json('J-1')},\n${json('J-2')}]`, ['J-1', 'J-2']],
    ['JSON lines', 'all.jsonl', `${json('L-1')}\r\n${json('L-2')}\n`, ['L-1', 'L-2']],
    ['JSON lines under another name', 'all.txt', `${json('L-1')}\n${json('L-2')}\n`, ['L-1', 'L-2']],
    ['YAML', 'one.yaml', yaml, ['Y-1']],
    ['a byte order mark', 'one.json', `\ufeff${JSON.stringify(osvDocument('J-1'), undefined, 2)}`, ['J-1']],
    ['a byte order mark before JSON lines', 'all.jsonl', `\ufeff${json('L-1')}\n${json('L-2')}\n`, ['L-1', 'L-2']],
    ['several documents in YAML', 'all.yaml', `${yaml}---\n${yaml.replace('Y-1', 'Y-2')}`, ['Y-1', 'Y-2']],
    ['a zip', 'all.zip', zipOf(files), ['J-1', 'L-1', 'L-2', 'Y-1']],
    ['a tar', 'all.tar', tarOf(files), ['J-1', 'L-1', 'L-2', 'Y-1']],
    ['a compressed tar', 'all.tar.gz', gzipSync(tarOf(files)), ['J-1', 'L-1', 'L-2', 'Y-1']],
    ['a compressed file', 'all.jsonl.gz', gzipSync(`${json('L-1')}\n${json('L-2')}\n`), ['L-1', 'L-2']],
  ] as const)('%s', async (_, name, content, ids) => {
    const { counts, refusals, target } = await importPaths([await fileOf(name, content)])
    expect(refusals).toEqual([])
    expect(counts).toMatchObject({ documents: ids.length, added: ids.length, refused: 0 })
    expect(idsIn(target)).toEqual(ids)
  })

  test('a zip with large and small files, which is read in blocks', async () => {
    // Random texts hardly shrink: the files lie over many blocks, and on their borders.
    const text = (bytes: number): string => randomBytes(bytes).toString('base64')
    const large = Array.from({ length: 60 }, (_, at) => `${json(`L-${at}`, { details: text(48 * 1024) })}\n`).join('')
    const small = Array.from({ length: 300 }, (_, at) => ({ name: `${at}.json`, content: json(`S-${at}`, { details: text(at * 10) }) }))
    const { counts, refusals, target } = await importPaths([await fileOf('all.zip', zipOf([{ name: 'large.jsonl', content: large }, ...small]))])
    expect(refusals).toEqual([])
    expect(counts).toMatchObject({ documents: 360, added: 360 })
    expect(idsIn(target)).toHaveLength(360)
  })

  test('a folder, without what links lead to', async () => {
    const folder = await temporaryFolder()
    await mkdir(join(folder, 'inner'))
    await writeFile(join(folder, 'inner', 'one.json'), json('J-1'))
    await symlink(await fileOf('other.json', json('J-2')), join(folder, 'link.json'))
    await symlink(folder, join(folder, 'inner', 'round'))
    const { counts, target } = await importPaths([folder])
    expect([counts.refused, idsIn(target)]).toEqual([0, ['J-1']])
  })

  test('one advisory for each package of a document, with what is said about it', async () => {
    const affected = [
      { package: { ecosystem: 'PyPI', name: 'one' }, ranges: [{ type: 'ECOSYSTEM', events: [{ introduced: '0' }, { fixed: '1.1' }] }] },
      { package: { ecosystem: 'npm', name: 'two' }, ranges: [{ type: 'GIT', events: [{ introduced: '0' }, { fixed: 'abc' }] }] },
      { package: { ecosystem: 'PyPI', name: 'one' }, ranges: [{ type: 'ECOSYSTEM', events: [{ introduced: '2' }, { fixed: '2.1' }, { fixed: '1.1' }] }] },
    ]
    const { target } = await importPaths([await fileOf('one.json', json('J-1', { affected }))])
    const reader = new AdvisoryReader(target)
    const filter = { groups: [testGroup], uids: undefined, anyOf: [], noneOf: [], text: '' }
    const found = reader.page({ filter, order: uidOrder, after: undefined, skip: 0, limit: 10 }).advisories.map(({ body }) => fromBinary(AdvisorySchema, body))
    reader.close()
    const fixes = found.map(({ artifactName, events }) => [
      artifactName,
      events.flatMap(({ type }) => (type.case === 'fixed' ? [type.value.fixedVersion] : [])),
    ])
    expect(Object.fromEntries(fixes)).toEqual({ one: ['1.1', '2.1'], two: [] })
  })
})

describe('what is refused, and what is imported all the same', () => {
  const good = json('J-1')
  const versionsFrom = (from: number): { fixed: string }[] => Array.from({ length: 1_000 }, (_, at) => ({ fixed: `${String(from)}.${String(at)}` }))
  const severities = Array.from({ length: 600 }, () => ({ type: 'CVSS_V3', score: 'CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H' }))
  const aliasBomb = `a: &a [x,x,x,x,x,x,x,x,x]\n${'bcdefgh'
    .split('')
    .map((name, at) => `${name}: &${name} [${`*${'abcdefg'[at] ?? ''},`.repeat(9)}]\n`)
    .join('')}id: Y\n`

  test.each([
    ['text that is no JSON', `{"id":`, /not valid JSON|not valid YAML/],
    ['a line that is no JSON', `${good}\n{"id":\n`, /:2: the text is not valid JSON/],
    ['bytes that are no UTF-8', Buffer.concat([Buffer.from(`${good}\n{"id":"`), Buffer.of(0xff), Buffer.from('"}\n')]), /:2: the text is not UTF-8/],
    ['a document without an id', `${good}\n${JSON.stringify({ modified: '2026-01-01T00:00:00Z' })}`, /:2: id is missing/],
    ['a document without a time', `${good}\n${JSON.stringify({ id: 'X', affected: [] })}`, /:2: modified is missing/],
    ['a time without a zone', `${good}\n${json('X', { modified: '2026-01-01 00:00' })}`, /:2: modified is no time/],
    ['a time of the year 10000', `${good}\n${json('X', { modified: '+010000-01-01T00:00:00Z' })}`, /:2: modified is no time/],
    ['a day that does not exist', `${good}\n${json('X', { modified: '2026-02-31T00:00:00Z' })}`, /:2: modified is no time/],
    [
      'a control character in a name',
      `${good}\n${json('X', { affected: [{ package: { ecosystem: 'PyPI', name: 'a\nb' } }] })}`,
      /:2: affected.package.name has a control/,
    ],
    ['half a character', `${good}\n${json('X').replace('"PyPI"', '"\\ud800"')}`, /:2: affected.package.ecosystem has half a character/],
    ['a name of any length', `${good}\n${json('X', { aliases: ['a'.repeat(513)] })}`, /:2: aliases has more than 512 characters/],
    ['too many aliases', `${good}\n${json('X', { aliases: Array.from({ length: 1_001 }, (_, at) => String(at)) })}`, /:2: aliases has more than 1000 items/],
    [
      'statements with too many versions together',
      `${good}\n${json('X', { affected: [0, 1].map((from) => ({ package: { ecosystem: 'PyPI', name: 'a' }, ranges: [{ events: versionsFrom(from) }] })) })}`,
      /:2: a has more than 1000 fixed versions/,
    ],
    [
      'statements with too many severities together',
      `${good}\n${json('X', { affected: [0, 1].map(() => ({ package: { ecosystem: 'PyPI', name: 'a' }, severity: severities })) })}`,
      /:2: a has more than 1000 severities/,
    ],
    [
      'long aliases of many packages',
      `${good}\n${json('X', {
        aliases: Array.from({ length: 100 }, (_, at) => String(at).padEnd(512, 'x')),
        affected: Array.from({ length: 3_000 }, (_, at) => ({ package: { ecosystem: 'PyPI', name: `a${String(at)}` } })),
      })}`,
      /:2: the advisories of the document have more than 128 Mi characters/,
    ],
    [
      'an advisory of more than 1 MiB',
      `${good}\n${json('X', { aliases: Array.from({ length: 1_000 }, (_, at) => String(at).padEnd(400, '€')) })}`,
      /:2: the advisory X about example is larger than 1 MiB/,
    ],
    ['aliases that are numbers', `${good}\n${json('X', { aliases: [1] })}`, /:2: aliases has an item that is no text/],
    ['the same id again', `${good}\n${json('J-1', { aliases: ['CVE-1'] })}`, /:2: J-1 was in an earlier document/],
    ['aliases that multiply', aliasBomb, /not valid YAML: Excessive alias count/],
    ['YAML that does not end', `${yaml}x: [`, /:1: the text is not valid YAML: .* at line 12, column 5$/],
    ['YAML with a key twice', `${yaml}id: Y-2\n`, /not valid YAML: Map keys must be unique at line 12, column 1$/],
    ['YAML whose second document is not valid', `${yaml}---\nid: "Y-2`, /not valid YAML/],
    ['YAML with too many keys', Array.from({ length: 5_000 }, (_, at) => `k${String(at)}: 1\n`).join(''), /the YAML mappings have too many keys/],
    ['YAML with many anchors', '&a '.repeat(100_000), /not valid YAML: A node can have at most one anchor at line 1, column 4$/],
    ['lists in lists', `{"id":${'['.repeat(100_000)}`, /:1: the text is not valid/],
    ['another kind of JSON', `${good}\n"text"`, /:2: the document is no object/],
    ['an unknown form', `${good}\n{"name":"example"}`, /:2: the document has none of the known forms: .*OSV/],
  ] as const)('%s', async (_, content, reason) => {
    const { counts, refusals, target } = await importPaths([await fileOf('documents.txt', content)])
    expect(refusals.map((refusal) => `${refusal.file}:${String(refusal.line)}: ${refusal.reason}`)).toEqual([expect.stringMatching(reason)])
    expect(counts.refused).toBe(1)
    expect(idsIn(target)).toEqual(content.includes(good) ? ['J-1'] : [])
  })

  test('a time of the year 9999, and HTML in texts, are taken as they are', async () => {
    const name = '<script>alert(1)</script>'
    const { counts } = await importPaths([
      await fileOf('one.json', json('J-1', { modified: '9999-12-31T23:59:59.999Z', affected: [{ package: { ecosystem: 'npm', name } }] })),
    ])
    expect(counts).toMatchObject({ added: 1, refused: 0 })
  })

  test('a scale of severity with the name of a method is left out', async () => {
    const { counts, refusals } = await importPaths([await fileOf('one.json', json('J-1', { severity: [{ type: 'constructor', score: '1' }] }))])
    expect([counts.added, refusals]).toEqual([1, []])
  })

  // docs/spec/advisories.md#one-advisory-of-a-pair
  test('a document with something of an earlier one changes nothing at all', async () => {
    const about = (...names: string[]): JsonObject => ({ affected: names.map((name) => ({ package: { ecosystem: 'PyPI', name } })) })
    const { counts, refusals, target } = await importPaths([await fileOf('two.jsonl', `${json('J-1', about('a'))}\n${json('J-1', about('b', 'a', 'c'))}`)])
    expect(refusals.map(({ line, reason }) => `${String(line)}: ${reason}`)).toEqual(['2: J-1 was in an earlier document of this import'])
    expect([counts.added, idsIn(target)]).toEqual([1, ['J-1']])
  })

  test('a line of 300 MB: refused without being kept in memory, and the next line is imported', async () => {
    const path = await fileOf('long.jsonl', `${good}\n`)
    const handle = await open(path, 'a')
    const piece = Buffer.alloc(1024 * 1024, 0x61)
    for (let at = 0; at < 300; at++) await handle.write(piece)
    await handle.write(`\n${json('J-2')}\n`)
    await handle.close()
    const before = process.memoryUsage().rss
    const { refusals, target } = await importPaths([path])
    expect(refusals.map(({ line, reason }) => `${String(line)}: ${reason}`)).toEqual(['2: the document is larger than 16 MiB'])
    expect(idsIn(target)).toEqual(['J-1', 'J-2'])
    expect(process.memoryUsage().rss - before).toBeLessThan(200 * 1024 * 1024)
  })

  test('four times as many documents need no more memory', async () => {
    // 40 MB and 160 MB. What is stored of the former fills the caches already.
    const peakOf = async (count: number): Promise<number> => {
      const path = await fileOf('many.jsonl', '')
      const handle = await open(path, 'a')
      for (let at = 0; at < count; at++) await handle.write(`${json(`J-${at}`, { details: 'x'.repeat(16_000), more: 'y'.repeat(24_000) })}\n`)
      await handle.close()
      const folder = await temporaryFolder()
      const options = { paths: [path], group: testGroup, replace: false, nowMs: 0, onRefusal: () => undefined, onProgress: () => undefined }
      const importing = importInProcess(async (kind) => ({ path: join(folder, kind), isNew: true }), options, AbortSignal.timeout(100_000))
      let isOver = false
      const watching = (async () => {
        let peak = 0
        for (; !isOver; await delay(5)) peak = Math.max(peak, await memoryOfImports())
        return peak
      })()
      const { documents, refused } = await importing.finally(() => (isOver = true))
      expect([documents, refused]).toEqual([count, 0])
      return watching
    }
    const [some, many] = [await peakOf(1_000), await peakOf(4_000)]
    expect(some).toBeGreaterThan(30)
    expect(many).toBeLessThan(300)
    expect(many - some).toBeLessThan(70)
  })

  test.each([
    ['tar', tarOf],
    ['zip', zipOf],
  ])('names in a %s lead nowhere', async (_, archiveOf) => {
    const outside = join(await temporaryFolder(), 'outside.json')
    const archive = archiveOf([
      { name: `../../../..${outside}`, content: good },
      { name: outside, content: json('J-2') },
    ])
    const { target, refusals } = await importPaths([await fileOf('archive', archive)])
    expect(refusals).toEqual([])
    expect(idsIn(target)).toEqual(['J-1', 'J-2'])
    await expect(stat(outside)).rejects.toMatchObject({ code: 'ENOENT' })
  })

  test.each([
    ['in the old form', 'S', 'sparse.json', 'all.tar'],
    ['in the form of POSIX', '0', './GNUSparseFile.123/sparse.json', 'all.tar!./GNUSparseFile.123/sparse.json'],
  ])('a sparse file in a tar %s is refused with what to do, and others are imported', async (_, type, name, place) => {
    const end = tarOf([{ name: 'good.json', content: good }])
    const sparse = tarOf([{ name, content: '1\n0\n5\n' }], type).subarray(0, 1024)
    const { counts, refusals } = await importPaths([await fileOf('all.tar', Buffer.concat([sparse, end]))])
    expect(counts).toMatchObject({ documents: 1, refused: 1, added: 1 })
    expect(refusals).toEqual([
      {
        file: expect.stringMatching(new RegExp(`/${place}$`)) as string,
        line: undefined,
        reason: expect.stringMatching(/sparse.*without --sparse$/) as string,
      },
    ])
  })

  test('links in a tar are ignored', async () => {
    const { counts } = await importPaths([await fileOf('all.tar', tarOf([{ name: 'link.json', content: '' }], '2')), await fileOf('good.json', good)])
    expect(counts).toMatchObject({ documents: 1, refused: 0 })
  })

  const zeros = Buffer.alloc(200 * 1024 * 1024)
  /** Blank lines: read to their end, because documents may follow. */
  const newlines = Buffer.alloc(50 * 1024 * 1024, '\n')

  test.each([
    ['a zip that grows', zipOf([{ name: 'bomb.json', content: zeros }, files[0] ?? { name: '', content: '' }]), /grows to more than 200 times/, ['J-1']],
    [
      'a zip whose files grow together',
      zipOf([files[0] ?? { name: '', content: '' }, ...Array.from({ length: 4 }, (_, at) => ({ name: `${String(at)}.jsonl`, content: newlines }))]),
      /grows to more than 200 times/,
      ['J-1'],
    ],
    ['a zip that lies about sizes', zipOf([{ name: 'bomb.json', content: Buffer.alloc(1024 * 1024) }], 10), /too many bytes|more than|cannot be read/, []],
    ['a compressed file that grows', gzipSync(zeros), /larger than 16 MiB|grows to more/, []],
    ['a compressed tar that goes on after its end', gzipSync(Buffer.concat([tarOf(files), zeros])), undefined, ['J-1', 'L-1', 'L-2', 'Y-1']],
    ['a zip that was cut', zipOf(files).subarray(0, -30), /cannot be read on/, []],
    ['a tar that was cut', tarOf(files).subarray(0, 1_000), /damaged|cannot be read on/, ['J-1']],
  ] as const)('%s', async (_, content, reason, ids) => {
    const { refusals, target } = await importPaths([await fileOf('archive.tar.gz', content)])
    expect(refusals.map((refusal) => refusal.reason)).toEqual(reason === undefined ? [] : [expect.stringMatching(reason)])
    expect(idsIn(target)).toEqual(ids)
  })

  test('a compressed tar that was cut: the file in it and the archive are refused', async () => {
    const { refusals, target } = await importPaths([await fileOf('all.tar.gz', gzipSync(tarOf(files)).subarray(0, 200))])
    expect(refusals.map(({ reason }) => reason)).toEqual([
      expect.stringMatching(/^the file cannot be read on: unexpected end of file/),
      expect.stringMatching(/^the archive cannot be read on: unexpected end of file/),
    ])
    expect(idsIn(target)).toEqual([])
  })

  test('what is refused replaces nothing', async () => {
    const { target } = await importPaths([await fileOf('one.jsonl', `${good}\n${json('J-2')}`)])
    const { counts } = await importPaths([await fileOf('two.jsonl', `${good}\nnot a document`)], { target, replace: true })
    expect(counts).toMatchObject({ unchanged: 1, removed: 0, refused: 1 })
    expect(idsIn(target)).toEqual(['J-1', 'J-2'])
  })
})
