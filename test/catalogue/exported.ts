import { readFileSync } from 'node:fs'
import * as csafTests from '@secvisogram/csaf-validator-lib/basic.js'
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js'
import addFormats from 'ajv-formats'
import { expect } from 'vitest'
import type { CvssScore } from '../../src/cache/lists/vulnerability-source.ts'
import type { PackageAdvisory } from '../../src/cache/lists/advisory-source.ts'
import { AdvisoryReader } from '../../src/catalogue/advisories/advisory-reader.ts'
import { exportDocument } from '../../src/catalogue/exports/export-tasks.ts'
import { requirePart } from '../support/parts/require-part.ts'
import { fileOf, importPaths, testGroup } from './documents.ts'

/** The forms of exports. */
export type ExportFormat = 'openvex' | 'csaf' | 'osv'

/** What was imported. */
interface Imported {
  readonly byOrigin: ReadonlyMap<string, readonly PackageAdvisory[]>
  readonly builtMs: number
}

/** The advisories of documents, by origin package, as the catalogue has them. */
export async function importedFrom(documents: readonly unknown[], ecosystem?: string): Promise<Imported> {
  const { target, refusals } = await importPaths([await fileOf('documents.jsonl', documents.map((one) => `${JSON.stringify(one)}\n`).join(''))], { ecosystem })
  expect(refusals).toEqual([])
  const reader = new AdvisoryReader(target)
  const found = reader.byOrigin({ groups: [testGroup], origin: undefined, ids: undefined, maxAdvisories: 100_000, maxBytes: 100_000_000 }, true) ?? []
  const byOrigin = Map.groupBy(found, ({ origin }) => origin)
  const { builtMs } = reader
  reader.close()
  return { byOrigin, builtMs }
}

/** All exports in one form: for OSV one document for each id of a package, otherwise one for each package. */
export function exportsFrom({ byOrigin, builtMs }: Imported, format: ExportFormat, scores: ReadonlyMap<string, readonly CvssScore[]> = new Map()): unknown[] {
  const facts = {
    groups: [testGroup],
    format,
    publisher: 'Example Corp',
    baseUrl: 'https://taproot.example.com',
    maxAdvisories: 1_000,
    maxBytes: 1_000_000,
    scores,
  }
  return [...byOrigin].flatMap(([origin, stored]) => JSON.parse(Buffer.from(exportDocument(stored, { ...facts, origin }, builtMs)).toString()) as unknown)
}

/** The same, of one document. */
export async function exportsOf(
  document: unknown,
  format: ExportFormat,
  { ecosystem, scores }: { readonly ecosystem?: string | undefined; readonly scores?: ReadonlyMap<string, readonly CvssScore[]> } = {},
): Promise<unknown[]> {
  return exportsFrom(await importedFrom([document], ecosystem), format, scores)
}

const validators = new Map<string, ValidateFunction>()

/** The published schema of a form. The first use needs its part. */
function schemaOf(format: 'openvex' | 'osv'): ValidateFunction {
  const known = validators.get(format)
  if (known !== undefined) return known
  const path = requirePart(`${format}-schema`)
  const ajv = new Ajv2020({ strict: false })
  addFormats.default(ajv)
  // What exports write as IRI is also a URI.
  const { uri } = ajv.formats
  if (uri === undefined) throw new Error('the package has no format for URIs')
  ajv.addFormat('iri', uri)
  const compiled = ajv.compile(JSON.parse(readFileSync(path, 'utf8')) as object)
  validators.set(format, compiled)
  return compiled
}

/** Checks documents with the schema that the authors of the form publish, and CSAF also with its mandatory tests. */
export async function assertAccepted(format: ExportFormat, documents: readonly unknown[]): Promise<void> {
  for (const document of documents) {
    if (format !== 'csaf') {
      const validate = schemaOf(format)
      expect([validate(document), validate.errors]).toEqual([true, null])
      continue
    }
    for (const [name, run] of Object.entries(csafTests)) {
      const { isValid = true, errors = [] } = ((await run(document)) ?? {}) as { isValid?: boolean; errors?: unknown[] } // the result of each test
      expect([name, isValid, errors]).toEqual([name, true, []])
    }
  }
}
