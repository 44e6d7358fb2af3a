import { createHash } from 'node:crypto'
import { join } from 'node:path'
import { create } from '@bufbuild/protobuf'
import { expect, onTestFinished, test } from 'vitest'
import { orderOf } from '../../src/cache/lists/order.ts'
import type { AdvisoryQuery } from '../../src/cache/lists/advisory-source.ts'
import { AdvisoryBuilder } from '../../src/catalogue/advisories/advisory-builder.ts'
import { AdvisoryThread } from '../../src/catalogue/advisories/advisory-thread.ts'
import { AdvisorySchema } from '../../src/gen/taproot/vulnerabilities/v2/advisories_pb.ts'
import { slowness } from '../budgets.ts'
import { longestTurn } from '../support/longest-turn.ts'
import { osvDocument, importDocuments } from '../support/import-advisories.ts'
import { ok, startTestServer } from '../support/test-server.ts'
import { temporaryFolder, testGroup } from './documents.ts'

/** Writes a catalogue with this many advisories. */
async function catalogueOf(count: number): Promise<string> {
  const path = join(await temporaryFolder(), 'advisories.sqlite')
  const builder = new AdvisoryBuilder({ path, group: testGroup, isNew: true })
  for (let at = 0; at < count; at += 1) {
    const segment = createHash('sha256').update(String(at)).digest('hex').slice(0, 16)
    builder.put({ segment, origin: 'origin', advisory: create(AdvisorySchema, { advisoryId: `ID-${at}`, artifactName: `package-${at}`.repeat(10) }) })
  }
  builder.finish({ source: 'test', nowMs: 0 })
  return path
}

/** Opens a catalogue, and returns the time in milliseconds of its first answer to the query. */
async function firstAnswerMs(path: string, { query, before }: { readonly query: AdvisoryQuery; readonly before?: AdvisoryThread }): Promise<number> {
  const thread = await AdvisoryThread.open(path, before)
  const turn = { key: '', signal: AbortSignal.timeout(60_000) }
  // Any other query, which compiles what all need.
  await thread.page({ ...query, filter: { ...query.filter, text: 'id-1' } }, turn)
  const start = performance.now()
  await thread.page(query, turn)
  const took = performance.now() - start
  await thread.close()
  return took
}

test('a new catalogue knows the answers to the last queries of the one before', async () => {
  const path = await catalogueOf(20_000)
  const filter = { groups: [testGroup], uids: undefined, anyOf: [], noneOf: [], text: 'package-1' }
  const query: AdvisoryQuery = { filter, order: orderOf([{ field: 'uid', descending: false }]), after: undefined, skip: 0, limit: 1 }
  const before = await AdvisoryThread.open(path)
  onTestFinished(() => before.close())
  await before.page(query, { key: '', signal: AbortSignal.timeout(60_000) })
  const [known, unknown]: [number[], number[]] = [[], []]
  for (let round = 0; round < 5; round += 1) {
    known.push(await firstAnswerMs(path, { query, before }))
    unknown.push(await firstAnswerMs(path, { query }))
  }
  expect(Math.min(...known)).toBeLessThan(Math.min(...unknown) / 2)
})

test('no request fails while catalogues are switched, and the event loop waits for none of it', async () => {
  const server = await startTestServer()
  onTestFinished(() => server.stop())
  const token = await server.operatorToken()
  const group = String(ok(await server.rest.call('CreateGroup', { group: { name: 'acme' } }, { token }))['uid'])
  const documents = Array.from({ length: 500 }, (_, at) => osvDocument(`D-${at}`))
  await importDocuments(server, group, documents)
  await importDocuments(server, group, [osvDocument('D-500')])
  let isOver = false
  const totals = new Set<unknown>()
  const asking = [server.rest, server.grpc].flatMap((client) =>
    [{}, { query: 'd-1' }, { artifactNames: ['example'] }, { orderBy: 'updateTime desc', skip: 100 }].map(async (request) => {
      while (!isOver) {
        const { totalCount } = ok(await client.call('ListAdvisories', { pageSize: 5, ...request }, { token }))
        if (!('query' in request)) totals.add(totalCount)
      }
    }),
  )
  const { catalogues } = ok(await server.rest.call('ListCatalogues', {}, { token })) as { catalogues: { kind: string; digest: string }[] } // the list's answer
  const digests = catalogues.flatMap(({ kind, digest }) => (kind === 'advisories' ? [digest] : []))
  expect(digests).toHaveLength(2)
  const switchAll = async (): Promise<void> => {
    for (let round = 0; round < 10; round += 1) {
      const before = served(server.logs)
      ok(await server.rest.call('UseCatalogue', { digest: digests[(round + 1) % 2] ?? '' }, { token }))
      while (served(server.logs) === before) await new Promise(setImmediate)
    }
  }
  const { longestMs } = await longestTurn(switchAll).finally(() => (isOver = true))
  await Promise.all(asking)
  expect([...totals].sort()).toEqual(['500', '501'])
  expect(longestMs).toBeLessThan(60 * slowness())
})

function served(logs: readonly { readonly message: string }[]): number {
  return logs.filter(({ message }) => message === 'the catalogue is served').length
}
