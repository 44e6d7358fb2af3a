import { readFile } from 'node:fs/promises'
import { resolve } from 'node:path'
import * as csafTests from '@secvisogram/csaf-validator-lib/basic.js'
import { Ajv2020 } from 'ajv/dist/2020.js'
import { describe, expect, test } from 'vitest'
import { fromBinary } from '@bufbuild/protobuf'
import { AdvisoryReader } from '../../src/catalogue/advisories/advisory-reader.ts'
import { exportDocument } from '../../src/catalogue/exports/export-tasks.ts'
import { AdvisorySchema, type Advisory } from '../../src/gen/taproot/vulnerabilities/v2/advisories_pb.ts'
import { fileOf, importPaths, testGroup } from './documents.ts'
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

/** A schema in the shared data; undefined if it is not there. */
async function schemaOf(name: string): Promise<object | undefined> {
  const path = resolve(`../shared/data/schemas/${name}.json`)
  return readFile(path, 'utf8').then(
    (text) => JSON.parse(text) as object,
    () => undefined,
  )
}

const forms = Object.entries(samples)

// docs/spec/advisories.md#advisory-exports
describe.each(forms)('advisories from %s', (_, sample) => {
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
    for (const document of (await exportsOf(sample, 'osv')).flat()) expect(advisoriesOf(document)).not.toEqual([])
  })

  test.each(['openvex', 'osv'] as const)('as %s, they pass the schema', async (format) => {
    const schema = await schemaOf(format)
    const documents = (await exportsOf(sample, format)).flat()
    // Without the schema, only what the other tests look at is known.
    if (schema === undefined) return
    const validate = new Ajv2020({ strict: false, validateFormats: false }).compile(schema)
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
