import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { startTestServer } from '../../support/test-server.ts'
import { describeOnChosenStore, requirePart } from '../../support/parts/require-part.ts'
import { makeDirectory } from './directory.ts'

/** One check and what came of it. */
interface Result {
  readonly status: string
  readonly title: string
  readonly reason: string
}

describeOnChosenStore('the SCIM server', (store) => {
  test('RFC 7643, RFC 7644 passes an independent checker: discovery, users, patches of every attribute, projections', async () => {
    const checker = requirePart('scim2-tester')
    const server = await startTestServer({ store })
    try {
      const { endpoint, scimToken } = await makeDirectory(server)
      const env = { ...process.env, SCIM_URL: endpoint, SCIM_TOKEN: scimToken }
      const { stdout } = await promisify(execFile)(checker, [join(import.meta.dirname, 'check-server.py')], { env, maxBuffer: 64 * 1024 * 1024 })
      const results = JSON.parse(stdout) as Result[]
      expect(results.filter(({ status }) => !['SUCCESS', 'COMPLIANT', 'ACCEPTABLE'].includes(status))).toEqual([])
      // It creates checks from the server's discovery documents.
      expect(results.length).toBeGreaterThan(90)
      expect(server.logs.filter(({ level }) => level === 'error')).toEqual([])
    } finally {
      await server.stop()
    }
  })
})
