import { readFileSync } from 'node:fs'
import { create } from '@bufbuild/protobuf'
import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import { Ajv } from 'ajv'
import addFormats from 'ajv-formats'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { digestOf } from '../../src/base/digest.ts'
import { cycloneDxReport } from '../../src/contents/reports/cyclonedx-report.ts'
import { ImageContents_State, Vulnerability_SeverityLevel, Vulnerability_State } from '../../src/gen/taproot/registry/v2/contents_pb.ts'
import { VulnFix_State, VulnReportSchema, VulnScannerSchema, type VulnReport } from '../../src/gen/taproot/registry/v2/vuln_reports_pb.ts'
import { requirePart } from '../support/parts/require-part.ts'

/** Returns a function that checks documents with the schema that the authors of CycloneDX publish. */
function validator() {
  const ajv = new Ajv({ strict: false })
  addFormats.default(ajv)
  // What reports write as IRI is also a URI.
  for (const [iri, uri] of [
    ['iri-reference', 'uri-reference'],
    ['idn-email', 'email'],
  ] as const) {
    const format = ajv.formats[uri]
    if (format === undefined) throw new Error(`the package has no format ${uri}`)
    ajv.addFormat(iri, format)
  }
  // Reports have no licences and no signatures.
  ajv.addSchema({ not: {} }, 'http://cyclonedx.org/schema/spdx.SNAPSHOT.schema.json')
  ajv.addSchema({ definitions: { signature: { not: {} } } }, 'http://cyclonedx.org/schema/jsf-0.82.SNAPSHOT.schema.json')
  return ajv.compile(JSON.parse(readFileSync(requirePart('cyclonedx-schema'), 'utf8')) as object)
}

const numbers = <E extends number>(values: Readonly<Record<string, E | string>>): E[] => Object.values(values).filter((value) => typeof value !== 'string')
const text = fc.oneof(fc.constantFrom('', 'musl', 'a b', 'ä', '<script>', 'urn:cdx:1', '\u0000', 'x'.repeat(2_000)), fc.string())
const id = fc.oneof(fc.constantFrom('CVE-2026-1', 'GHSA-aaaa', 'PYSEC-2026-1'), fc.string({ minLength: 1 }))
const image = fc.constantFrom(digestOf(Buffer.from('one')), digestOf(Buffer.from('two')))
const found = fc.record({
  digest: image,
  purl: fc.oneof(fc.constantFrom('pkg:apk/alpine/musl@1', 'pkg:npm/%40a/b@1.0.0'), fc.string({ minLength: 1 })),
  type: fc.constant('apk'),
  name: text,
  version: text,
})
const match = fc.record({
  vulnerability: fc.record({
    id,
    aliases: fc.array(id, { maxLength: 3 }),
    severityLevel: fc.constantFrom(...numbers(Vulnerability_SeverityLevel)),
    state: fc.constantFrom(Vulnerability_State.AFFECTED, Vulnerability_State.UNDER_INVESTIGATION),
    package: found,
    note: text,
  }),
  description: text,
  relatedUrls: fc.array(
    fc.oneof(fc.webUrl(), fc.constantFrom('https://example.com/a b', 'https://exämple.com/ä', 'http://[::1]/[x]?%#a#b', 'http://[', '%', ''), fc.string()),
    {
      maxLength: 4,
    },
  ),
  cvss: fc.array(fc.record({ version: fc.constantFrom('2.0', '3.0', '3.1', '4.0', '5.0'), score: fc.constantFrom(0, 9.8, 10), vector: text }), {
    maxLength: 3,
  }),
  fix: fc.record({ state: fc.constantFrom(...numbers(VulnFix_State)), versions: fc.array(text, { maxLength: 2 }) }),
})
const reports: fc.Arbitrary<VulnReport> = fc
  .record({
    digest: image,
    matches: fc.array(match, { maxLength: 5 }),
    hasAdvisories: fc.boolean(),
    createTime: fc.option(fc.constant(timestampFromMs(1_767_225_600_123)), { nil: undefined }),
    scanner: fc.record({ name: fc.constant('taproot'), version: fc.constantFrom('', '2') }),
    images: fc.array(fc.record({ digest: image, state: fc.constantFrom(...numbers(ImageContents_State)) }), { maxLength: 2 }),
  })
  .map(({ createTime, scanner, ...report }) => {
    const times = createTime === undefined ? {} : { createTime }
    return create(VulnReportSchema, { ...report, ...times, scanner: create(VulnScannerSchema, scanner) })
  })

// docs/spec/registry.md#vulnerability-reports
test('any report is accepted by the schema of CycloneDX', () => {
  const validate = validator()
  fc.assert(
    fc.property(reports, fc.constantFrom('app', 'ä b'), (report, name) => {
      const document = JSON.parse(Buffer.from(cycloneDxReport(report, name)).toString()) as { version: number; components: { 'bom-ref': string }[] }
      expect([validate(document), validate.errors]).toEqual([true, null])
      expect(document.version).toBe(1)
      const refs = document.components.map((component) => component['bom-ref'])
      expect(new Set(refs).size).toBe(refs.length)
    }),
    { numRuns: 500 },
  )
})

test('the schema refuses a report with a wrong word', () => {
  const validate = validator()
  const document = JSON.parse(Buffer.from(cycloneDxReport(create(VulnReportSchema, { digest: digestOf(Buffer.from('one')) }), 'app')).toString()) as object
  expect(validate(document)).toBe(true)
  expect(validate({ ...document, compositions: [{ aggregate: 'whole' }] })).toBe(false)
})
