import { describe, expect, test } from 'vitest'
import { digestOf } from '../../../src/base/digest.ts'
import type { ScannerReport } from '../../../src/cache/lists/scanner-reports-source.ts'
import { pageOf } from '../../../src/contents/scanner-reports/report-page.ts'
import { readReport } from '../../../src/contents/scanner-reports/report.ts'
import { Vulnerability_SeverityLevel } from '../../../src/gen/taproot/registry/v2/contents_pb.ts'
import { bytesOf } from '../reading-repo.ts'

const { HIGH, LOW } = Vulnerability_SeverityLevel
const looked: { count: number } = { count: 0 }

/** Returns a report whose vulnerabilities are counted in `looked` when they are looked at. */
function reportOf(salt: number, ids: readonly number[]): ScannerReport {
  const vulnerabilities = ids.map((id) => ({ id: `CVE-2026-${String(id).padStart(5, '0')}`, severity: id % 3 === 0 ? 'High' : 'Low', package: 'zlib' }))
  const digest = digestOf(Buffer.from(String(salt)))
  const report = readReport(bytesOf({ scanner: { name: 'own' }, vulnerabilities }), { digests: [] })
  const counted = new Proxy([...report.vulnerabilities], {
    get(target, key) {
      if (typeof key === 'string' && /^\d+$/.test(key)) looked.count += 1
      return Reflect.get(target, key) as unknown
    },
  })
  const outcome = { state: 'read', report: { ...report, vulnerabilities: counted } } as const
  return { digest, document: digest, subject: digest, pushedMs: 0, outcome }
}

// Each report has its ids in another order, and shares some with others.
const reports = Array.from({ length: 20 }, (_, at) =>
  reportOf(
    at,
    [...Array(500).keys()].map((id) => ((id * 7 + at) % 500) * (at + 1)),
  ),
)
const all = { levels: new Set<Vulnerability_SeverityLevel>(), after: undefined, skip: 0, limit: 20_000 }

describe('pages of reports', () => {
  test.each([
    ['of all', new Set<Vulnerability_SeverityLevel>()],
    ['of one severity', new Set([HIGH])],
  ])('%s have each entry once, in order', (_, levels) => {
    const whole = pageOf(reports, { ...all, levels })
    const places = whole.listed.map(({ place }) => place.join(' '))
    expect(places).toEqual(places.toSorted())
    expect(new Set(places).size).toBe(whole.total)
    const found: string[] = []
    for (let after: readonly string[] | undefined; ;) {
      const page = pageOf(reports, { levels, after, skip: 1, limit: 333 })
      found.push(...page.listed.map(({ place }) => place.join(' ')))
      expect(page.total).toBe(whole.total)
      after = page.listed.at(-1)?.place
      if (!page.hasMore || after === undefined) break
    }
    expect(found).toEqual(places.filter((__, at) => at % 334 !== 0))
  })

  test('look at the entries of the page only', () => {
    const { listed, total } = pageOf(reports, all)
    expect(total).toBe(10_000)
    looked.count = 0
    pageOf(reports, { ...all, after: listed[5_000]?.place, skip: 10, limit: 50 })
    // The page, and a binary search in each report.
    expect(looked.count).toBeLessThan(60 + 20 * 11)
  })

  test('have the counts that were made when the report was read', () => {
    const { outcome } = reportOf(0, [1, 2, 3])
    expect(outcome).toMatchObject({
      report: {
        severityCounts: [
          [LOW, 2],
          [HIGH, 1],
        ],
      },
    })
  })
})
