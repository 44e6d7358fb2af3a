import { open } from 'node:fs/promises'
import { gzipSync } from 'node:zlib'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { fromBinary, toJson, type JsonObject, type JsonValue } from '@bufbuild/protobuf'
import { VulnerabilityReader } from '../../src/catalogue/vulnerabilities/vulnerability-reader.ts'
import { VulnerabilityMetadataSchema } from '../../src/gen/taproot/advisory/v2/advisory_pb.ts'
import { osvDocument } from '../support/import-advisories.ts'
import { isFullTier } from '../support/tier.ts'
import { fileOf, fileOfKind, importPaths } from './documents.ts'

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
    ['a word for a number', 'CVE-2026-2,high,0.5', /:3: epss is no number from 0 to 1/],
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

describe('pages', () => {
  test('of any ids, order, place and size are those of a sorted list', async () => {
    const all = Array.from({ length: 120 }, (_, at) => `${['CVE', 'GHSA', 'é', 'z\u{1f41b}'][at % 4] ?? ''}-${String(at * 7)}`)
    const { target } = await importPaths([
      await fileOf('all.jsonl', all.map((id) => `${JSON.stringify(osvDocument(id, { affected: [], summary: id }))}\n`).join('')),
    ])
    const reader = new VulnerabilityReader(fileOfKind(target, 'vulnerabilities'))
    const id = fc.oneof({ weight: 3, arbitrary: fc.constantFrom(...all) }, { weight: 1, arbitrary: fc.string({ unit: 'grapheme', maxLength: 5 }) })
    const query = fc.record({
      ids: fc.option(fc.uniqueArray(id, { minLength: 1, maxLength: 20 }), { nil: undefined }),
      descending: fc.boolean(),
      after: fc.option(id, { nil: undefined }),
      skip: fc.oneof(fc.nat({ max: 30 }), fc.constant(2_147_483_647)),
      limit: fc.integer({ min: 1, max: 200 }),
    })
    const compare = (a: string, b: string): number => Buffer.compare(Buffer.from(a), Buffer.from(b))
    fc.assert(
      fc.property(query, (asked) => {
        const sign = asked.descending ? -1 : 1
        const found = all.filter((one) => asked.ids === undefined || asked.ids.includes(one)).sort((a, b) => sign * compare(a, b))
        const rest = found.filter((one) => asked.after === undefined || sign * compare(one, asked.after) > 0).slice(asked.skip)
        const page = reader.page(asked)
        expect({ ids: page.vulnerabilities.map((one) => one.id), hasMore: page.hasMore, total: page.total }).toEqual({
          ids: rest.slice(0, asked.limit),
          hasMore: rest.length > asked.limit,
          total: found.length,
        })
      }),
      { numRuns: isFullTier ? 5_000 : 500 },
    )
    reader.close()
  })

  test('end before they are larger than clients accept', async () => {
    const ids = Array.from({ length: 40 }, (_, at) => `CVE-2026-${String(at + 10)}`)
    const lines = ids.map((id) => `${JSON.stringify(osvDocument(id, { affected: [], details: 'x'.repeat(200_000) }))}\n`)
    const { target } = await importPaths([await fileOf('all.jsonl', lines.join(''))])
    const reader = new VulnerabilityReader(fileOfKind(target, 'vulnerabilities'))
    const found: string[] = []
    for (let hasMore = true; hasMore;) {
      const page = reader.page({ ids: undefined, descending: false, after: found.at(-1), skip: 0, limit: 200 })
      expect(page.vulnerabilities.reduce((sum, { body }) => sum + body.length, 0)).toBeLessThan(3_200_000)
      found.push(...page.vulnerabilities.map(({ id }) => id))
      hasMore = page.hasMore
    }
    reader.close()
    expect(found).toEqual(ids)
  })
})
