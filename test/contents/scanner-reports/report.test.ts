import { describe, expect, test } from 'vitest'
import { digestOf } from '../../../src/base/digest.ts'
import { readReport } from '../../../src/contents/scanner-reports/report.ts'
import { Vulnerability_SeverityLevel } from '../../../src/gen/taproot/registry/v2/contents_pb.ts'
import { bundleOf, bytesOf, envelopeOf, statementOf } from '../reading-repo.ts'
import { cosignVuln, grype, harbor, sarif, trivy, vulns } from './report-samples.ts'

const about = digestOf(Buffer.from('an image'))
const read = (document: unknown): ReturnType<typeof readReport> => readReport(bytesOf(document), { digests: [about] })
const vulnsType = 'https://in-toto.io/attestation/vulns/v0.1'
const cosignType = 'https://cosign.sigstore.dev/attestation/vuln/v1'

const levelNames: ReadonlyMap<number, string> = new Map(Object.entries(Vulnerability_SeverityLevel).map(([name, level]) => [level, name]))

/** The rows of a report: `id severity type name version fixed-version locations`, with `-` for what is empty. */
const rowsOf = (document: unknown): string[] =>
  read(document).vulnerabilities.map(({ id, level, type, name, version, fixedVersion, locations }) =>
    [id, levelNames.get(level) ?? '', type, name, version, fixedVersion, locations.join(',')].map((text) => text || '-').join(' '),
  )

const grypeRows = ['CVE-2026-0001 CRITICAL apk openssl 3.3.1-r0 3.3.2-r0 /lib/apk/db/installed', 'GHSA-aaaa-bbbb-cccc NEGLIGIBLE - left 1 - -']
const vulnsRows = ['CVE-2026-0009 HIGH - - - - -', 'CVE-2026-0010 CRITICAL - - - - -']
const trivyUri = 'pkg:github/aquasecurity/trivy@0.66.0'

// docs/spec/registry.md#reports-of-scanners
describe('a report', () => {
  test.each([
    ['grype', grype, 'GRYPE grype 0.93.0 2026-11-01T10:00:00.000Z', grypeRows],
    [
      'Trivy',
      trivy,
      'TRIVY trivy 0.66.0 2026-11-02T10:00:00.500Z',
      ['CVE-2026-0002 HIGH apk musl 1.2.5-r0 1.2.5-r1 -', 'CVE-2026-0003 UNKNOWN - left-pad 1.0.0 - app/package-lock.json'],
    ],
    [
      'SARIF',
      sarif,
      'SARIF Trivy 0.66.0 2026-11-03T10:00:00.000Z',
      ['CVE-2026-0004 CRITICAL - busybox 1.36 1.37 lib/apk/db/installed', 'CVE-2026-0005 MEDIUM deb zlib1g 1.3 - -', 'style LOW - - - - -'],
    ],
    ['a scanner for Harbor', harbor, 'HARBOR_REPORT Clair 4.8 2026-11-04T10:00:00.000Z', ['CVE-2026-0008 HIGH - bash 5.1 5.2 -']],
    ['a statement', statementOf(about, vulns, vulnsType), `VULNERABILITY_PREDICATE ${trivyUri} 0.66.0 2026-11-05T10:00:00.000Z`, vulnsRows],
    ['version 0.2 in DSSE', envelopeOf(statementOf(about, vulns, 'https://in-toto.io/attestation/vulns/v0.2')), /^VULN/, vulnsRows],
    ['a bundle of sigstore', bundleOf(statementOf(about, vulns, vulnsType)), /^VULN/, vulnsRows],
    ['cosign', envelopeOf(statementOf(about, cosignVuln, cosignType)), 'VULNERABILITY_PREDICATE grype 0.93.0 2026-11-05T10:00:00.000Z', grypeRows],
    ['nothing found', { ...grype, matches: [] }, /^GRYPE/, []],
  ])('of %s is read', (_, document, facts, rows) => {
    const { format, scanner, scannerVersion, createdMs = NaN } = read(document)
    const said = [format, scanner, scannerVersion, new Date(createdMs).toISOString()].join(' ')
    if (typeof facts === 'string') expect(said).toBe(facts)
    else expect(said).toMatch(facts)
    expect(rowsOf(document)).toEqual(rows)
  })

  const deep = Buffer.from('['.repeat(200_000))
  test.each([
    ['another image', statementOf(digestOf(Buffer.from('another')), vulns, vulnsType), 'WRONG_DIGEST'],
    ['another predicate', statementOf(about, vulns, 'https://slsa.dev/provenance/v1'), 'UNSUPPORTED_FORM'],
    ['an older version of SARIF', { ...sarif, version: '2.0.0' }, 'UNSUPPORTED_FORM'],
    ['an older version of Trivy', { ...trivy, SchemaVersion: 1 }, 'UNSUPPORTED_FORM'],
    ['an unknown form', { some: 'thing' }, 'UNSUPPORTED_FORM'],
    ['a predicate with a result of an unknown form', { ...vulns, scanner: { result: { some: 'thing' } } }, 'UNSUPPORTED_FORM'],
    ['a text in place of a list', { ...grype, matches: 'many' }, 'UNREADABLE'],
    ['too many vulnerabilities', { ...grype, matches: Array(10_001).fill(grype.matches[0]) }, 'TOO_LARGE'],
  ])('about %s is refused', (_, document, problem) => {
    expect(() => read(document)).toThrowError(expect.objectContaining({ problem }) as Error)
  })

  test.each([
    ['no JSON', Buffer.from('{"matches": ['), 'UNREADABLE'],
    ['no text', Buffer.from([0x7b, 0xff, 0xfe]), 'UNREADABLE'],
    ['a list', Buffer.from('[]'), 'UNSUPPORTED_FORM'],
    ['a deep object', Buffer.concat([Buffer.from('{"matches":'), deep]), 'TOO_LARGE'],
  ])('that is %s is refused', (_, bytes, problem) => {
    expect(() => readReport(bytes, { digests: [about] })).toThrowError(expect.objectContaining({ problem }) as Error)
  })

  test('of any values has texts only', () => {
    const odd = [null, 70, 'x'.repeat(600), 'two\nlines', { a: 1 }, ['a'], '\ud800', -1, '10.1', 'NaN']
    for (const value of odd) {
      const match = {
        vulnerability: { id: 'CVE-2026-0001', severity: value, fix: { versions: value } },
        artifact: { name: value, version: value, purl: value, locations: value },
      }
      const [found] = read({ ...grype, matches: [match], descriptor: { name: value, timestamp: value } }).vulnerabilities
      expect(found).toMatchObject({ id: 'CVE-2026-0001', level: Vulnerability_SeverityLevel.UNKNOWN, purl: '', locations: [] })
    }
  })

  const sarifRowsOf = (result: object, rules: readonly object[] = [], extensions: readonly object[] = []): string[] =>
    rowsOf({ version: '2.1.0', runs: [{ tool: { driver: { name: 'own', rules }, extensions }, results: [result] }] })

  test('of SARIF has a severity that is not known if its message says so', () => {
    const rules = [{ id: 'CVE-2026-0004', properties: { 'security-severity': '0.0' } }]
    const unknown = { ruleId: 'CVE-2026-0004', ruleIndex: 0, message: { text: 'Package: zlib\nSeverity: UNKNOWN' } }
    expect(sarifRowsOf(unknown, rules)).toEqual(['CVE-2026-0004 UNKNOWN - zlib - - -'])
    expect(sarifRowsOf({ ...unknown, message: { text: 'Package: zlib' } }, rules)).toEqual(['CVE-2026-0004 NEGLIGIBLE - zlib - - -'])
  })

  test('of a predicate has the score of the method that knows one', () => {
    const severity = ['unknown', '9.1'].map((score) => ({ method: 'own', score }))
    expect(rowsOf({ ...vulns, scanner: { ...vulns.scanner, result: [{ id: 'CVE-2026-0001', severity }] } })).toEqual(['CVE-2026-0001 CRITICAL - - - - -'])
  })

  test('of SARIF has the rule that a number and an id name', () => {
    const rule = (id: string, score: string): object => ({ id, properties: { 'security-severity': score } })
    const rules = [rule('CVE-2026-0001', '9.8'), rule('CVE-2026-0002', '5.0')]
    const extensions = [{ name: 'first' }, { name: 'second', rules: [rule('CVE-2026-0003', '7.5')] }]
    const levelOf = (result: object): string | undefined => sarifRowsOf(result, rules, extensions)[0]?.split(' ', 2).join(' ')
    expect(levelOf({ ruleId: 'CVE-2026-0002', ruleIndex: 0 })).toBe('CVE-2026-0002 MEDIUM')
    expect(levelOf({ ruleId: 'CVE-2026-0001/python', ruleIndex: 0 })).toBe('CVE-2026-0001/python CRITICAL')
    expect(levelOf({ ruleIndex: 0 })).toBe('CVE-2026-0001 CRITICAL')
    expect(levelOf({ rule: { index: 0, toolComponent: { index: 1 } } })).toBe('CVE-2026-0003 HIGH')
    expect(levelOf({ ruleId: 'CVE-2026-0003', rule: { index: 5, toolComponent: { index: 1 } } })).toBe('CVE-2026-0003 HIGH')
    expect(levelOf({ ruleId: 'CVE-2026-0003', rule: { index: 0, toolComponent: { index: 7 } }, level: 'note' })).toBe('CVE-2026-0003 LOW')
  })

  test('of SARIF has paths without percent encoding', () => {
    const at = (uri: string): object => ({ physicalLocation: { artifactLocation: { uri } } })
    const locations = ['usr/lib/a%20b.jar', 'file:///opt/app%2Fx', 'odd%zz', 'https://example.com/a'].map(at)
    expect(sarifRowsOf({ ruleId: 'CVE-2026-0001', locations })).toEqual([
      'CVE-2026-0001 MEDIUM - - - - usr/lib/a b.jar,/opt/app/x,odd%zz,https://example.com/a',
    ])
  })
})
