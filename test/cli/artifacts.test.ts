import { expect, test } from 'vitest'
import { get, type GetRequest } from '../../src/cli/get.ts'
import { importDocuments, pypiDocument } from '../support/import-advisories.ts'
import { makeOrganisation, startTestServer } from '../support/test-server.ts'
import { contextOf } from './client-world.ts'

test('taproot get prints artifacts, and the versions of one whose uid has a slash', async () => {
  const server = await startTestServer()
  try {
    const { group, token } = await makeOrganisation(server)
    const packument = { name: '@example/lib', 'dist-tags': {}, versions: { '1.9.0': {}, '1.10.0': { dist: { unpackedSize: 12 } } } }
    await importDocuments(server, group, [packument, pypiDocument('example', ['1.0'])])
    const run = async (request: Partial<GetRequest> & { kind: string }): Promise<string> => {
      const context = contextOf(server, token)
      await get(context, { record: undefined, filter: [], format: 'table', ...request })
      return context.printed()
    }
    const filter = ['ecosystems=ECOSYSTEM_NPM', 'ecosystems=ECOSYSTEM_PYTHON', 'query=EXAMPLE']
    const [head = '', ...rows] = (await run({ kind: 'artifacts', filter, orderBy: 'name' })).trim().split('\n')
    expect(head.split(/\s{2,}/)).toEqual(['NAME', 'ECOSYSTEM', 'LATEST', 'VERSIONS', 'UPDATED', 'DESCRIPTION'])
    expect(rows.map((row) => row.split(/\s{2,}/).slice(0, 4))).toEqual([
      ['@example/lib', 'npm', '1.10.0', '2'],
      ['example', 'python', '1.0', '1'],
    ])
    const versions = await run({ kind: 'versions', in: 'npm:@example/lib', format: 'json' })
    expect((JSON.parse(versions) as { version: string }[]).map(({ version }) => version)).toEqual(['1.10.0', '1.9.0'])
    await expect(run({ kind: 'artifacts' })).rejects.toThrow('ecosystems')
  } finally {
    await server.stop()
  }
})
