import { performance } from 'node:perf_hooks'
import { create } from '@bufbuild/protobuf'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { ScimUserSchema } from '../../../src/gen/taproot/store/v1/scim_pb.ts'
import { ChangeSet, newEtag } from '../../../src/engine/change-set.ts'
import { newUid } from '../../../src/engine/write.ts'
import { scimUserKind } from '../../../src/iam/scim/scim-users.ts'
import { factsOfUser } from '../../../src/iam/scim/scim-values.ts'
import type { Resource } from '../../../src/cache/records/cached-record.ts'
import { startTestServer, type TestServer } from '../../support/test-server.ts'
import { makeDirectory, type Directory } from './directory.ts'

const many = 10_000
/** Number of users, with three keys each, that fit into one transaction. */
const batch = 40

/** Writes users to the store like the SCIM server, many at a time. */
async function fill({ running }: TestServer, { provider }: Directory): Promise<void> {
  const { store, cache, services } = running.engine
  const signal = AbortSignal.timeout(120_000)
  for (let at = 0; at < many; at += batch) {
    const changes = new ChangeSet()
    for (let user = at; user < at + batch; user++) {
      const facts = factsOfUser({ userName: `user-${user}@example.org`, externalId: `id-${user}`, displayName: `User ${user}`, active: true })
      const record = create(ScimUserSchema, facts) as Resource
      changes.create(scimUserKind, {
        uid: newUid(services, provider),
        record,
        facts: { etag: newEtag(services.random), createMs: 1, updateMs: 1, managedBy: '' },
      })
    }
    const outcome = await store.transact(changes, signal)
    if (!outcome.committed) throw new Error('not committed')
    if (at + batch >= many) await cache.reached(outcome.revision, signal)
  }
}

// Lists are answered from memory, whichever the store.
describe('SCIM with 10,000 users', () => {
  let server: TestServer
  let large: Directory
  let small: Directory

  beforeAll(async () => {
    server = await startTestServer()
    large = await makeDirectory(server)
    small = await makeDirectory(server)
    for (let user = 0; user < 10; user++) await small.add({ userName: `user-${user}@example.org`, externalId: `id-${user}`, displayName: `User ${user}` })
    await fill(server, large)
  })
  afterAll(() => server.stop())

  /** Returns the median time of each work. The works alternate, so that other programs slow all alike. */
  async function mediansMs(works: readonly (() => Promise<unknown>)[]): Promise<number[]> {
    const times = works.map((): number[] => [])
    for (let run = 0; run < 31; run++) {
      for (const [at, work] of works.entries()) {
        const start = performance.now()
        await work()
        times[at]?.push(performance.now() - start)
      }
    }
    return times.map((all) => all.toSorted((one, other) => one - other)[15] ?? 0)
  }

  test.each([
    ['a page', 'Users?startIndex=3&count=5'],
    ['a look-up by userName', `Users?filter=${encodeURIComponent('userName eq "USER-7@example.org"')}`],
    ['a look-up by userName and externalId', `Users?filter=${encodeURIComponent('externalId eq "id-7" and userName eq "user-7@example.org"')}`],
  ])('SCIM with 10,000 users takes about the same time as with 10 users: %s', { retry: 3 }, async (_name, path) => {
    for (const directory of [large, small]) await directory.expecting(200, 'GET', path)
    const [few = 0, more = 0] = await mediansMs([small, large].map((directory) => () => directory.ask('GET', path)))
    expect(more / few).toBeLessThan(4)
  })

  test('SCIM with 10,000 users lists all of them once, page by page, and finds them by any filter', async () => {
    const seen = new Set<string>()
    for (let start = 1; start <= many; start += 200) {
      const page = await large.expecting(200, 'GET', `Users?startIndex=${start}&count=200&attributes=userName`)
      expect(page['totalResults']).toBe(many)
      for (const { id } of page['Resources'] as { id: string }[]) seen.add(id)
    }
    expect(seen.size).toBe(many)
    expect(await large.expecting(200, 'GET', `Users?filter=${encodeURIComponent('displayName ew "99"')}&count=1`)).toMatchObject({
      totalResults: 100,
      itemsPerPage: 1,
    })
  })

  test('SCIM with 10,000 users yields to other requests during a filter over all users', { retry: 3 }, async () => {
    const filter = encodeURIComponent('displayName co "unknown"')
    const scan = large.expecting(200, 'GET', `Users?filter=${filter}`)
    let answered = 0
    let isOver = false
    const others = (async (): Promise<void> => {
      while (!isOver) {
        await small.expecting(200, 'GET', 'Users?count=1')
        if (!isOver) answered += 1
      }
    })()
    await scan
    isOver = true
    await others
    expect(answered).toBeGreaterThan(0)
  })
})
