import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { scimErrorAnswer } from '../../../src/iam/scim/http/scim-endpoints.ts'
import { openSession } from '../../../src/iam/scim/http/scim-session.ts'
import { DomainError } from '../../../src/base/errors.ts'
import { parseFilter } from '../../../src/iam/scim/scim-filter.ts'
import { listScimUsers } from '../../../src/iam/scim/scim-list.ts'
import { createScimUser } from '../../../src/iam/scim/scim-users.ts'
import { startTestServer, type TestServer } from '../../support/test-server.ts'
import { makeDirectory, patchOf, type Directory } from './directory.ts'

const many = 150
const mebibyte = 1024 * 1024

// Lists are answered from memory, whichever the store.
describe('SCIM with users of the maximum size', () => {
  let server: TestServer
  let directory: Directory

  beforeAll(async () => {
    server = await startTestServer()
    directory = await makeDirectory(server)
    const roles = Array.from({ length: 8 }, (_, at) => ({ value: `${at}${'x'.repeat(3900)}` }))
    for (let at = 0; at < many; at += 10) await Promise.all(Array.from({ length: 10 }, (_, more) => directory.add({ userName: `large-${at + more}`, roles })))
  })
  afterAll(() => server.stop())

  test('RFC 7644 3.4.2.4 SCIM with users of the maximum size ends a page at about 4 MiB, and the next page continues', async () => {
    const seen: string[] = []
    let pages = 0
    while (seen.length < many && pages < many) {
      const reply = await directory.ask('GET', `Users?startIndex=${seen.length + 1}&count=200`)
      const found = reply.body['Resources'] as { userName: string }[]
      expect([reply.status, reply.body['totalResults'], reply.body['itemsPerPage']]).toEqual([200, many, found.length])
      expect(Buffer.byteLength(reply.text)).toBeLessThan(5 * mebibyte)
      expect(found.length).toBeGreaterThan(0)
      seen.push(...found.map(({ userName }) => userName))
      pages += 1
    }
    expect(new Set(seen).size).toBe(many)
    expect(pages).toBe(2)
  })

  // docs/spec/scim.md#scim-users
  test('SCIM with users of the maximum size refuses a user over 32 KiB with 413 and changes nothing, by POST, PUT and PATCH', async () => {
    const id = await directory.add({ userName: 'grows', externalId: 'grows' })
    const before = (await directory.ask('GET', `Users/${id}`)).text
    const roles = Array.from({ length: 9 }, (_, at) => ({ value: `${at}${'x'.repeat(4000)}` }))
    for (const [method, path, more] of [
      ['POST', 'Users', { body: { userName: 'too large', roles } }],
      ['PUT', `Users/${id}`, { body: { userName: 'grows', roles } }],
      ['PATCH', `Users/${id}`, patchOf(...roles.map((value) => ({ op: 'add', path: 'roles', value })))],
    ] as const) {
      expect((await directory.ask(method, path, more)).status).toBe(413)
    }
    expect((await directory.ask('GET', `Users/${id}`)).text).toBe(before)
    expect((await directory.ask('DELETE', `Users/${id}`)).status).toBe(204)
  })

  test('SCIM with users of the maximum size yields to other requests every few users during an expensive filter', async () => {
    const { services } = server.running.engine
    const filter = parseFilter(Array.from({ length: 90 }, () => `roles co "${'x'.repeat(25)}y"`).join(' or '))
    const asked = { provider: directory.provider as never, endpoint: '', query: { filter, startIndex: 1, count: 1, projection: { without: [] } } }
    let turns = 0
    let isOver = false
    const count = (): void => {
      turns += 1
      if (!isOver) setImmediate(count)
    }
    setImmediate(count)
    const { totalResults } = await listScimUsers(services, asked, AbortSignal.timeout(60_000))
    isOver = true
    expect(totalResults).toBe(0)
    expect(turns).toBeGreaterThan(5)
  })

  test('SCIM with users of the maximum size refuses users over the maximum number of a provider with 507, and keeps the others', async () => {
    const own = await makeDirectory(server)
    const signal = AbortSignal.timeout(60_000)
    const session = await openSession(server.running.engine.services, { provider: own.provider, token: own.scimToken }, signal)
    for (const userName of ['one', 'two']) await createScimUser(session, { userName }, 2)
    const refused: unknown = await createScimUser(session, { userName: 'three' }, 2).catch((error: unknown) => error)
    if (!(refused instanceof DomainError)) throw new Error('not refused')
    expect([refused.code, scimErrorAnswer(refused).status]).toEqual([8, 507])
    expect(await own.expecting(200, 'GET', 'Users')).toMatchObject({ totalResults: 2 })
  })
})
