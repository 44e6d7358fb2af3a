import { once } from 'node:events'
import { stat } from 'node:fs/promises'
import { createConnection } from 'node:net'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { expect, onTestFinished, test } from 'vitest'
import { importInServer, serveImports } from '../../src/catalogue/import/import-socket.ts'
import { Catalogues } from '../../src/catalogue/index.ts'
import { createDiskUpstream } from '../../src/registry/upstream/disk/disk-upstream.ts'
import { systemClock, systemRandom } from '../../src/server/runtime.ts'
import { silentLog, soon } from '../store/store-harness.ts'
import { osvDocument } from '../support/import-advisories.ts'
import { ok, startTestServer } from '../support/test-server.ts'
import { fileOf, temporaryFolder } from './documents.ts'

const watcher = { onRefusal: () => undefined, onProgress: () => undefined }

async function startSocket(): Promise<{
  catalogues: Catalogues
  dataDir: string
  send(bytes: string): Promise<string>
  abandon(bytes: string): Promise<void>
}> {
  const server = await startTestServer({ keepsContent: false })
  onTestFinished(() => server.stop())
  ok(await server.rest.call('CreateGroup', { group: { name: 'acme' } }, { token: await server.operatorToken() }))
  const { store, cache } = server.running.engine
  const own = { clock: systemClock, random: systemRandom }
  const upstream = await createDiskUpstream({ directory: await temporaryFolder(), ...own })
  const catalogues = new Catalogues({ store, cache, upstream, directory: await temporaryFolder(), log: silentLog, ...own })
  const dataDir = await temporaryFolder()
  onTestFinished(await serveImports({ dataDir, catalogues, tables: cache.tables, log: silentLog }))
  const connect = () => createConnection(join(dataDir, 'import.sock'))
  return {
    catalogues,
    dataDir,
    send: async (bytes) => {
      const socket = connect()
      socket.write(bytes)
      return text(socket)
    },
    abandon: async (bytes) => {
      const socket = connect()
      await once(socket, 'connect')
      socket.write(bytes)
      socket.destroy()
    },
  }
}

const request = (path: string): string => `${JSON.stringify({ paths: [path], group: 'acme', replace: false, dryRun: false })}\n`

test('only the owner of the data folder can ask for imports', async () => {
  const { dataDir } = await startSocket()
  expect((await stat(join(dataDir, 'import.sock'))).mode & 0o777).toBe(0o600)
})

test('requests that cannot be read are refused, commands that go away are left, and the next command imports', async () => {
  const { catalogues, dataDir, send, abandon } = await startSocket()
  const many = Array.from({ length: 3_000 }, (_, at) => `${JSON.stringify(osvDocument(`B-${at}`))}\n`)
  const [large, small] = [await fileOf('large.jsonl', many.join('')), await fileOf('small.jsonl', `${JSON.stringify(osvDocument('A-1'))}\n`)]
  for (const [bytes, error] of [
    ['no JSON\n', 'not valid JSON'],
    ['x'.repeat(1024 * 1024 + 1), 'the request is too long'],
    [request('/none'), '/none: no such file or directory'],
    [request(small).replace('acme', 'none'), 'there is no group'],
  ] as const)
    expect(await send(bytes), error).toContain(error)
  for (const bytes of ['', '{"pa', request(large), request(large)]) await abandon(bytes)
  const done = await importInServer({ dataDir, paths: [small], group: 'acme', replace: false, dryRun: false, watcher }, soon())
  expect(done).toMatchObject({ documents: 1, refused: 0 })
  expect(done?.rows.get('advisories')).toMatchObject({ added: 1 })
  // Nothing that the commands asked for which went away.
  expect((await catalogues.kept(soon())).filter(({ kind }) => kind === 'advisories')).toHaveLength(1)
})

test('without a server there is no answer, and the command imports itself', async () => {
  const dataDir = await temporaryFolder()
  expect(await importInServer({ dataDir, paths: [], group: 'acme', replace: false, dryRun: false, watcher }, soon())).toBeUndefined()
})
