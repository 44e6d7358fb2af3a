import * as csafTests from '@secvisogram/csaf-validator-lib/basic.js'
import { describe, expect, test } from 'vitest'
import { fromBinary } from '@bufbuild/protobuf'
import { AdvisoryReader } from '../../src/catalogue/advisories/advisory-reader.ts'
import { exportDocument } from '../../src/catalogue/exports/export-tasks.ts'
import { AdvisorySchema, type Advisory } from '../../src/gen/taproot/vulnerabilities/v2/advisories_pb.ts'
import { fileOf, importPaths, testGroup } from './documents.ts'
import { exportSchemas } from './export-schemas.ts'
import { advisoriesOf } from './formats/rows.ts'
import { samples } from './formats/samples.ts'

type Format = 'openvex' | 'csaf' | 'osv'

/** The advisories of a document, by origin package, as the catalogue has them. */
async function importedFrom(document: unknown): Promise<{ readonly byOrigin: ReadonlyMap<string, readonly Uint8Array[]>; readonly builtMs: number }> {
  const { target } = await importPaths([await fileOf('document', JSON.stringify(document))])
  const reader = new AdvisoryReader(target)
  const found = reader.byOrigin({ groups: [testGroup], origin: undefined, ids: undefined, maxAdvisories: 1_000, maxBytes: 1_000_000 }) ?? []
  const byOrigin = new Map([...Map.groupBy(found, ({ origin }) => origin)].map(([origin, some]) => [origin, some.map(({ body }) => body)]))
  const { builtMs } = reader
  reader.close()
  return { byOrigin, builtMs }
}

/** All exports of a document in one form. */
async function exportsOf(document: unknown, format: Format): Promise<unknown[]> {
  const { byOrigin, builtMs } = await importedFrom(document)
  const facts = { groups: [testGroup], format, publisher: 'Example Corp', baseUrl: 'https://taproot.example.com', maxAdvisories: 1_000, maxBytes: 1_000_000 }
  return [...byOrigin].map(([origin, bodies]) => JSON.parse(Buffer.from(exportDocument(bodies, { ...facts, origin }, builtMs)).toString()) as unknown)
}

const forms = Object.entries(samples)
/** Samples about packages of distributions that they do not name: OSV has no ecosystem for them. */
const withoutEcosystem: ReadonlySet<string> = new Set(['packageAdvisories', 'csaf', 'apkDatabase'])

// docs/spec/advisories.md#advisory-exports
describe.each(forms)('advisories from %s', (form, sample) => {
  test('as CSAF, they pass the schema and the mandatory tests', async () => {
    const documents = await exportsOf(sample, 'csaf')
    expect(documents).not.toEqual([])
    for (const document of documents) {
      for (const [name, run] of Object.entries(csafTests)) {
        const { isValid = true, errors = [] } = ((await run(document)) ?? {}) as { isValid?: boolean; errors?: unknown[] } // the result of each test
        expect([name, isValid, errors]).toEqual([name, true, []])
      }
    }
  })

  test('as OpenVEX, they say the same when they are imported again', async () => {
    const { byOrigin } = await importedFrom(sample)
    const before = [...byOrigin.values()].flat().map((body) => fromBinary(AdvisorySchema, body))
    const after = (await exportsOf(sample, 'openvex')).flatMap((document) => advisoriesOf(document))
    const statuses = (advisories: readonly Advisory[]): string[] =>
      [...new Set(advisories.flatMap(({ advisoryId, events }) => events.map(({ type }) => `${advisoryId} ${statusNames[type.case ?? ''] ?? ''}`)))].sort()
    expect(statuses(after)).toEqual(statuses(before))
  })

  test('as OSV, they can be imported again', async () => {
    const documents = (await exportsOf(sample, 'osv')).flat()
    expect(documents.length > 0).toBe(!withoutEcosystem.has(form))
    for (const document of documents) expect(advisoriesOf(document)).not.toEqual([])
  })

  test.each(['openvex', 'osv'] as const)('as %s, they pass the schema', async (format) => {
    const validate = exportSchemas[format]
    const documents = (await exportsOf(sample, format)).flat()
    expect(documents.length > 0).toBe(format === 'openvex' || !withoutEcosystem.has(form))
    for (const document of documents) expect([validate(document), validate.errors]).toEqual([true, null])
  })
})

/** The status of VEX that each type of event has. */
const statusNames: Readonly<Record<string, string>> = {
  detection: 'under investigation',
  truePositiveDetermination: 'affected',
  analysisNotPlanned: 'affected',
  fixNotPlanned: 'affected',
  pendingUpstreamFix: 'affected',
  falsePositiveDetermination: 'not affected',
  fixed: 'fixed',
  patched: 'fixed',
}
