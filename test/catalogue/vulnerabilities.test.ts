import { open } from 'node:fs/promises'
import { gzipSync } from 'node:zlib'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { fromBinary, toJson, type JsonObject, type JsonValue } from '@bufbuild/protobuf'
import { documentsOf } from '../../src/catalogue/import/documents.ts'
import { formatOf } from '../../src/catalogue/import/formats/formats.ts'
import { RefusedDocument } from '../../src/catalogue/import/members.ts'
import { VulnerabilityReader } from '../../src/catalogue/vulnerabilities/vulnerability-reader.ts'
import { VulnerabilityMetadataSchema } from '../../src/gen/taproot/advisory/v2/advisory_pb.ts'
import { osvDocument } from '../support/import-advisories.ts'
import { isFullTier } from '../support/tier.ts'
import { fileOf, fileOfKind, importPaths, testGroup } from './documents.ts'

/** All vulnerabilities in a catalogue, by id. */
function vulnerabilitiesIn(target: string): Record<string, JsonValue> {
  const reader = new VulnerabilityReader(fileOfKind(target, 'vulnerabilities'))
  try {
    const { vulnerabilities } = reader.page({ ids: undefined, descending: false, after: undefined, skip: 0, limit: 10_000 })
    return Object.fromEntries(vulnerabilities.map(({ id, body }) => [id, toJson(VulnerabilityMetadataSchema, fromBinary(VulnerabilityMetadataSchema, body))]))
  } finally {
    reader.close()
  }
}

const vector = {
  v2: 'AV:N/AC:L/Au:N/C:P/I:P/A:P',
  v3: 'CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H',
  v4: 'CVSS:4.0/AV:N/AC:L/AT:N/PR:N/UI:N/VC:H/VI:H/VA:H/SC:N/SI:N/SA:N',
}
const scored = (vectorString: string, type = 'Primary'): JsonObject => ({ source: 'nvd@example.com', type, cvssData: { vectorString } })

function cveOf(id: string, more: JsonObject = {}): JsonObject {
  return { cve: { id, descriptions: [{ lang: 'en', value: `About ${id}` }], references: [], metrics: {}, ...more } }
}

function feedOf(vulnerabilities: JsonValue, more: JsonObject = {}): JsonObject {
  return {
    resultsPerPage: 1,
    startIndex: 0,
    totalResults: 1,
    format: 'NVD_CVE',
    version: '2.0',
    timestamp: '2026-01-01T00:00:00.000',
    vulnerabilities,
    ...more,
  }
}

const nvdFeed = feedOf([
  cveOf('CVE-2026-1', {
    descriptions: [
      { lang: 'es', value: 'Un texto' },
      { lang: 'en', value: 'A text' },
    ],
    metrics: {
      cvssMetricV2: [scored(vector.v2)],
      cvssMetricV31: [scored('CVSS:3.1/other', 'Secondary'), scored(vector.v3)],
      cvssMetricV40: [scored(vector.v4)],
    },
    references: [{ url: 'https://example.com/a', tags: ['Patch', 'Vendor Advisory'] }, { url: 'https://example.com/b' }],
  }),
  cveOf('CVE-2025-7'),
])

const kevCatalogue: JsonObject = {
  title: 'Known exploited vulnerabilities',
  catalogVersion: '2026.01.02',
  dateReleased: '2026-01-02T00:00:00.000Z',
  count: 2,
  vulnerabilities: [
    {
      cveID: 'CVE-2026-1',
      vulnerabilityName: 'A name',
      shortDescription: 'Short',
      dateAdded: '2026-01-02',
      dueDate: '2026-02-02',
      knownRansomwareCampaignUse: 'Known',
    },
    {
      cveID: 'CVE-2024-2',
      vulnerabilityName: 'B name',
      shortDescription: 'Brief',
      dateAdded: '2024-05-06',
      dueDate: '2024-06-06',
      knownRansomwareCampaignUse: 'Unknown',
    },
  ],
}

const epssTable = '#model_version:v2026.01.01,score_date:2026-01-02T00:00:00Z\ncve,epss,percentile\nCVE-2026-1,0.94321,0.99911\nCVE-1999-3,1e-05,0\n'

describe('vulnerabilities from', () => {
  test('NVD: texts, links and scores, newest version first', async () => {
    const { refusals, target } = await importPaths([await fileOf('nvd.json', JSON.stringify(nvdFeed, undefined, 2))])
    expect(refusals).toEqual([])
    expect(vulnerabilitiesIn(target)).toEqual({
      'CVE-2025-7': { id: 'CVE-2025-7', details: 'About CVE-2025-7' },
      'CVE-2026-1': {
        id: 'CVE-2026-1',
        details: 'A text',
        references: [
          { type: 'TYPE_FIX', url: 'https://example.com/a' },
          { type: 'TYPE_WEB', url: 'https://example.com/b' },
        ],
        severities: [
          { type: 'TYPE_CVSS_V4', score: vector.v4 },
          { type: 'TYPE_CVSS_V3', score: vector.v3 },
          { type: 'TYPE_CVSS_V3', score: 'CVSS:3.1/other' },
          { type: 'TYPE_CVSS_V2', score: vector.v2 },
        ],
      },
    })
  })

  test('EPSS: a table with a comment before it, compressed', async () => {
    const { counts, rows, target } = await importPaths([await fileOf('epss.csv.gz', gzipSync(epssTable.replaceAll('\n', '\r\n')))])
    expect(counts).toMatchObject({ documents: 2, refused: 0 })
    expect(rows.get('vulnerabilities')).toMatchObject({ added: 2 })
    expect(vulnerabilitiesIn(target)).toEqual({
      'CVE-1999-3': { id: 'CVE-1999-3', epssScore: 0.00001, epssPercentile: 0 },
      'CVE-2026-1': { id: 'CVE-2026-1', epssScore: 0.94321, epssPercentile: 0.99911 },
    })
  })

  test('KEV: the day and what it is used for', async () => {
    const { counts, target } = await importPaths([await fileOf('kev.json', JSON.stringify(kevCatalogue))])
    expect(counts).toMatchObject({ documents: 2, refused: 0 })
    expect(vulnerabilitiesIn(target)).toEqual({
      'CVE-2024-2': { id: 'CVE-2024-2', summary: 'B name', details: 'Brief', knownExploitedTime: '2024-05-06T00:00:00Z' },
      'CVE-2026-1': { id: 'CVE-2026-1', summary: 'A name', details: 'Short', knownExploitedTime: '2026-01-02T00:00:00Z', knownRansomware: true },
    })
  })

  test('OSV without packages: no group is needed', async () => {
    const { counts, rows, target } = await importPaths([await fileOf('one.json', JSON.stringify(osvDocument('CVE-2026-1', { affected: [], summary: 'S' })))], {
      group: undefined,
    })
    expect([counts.refused, [...rows.keys()]]).toEqual([0, ['vulnerabilities']])
    expect(vulnerabilitiesIn(target)).toEqual({ 'CVE-2026-1': { id: 'CVE-2026-1', summary: 'S' } })
  })

  // docs/spec/vulnerability-metadata.md#merged-sources
  test('all sources together, whatever their order', async () => {
    const osv = osvDocument('CVE-2026-1', { affected: [], summary: 'S', details: 'D', references: [{ type: 'WEB', url: 'https://example.com/osv' }] })
    const files = [
      ['osv.json', JSON.stringify(osv)],
      ['nvd.json', JSON.stringify(nvdFeed)],
      ['kev.json', JSON.stringify(kevCatalogue)],
      ['epss.csv', epssTable],
    ] as const
    const found: JsonValue[] = []
    for (const order of [files, [...files].reverse()]) {
      const paths = await Promise.all(order.map(([name, content]) => fileOf(name, content)))
      const { target } = await importPaths(paths)
      found.push(vulnerabilitiesIn(target)['CVE-2026-1'] ?? null)
      // Imported again, nothing changes.
      expect((await importPaths(paths, { target })).rows.get('vulnerabilities')).toMatchObject({ added: 0, changed: 0, removed: 0, unchanged: 7 })
    }
    expect(found[0]).toMatchObject({
      ...{ summary: 'S', details: 'A text', epssScore: 0.94321, knownRansomware: true },
      references: [{ url: 'https://example.com/a' }, { url: 'https://example.com/b' }],
    })
    expect(found[1]).toEqual(found[0])
  })

  test('replacing removes parts of the same source only', async () => {
    const nvd = await fileOf('nvd.json', JSON.stringify(feedOf([cveOf('CVE-2026-1'), cveOf('CVE-2026-2'), cveOf('CVE-2025-7')])))
    const { target } = await importPaths([nvd, await fileOf('kev.json', JSON.stringify(kevCatalogue))])
    const year = await fileOf('nvd.json', JSON.stringify(feedOf([cveOf('CVE-2026-2')])))
    expect((await importPaths([year], { target, replace: true })).rows.get('vulnerabilities')).toMatchObject({ unchanged: 1, removed: 1 })
    // Another year, and what KEV says, stay.
    expect(vulnerabilitiesIn(target)).toMatchObject({ 'CVE-2025-7': {}, 'CVE-2026-1': { details: 'Short' }, 'CVE-2026-2': { details: 'About CVE-2026-2' } })
  })
})

describe('what is refused, and what is imported all the same', () => {
  const good = cveOf('CVE-2026-1')
  const long = 'x'.repeat(256 * 1024 + 1)

  test.each([
    ['an id that is none', [good, cveOf('GHSA-1')], /cve.id is no id such as/],
    ['a text of any length', [good, cveOf('CVE-2026-2', { descriptions: [{ lang: 'en', value: long }] })], /value has more than 262144 characters/],
    ['a control character', [good, cveOf('CVE-2026-2', { descriptions: [{ lang: 'en', value: 'a\u0000' }] })], /value has a control character/],
    ['a link of any length', [good, cveOf('CVE-2026-2', { references: [{ url: `https://example.com/${'a'.repeat(2_048)}` }] })], /more than 2048 characters/],
    [
      'links of more than a MiB together',
      [good, cveOf('CVE-2026-2', { references: Array.from({ length: 1_000 }, (_, at) => ({ url: `https://example.com/${'a'.repeat(2_000)}${String(at)}` })) })],
      /larger than 1 MiB/,
    ],
    ['a score without a vector', [good, cveOf('CVE-2026-2', { metrics: { cvssMetricV31: [{ cvssData: {} }] } })], /vectorString is no text/],
    ['the same id again', [good, good], /CVE-2026-1 was in an earlier document/],
    ['an item that is no object', [good, 1], /no object/],
  ] as const)('NVD: %s', async (_, items, reason) => {
    const { refusals, target } = await importPaths([await fileOf('nvd.json', JSON.stringify(feedOf(items as unknown as JsonValue)))])
    expect(refusals.map((refusal) => refusal.reason)).toEqual([expect.stringMatching(reason)])
    expect(Object.keys(vulnerabilitiesIn(target))).toEqual(['CVE-2026-1'])
  })

  test.each([
    ['a number that is none', 'CVE-2026-2,high,0.5', /:3: epss is no number from 0 to 1/],
    ['a number above 1', 'CVE-2026-2,0.5,1.5', /:3: percentile is no number/],
    ['a number in hex', 'CVE-2026-2,0x1,0.5', /:3: epss is no number/],
    ['a row with too many cells', 'CVE-2026-2,0.5,0.5,0.5', /:3: the row has 4 cells, and the table has 3 columns/],
    ['a row without an id', ',0.5,0.5', /:3: cve is missing/],
  ])('EPSS: %s', async (_, row, reason) => {
    const { refusals, target } = await importPaths([await fileOf('epss.csv', `cve,epss,percentile\nCVE-2026-1,0.5,0.5\n${row}\nCVE-2026-3,0.5,0.5\n`)])
    expect(refusals.map((refusal) => `:${String(refusal.line)}: ${refusal.reason}`)).toEqual([expect.stringMatching(reason)])
    expect(Object.keys(vulnerabilitiesIn(target))).toEqual(['CVE-2026-1', 'CVE-2026-3'])
  })

  test('KEV: a day that does not exist', async () => {
    const items = [
      { cveID: 'CVE-2026-1', dateAdded: '2026-02-31' },
      { cveID: 'CVE-2026-2', dateAdded: '2026-02-28' },
    ]
    const { refusals, target } = await importPaths([await fileOf('kev.json', JSON.stringify({ catalogVersion: '1', vulnerabilities: items }))])
    expect(refusals.map(({ reason }) => reason)).toEqual(['dateAdded is no day such as 2026-01-31'])
    expect(Object.keys(vulnerabilitiesIn(target))).toEqual(['CVE-2026-2'])
  })
})

describe('a list that is larger than a document', () => {
  const count = 3_000
  const cves = (broken = -1): JsonObject[] =>
    Array.from({ length: count }, (_, at) =>
      cveOf(at === broken ? 'broken' : `CVE-2026-${String(at)}`, { descriptions: [{ lang: 'en', value: `"}],[{\\" ${'x'.repeat(6_000)}` }] }),
    )

  test.each([
    ['in one line', JSON.stringify(feedOf(cves()))],
    ['with line breaks', JSON.stringify(feedOf(cves()), undefined, 2)],
    ['with members after it', JSON.stringify(feedOf(cves(), { after: { list: ['"]}', 1] } }))],
    ['one page after the other', `${JSON.stringify(feedOf(cves().slice(0, 1_000)))}\n${JSON.stringify(feedOf(cves().slice(1_000)))}\n`],
    ['without anything around it', JSON.stringify(cves())],
  ])('is read %s', async (_, content) => {
    expect(content.length).toBeGreaterThan(16 * 1024 * 1024)
    const { counts, refusals, rows } = await importPaths([await fileOf('nvd.json', content)])
    expect(refusals).toEqual([])
    expect([counts.documents, rows.get('vulnerabilities')?.added]).toEqual([count, count])
  })

  test('one bad item is refused with its line, and the rest is imported', async () => {
    const { refusals, rows } = await importPaths([await fileOf('nvd.json', JSON.stringify(feedOf(cves(1_500)), undefined, 1))])
    const [{ line = 0 } = {}] = refusals
    expect([refusals.length, rows.get('vulnerabilities')?.added]).toEqual([1, count - 1])
    expect(JSON.stringify(feedOf(cves(1_500)), undefined, 1).split('\n')[line + 1]).toContain('"id": "broken"')
  })

  test('a file that was cut off removes nothing', async () => {
    const content = JSON.stringify(feedOf(cves()))
    const { refusals, rows } = await importPaths([await fileOf('nvd.json', content.slice(0, -1_000_000))], { replace: true })
    expect(refusals.map(({ reason }) => reason)).toEqual([expect.stringMatching(/^the JSON does not end/)])
    expect(rows.get('vulnerabilities')).toMatchObject({ removed: 0 })
  })

  test('memory does not grow with the file', async () => {
    const path = await fileOf('nvd.json', '')
    const handle = await open(path, 'a')
    await handle.write(JSON.stringify(feedOf([])).slice(0, -2))
    const item = JSON.stringify(cveOf('GHSA-1', { descriptions: [{ lang: 'en', value: 'x'.repeat(200_000) }] }))
    for (let at = 0; at < 500; at++) await handle.write(`${at === 0 ? '' : ','}${item}`)
    await handle.write(`,${JSON.stringify(cveOf('CVE-2026-1'))}]}`)
    await handle.close()
    const before = process.memoryUsage().rss
    const { counts, rows } = await importPaths([path])
    expect([counts.refused, rows.get('vulnerabilities')?.added]).toEqual([500, 1])
    expect(process.memoryUsage().rss - before).toBeLessThan(150 * 1024 * 1024)
  })
})

describe('any input', () => {
  const names = ['id', 'cve', 'cveID', 'modified', 'affected', 'severity', 'type', 'score', 'url', 'references', 'metrics', 'epss', 'percentile', 'dateAdded']
  const more = [
    'aliases',
    'package',
    'ecosystem',
    'name',
    'ranges',
    'events',
    'descriptions',
    'value',
    'lang',
    'summary',
    'details',
    'vulnerabilities',
    'format',
  ]
  const leaf = fc.oneof(
    fc.constantFrom('CVE-2026-1', '2026-01-01T00:00:00Z', '2026-01-01', 'en', 'constructor', '__proto__', 'https://example.com', 'NVD_CVE', '0.5', 'CVSS_V3'),
    fc.string({ unit: 'binary', maxLength: 8 }),
    fc.constantFrom(null, true, 0, -1, 1e308),
  )
  const { value } = fc.letrec<{ value: unknown }>((tie) => ({
    value: fc.oneof(
      { depthSize: 'medium', withCrossShrink: true },
      leaf,
      fc.array(tie('value'), { maxLength: 3 }),
      fc.dictionary(fc.constantFrom(...names, ...more), tie('value'), { maxKeys: 6 }),
    ),
  }))

  test('random JSON is imported, or refused with a reason', () => {
    const context = { group: () => testGroup, nowMs: 0 }
    fc.assert(
      fc.property(fc.dictionary(fc.constantFrom(...names, ...more), value, { maxKeys: 10 }), (document) => {
        try {
          const { format, document: members } = formatOf(document)
          void [...format.rowsOf(members, context)]
        } catch (error) {
          expect(error).toBeInstanceOf(RefusedDocument)
        }
      }),
      { numRuns: isFullTier ? 50_000 : 2_000 },
    )
  })

  test('random JSON in random pieces yields the same documents as JSON.parse', async () => {
    const padding = 'x'.repeat(1024 * 1024)
    await fc.assert(
      fc.asyncProperty(
        fc.array(value, { maxLength: 6 }),
        fc.array(fc.integer({ min: 1, max: 60 }), { minLength: 1, maxLength: 8 }),
        fc.boolean(),
        async (items, sizes, isFeed) => {
          // The padding makes the file large enough to be split.
          const all = [{ padding }, ...items]
          const bytes = Buffer.from(JSON.stringify(isFeed ? { format: 'NVD_CVE', vulnerabilities: all, x: [']'] } : all))
          const found = []
          for await (const document of documentsOf(piecesOf(bytes, sizes, padding.length))) found.push('value' in document ? document.value : document)
          const expected = (JSON.parse(JSON.stringify(all)) as unknown[]).flatMap((item) => listIn(item) ?? [item])
          expect(found).toEqual(expected)
        },
      ),
      { numRuns: isFullTier ? 500 : 40 },
    )
  })

  test('random CSV is imported, or refused with a reason', async () => {
    await fc.assert(
      fc.asyncProperty(fc.string({ unit: 'binary', maxLength: 60 }), async (text) => {
        for await (const document of documentsOf(piecesOf(Buffer.from(`cve,epss,percentile\n${text}`), [7], 0))) {
          if (!('value' in document)) continue
          try {
            const { format, document: members } = formatOf(document.value)
            void [...format.rowsOf(members, { group: () => testGroup, nowMs: 0 })]
          } catch (error) {
            expect(error).toBeInstanceOf(RefusedDocument)
          }
        }
      }),
      { numRuns: isFullTier ? 5_000 : 500 },
    )
  })
})

/** The items of an object that only holds a list. */
function listIn(item: unknown): unknown[] | undefined {
  const { format, vulnerabilities } = (typeof item === 'object' && item !== null && !Array.isArray(item) ? item : {}) as JsonObject
  return format === 'NVD_CVE' && Array.isArray(vulnerabilities) ? vulnerabilities : undefined
}

/** Yields the first bytes whole, and the rest in pieces of these sizes. */
async function* piecesOf(bytes: Buffer, sizes: readonly number[], first: number): AsyncGenerator<Uint8Array, void, undefined> {
  yield bytes.subarray(0, first)
  for (let at = first, number = 0; at < bytes.length; number++) {
    const size = sizes[number % sizes.length] ?? 1
    yield await Promise.resolve(bytes.subarray(at, at + size))
    at += size
  }
}
