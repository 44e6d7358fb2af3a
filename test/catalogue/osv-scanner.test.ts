import type { JsonObject } from '@bufbuild/protobuf'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { hasPypaData, importDocuments, osvDocument, pypaDocuments } from '../support/import-advisories.ts'
import { scanPython, zipOf, type PythonDocument } from '../support/parts/osv-scanner.ts'
import { makeOrganisation, startTestServer, type TestServer } from '../support/test-server.ts'

/** The fixed versions of packages with one document and one range, which nothing affects. */
function fixedIn(documents: readonly PythonDocument[]): string[] {
  const byName = Map.groupBy(
    documents.flatMap(({ affected }) => affected),
    (statement) => statement.package.name,
  )
  return [...byName].flatMap(([name, [one, ...others]]) => {
    const [range, second] = one?.ranges?.filter(({ type }) => type === 'ECOSYSTEM') ?? []
    const version = range?.events.length === 2 ? range.events[1]?.['fixed'] : undefined
    return others.length > 0 || second !== undefined || version === undefined ? [] : [`${name}==${version}`]
  })
}

function aboutPackage(name: string, ...ranges: Record<string, string>[][]): JsonObject {
  return { affected: ranges.map((events) => ({ package: { ecosystem: 'PyPI', name }, ranges: [{ type: 'ECOSYSTEM', events }] })) }
}

// docs/spec/advisories.md#advisory-exports
describe('osv-scanner', () => {
  let server: TestServer | undefined
  beforeAll(async () => {
    server = await startTestServer({ store: 'sqlite' })
  })
  afterAll(() => server?.stop())

  test('finds the same in the exported zip as in the documents that were imported', async () => {
    if (server === undefined) throw new Error('no server yet')
    const { group, token } = await makeOrganisation(server)
    const own = [
      osvDocument('PYSEC-2026-1', aboutPackage('taproot-one', [{ introduced: '0' }, { fixed: '1.2.3' }])),
      osvDocument('PYSEC-2026-2', aboutPackage('taproot-two', [{ introduced: '1' }, { last_affected: '2' }], [{ introduced: '3' }, { fixed: '4rc1' }])),
    ]
    const documents = [...own, ...(hasPypaData ? await pypaDocuments({ nth: 15 }) : [])] as PythonDocument[] // documents of this database are about packages
    // Scanners pass over ecosystems that they do not know.
    const unknown = osvDocument('LUNAR-1', { affected: [{ package: { ecosystem: 'Lunar', name: 'taproot-one' } }] })
    expect((await importDocuments(server, group, [...documents, unknown])).refusals).toEqual([])
    const response = await fetch(`${server.config.baseUrl}/advisory/v2/osv.zip`, { headers: { authorization: `Bearer ${token}` } })
    const exported = Buffer.from(await response.arrayBuffer())

    const affected = documents.flatMap((document) =>
      document.affected.flatMap(({ package: { name }, versions = [] }) =>
        [...versions.slice(0, 1), ...versions.slice(-1)].map((version) => `${name}==${version}`),
      ),
    )
    const requirements = [...new Set([...affected, 'taproot-one==1.2.2', 'taproot-two==2', 'taproot-two==3.9'])]
    const found = await scanPython(exported, requirements)
    expect(found).toEqual(await scanPython(zipOf(documents), requirements))
    expect(['taproot-one==1.2.2', 'taproot-two==2', 'taproot-two==3.9'].map((one) => found.get(one))).toEqual([
      ['PYSEC-2026-1'],
      ['PYSEC-2026-2'],
      ['PYSEC-2026-2'],
    ])
    expect(found.size).toBeGreaterThan(hasPypaData ? 100 : 2)

    const fixed = [...fixedIn(documents), 'taproot-two==2.0.1', 'taproot-two==4rc1', 'taproot-two==0.9']
    expect(fixed.length).toBeGreaterThan(hasPypaData ? 20 : 3)
    expect(await scanPython(exported, fixed)).toEqual(new Map())
  })
})
