import type { ReportedVulnerability, ScannerReport } from '../../cache/lists/scanner-reports-source.ts'
import type { Vulnerability_SeverityLevel } from '../../gen/taproot/registry/v2/contents_pb.ts'
import { comparePlaces } from '../vulnerability-message.ts'

/** The digits of the place of a vulnerability in its report. */
const placeDigits = 5

/** A vulnerability, the report that has it, and its place in the list. */
export interface Listed {
  readonly one: ReportedVulnerability
  readonly report: ScannerReport
  readonly place: readonly string[]
}

/** What a page has: vulnerabilities of some severities, of all if none are named, after a place. */
interface PageQuery {
  readonly levels: ReadonlySet<Vulnerability_SeverityLevel>
  readonly after: readonly string[] | undefined
  readonly skip: number
  readonly limit: number
}

/** One page of a list. */
interface ReportPage {
  readonly listed: readonly Listed[]
  readonly hasMore: boolean
  /** The number of entries in all pages. */
  readonly total: number
}

/** A report, and the number of its next vulnerability. */
interface Head extends Listed {
  readonly at: number
}

function vulnerabilitiesIn({ outcome }: ScannerReport): readonly ReportedVulnerability[] {
  return outcome.state === 'read' ? outcome.report.vulnerabilities : []
}

/** Returns the first number from 0 to `count` for which `holds` is true; `count` if there is none. It is true for all numbers after it. */
function firstOf(count: number, holds: (at: number) => boolean): number {
  let [low, high] = [0, count]
  while (low < high) {
    const middle = (low + high) >>> 1
    if (holds(middle)) high = middle
    else low = middle + 1
  }
  return low
}

function placeAt(report: ScannerReport, { id, name }: ReportedVulnerability, at: number): readonly string[] {
  return [id, name, report.digest, report.document, String(at).padStart(placeDigits, '0')]
}

/** Returns the first vulnerability of a report from a number on that has one of the severities. */
function headFrom(report: ScannerReport, start: number, levels: PageQuery['levels']): Head | undefined {
  const all = vulnerabilitiesIn(report)
  for (let at = start; ; at += 1) {
    const one = all[at]
    if (one === undefined) return undefined
    if (levels.size === 0 || levels.has(one.level)) return { one, report, place: placeAt(report, one, at), at }
  }
}

function insert(heads: Head[], head: Head | undefined): void {
  if (head !== undefined)
    heads.splice(
      firstOf(heads.length, (at) => comparePlaces((heads[at] as Head).place, head.place) > 0),
      0,
      head,
    ) // a cast: it is in the list
}

function startOf(report: ScannerReport, after: PageQuery['after']): number {
  if (after === undefined) return 0
  const all = vulnerabilitiesIn(report)
  return firstOf(all.length, (at) => comparePlaces(placeAt(report, all[at] as ReportedVulnerability, at), after) > 0) // a cast: it is in the list
}

/** Returns a page of what reports found, sorted by id, package and report. Of each report, only the entries up to the end of the page are looked at. */
export function pageOf(reports: readonly ScannerReport[], { levels, after, skip, limit }: PageQuery): ReportPage {
  let total = 0
  const heads: Head[] = []
  for (const report of reports) {
    const counts = report.outcome.state === 'read' ? report.outcome.report.severityCounts : []
    for (const [level, count] of counts) if (levels.size === 0 || levels.has(level)) total += count
    insert(heads, headFrom(report, startOf(report, after), levels))
  }
  const listed: Listed[] = []
  for (let passed = 0; passed < skip + limit; passed += 1) {
    const next = heads.shift()
    if (next === undefined) break
    if (passed >= skip) listed.push(next)
    insert(heads, headFrom(next.report, next.at + 1, levels))
  }
  return { listed, hasMore: heads.length > 0, total }
}
