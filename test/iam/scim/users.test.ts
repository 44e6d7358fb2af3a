import { expect, test } from 'vitest'
import { freshName } from '../../support/test-server.ts'
import { specSuite } from '../../conformance/spec/spec-suite.ts'
import { enterpriseUrn, expectScimError, makeDirectory, namesOf, patchOf, userUrn } from './directory.ts'

specSuite(
  'SCIM users',
  (spec) => {
    test('RFC 7644 3.3 SCIM users are created with id, location and version, and found again', async () => {
      const { ask, endpoint, expecting } = await makeDirectory(spec.server)
      const user = {
        schemas: [userUrn],
        userName: 'Ann@Example.org',
        externalId: 'ann-1',
        name: { givenName: 'Ann' },
        emails: [{ value: 'ann@example.org', primary: true }],
      }
      const made = await ask('POST', 'Users', { body: user })
      expect(made.status).toBe(201)
      const id = String(made.body['id'])
      const version = made.headers.get('etag')
      expect(version).toMatch(/^W\/".+"$/)
      expect(made.headers.get('location')).toBe(`${endpoint}/Users/${id}`)
      expect(made.headers.get('content-type')).toBe('application/scim+json')
      expect(made.body).toMatchObject({ ...user, active: true, meta: { resourceType: 'User', location: `${endpoint}/Users/${id}`, version } })
      expect(await expecting(200, 'GET', `Users/${id}`)).toEqual(made.body)
      const page = await expecting(200, 'GET', `Users?filter=${encodeURIComponent('userName eq "ANN@example.ORG"')}`)
      expect(page).toEqual({
        schemas: ['urn:ietf:params:scim:api:messages:2.0:ListResponse'],
        totalResults: 1,
        startIndex: 1,
        itemsPerPage: 1,
        Resources: [made.body],
      })
    })

    test('RFC 7644 3.3 SCIM users have a unique userName, in any case, and externalId in a provider: 409 uniqueness', async () => {
      const directory = await makeDirectory(spec.server)
      const other = await makeDirectory(spec.server)
      await directory.add({ userName: 'Bob', externalId: 'b-1' })
      expectScimError(await directory.ask('POST', 'Users', { body: { userName: 'bOB' } }), 409, 'uniqueness')
      expectScimError(await directory.ask('POST', 'Users', { body: { userName: 'bobby', externalId: 'b-1' } }), 409, 'uniqueness')
      await other.add({ userName: 'Bob', externalId: 'b-1' })
      const id = await directory.add({ userName: 'carl', externalId: 'B-1' })
      expectScimError(await directory.ask('PATCH', `Users/${id}`, patchOf({ op: 'replace', path: 'userName', value: 'BOB' })), 409, 'uniqueness')
      expectScimError(await directory.ask('PUT', `Users/${id}`, { body: { userName: 'carl', externalId: 'b-1' } }), 409, 'uniqueness')
      // Its own name in another case is free to take.
      await directory.expecting(200, 'PATCH', `Users/${id}`, patchOf({ op: 'replace', path: 'userName', value: 'Carl' }))
    })

    test('RFC 7644 3.6 SCIM users are gone after a delete, and their userName is free', async () => {
      const { ask, add, expecting } = await makeDirectory(spec.server)
      const id = await add({ userName: 'dora', externalId: 'd' })
      expect((await ask('DELETE', `Users/${id}`)).status).toBe(204)
      for (const method of ['GET', 'DELETE']) expectScimError(await ask(method, `Users/${id}`), 404)
      expectScimError(await ask('PATCH', `Users/${id}`, patchOf({ op: 'add', path: 'title', value: 'x' })), 404)
      expect(await expecting(200, 'GET', 'Users')).toMatchObject({ totalResults: 0, Resources: [] })
      expect(await add({ userName: 'Dora', externalId: 'd' })).not.toBe(id)
    })

    test('RFC 7644 3.5.1 SCIM users are replaced by PUT, except for a missing `active`, which keeps its value', async () => {
      const { add, expecting } = await makeDirectory(spec.server)
      const id = await add({ userName: 'eve', title: 'Boss', [enterpriseUrn]: { department: 'A' }, active: false })
      const body = { schemas: [userUrn], id: 'mine', meta: { created: 'never' }, userName: 'eve', displayName: 'Eve' }
      const changed = await expecting(200, 'PUT', `Users/${id}`, { body })
      expect(changed).toEqual({ schemas: [userUrn], id, userName: 'eve', displayName: 'Eve', active: false, meta: expect.anything() as unknown })
      expect(await expecting(200, 'PUT', `Users/${id}`, { body: { userName: 'eve', active: true } })).toMatchObject({ active: true })
    })

    test('RFC 7644 3.14 SCIM users with a stale If-Match are 412 and unchanged; If-None-Match answers 304', async () => {
      const { ask, add, expecting } = await makeDirectory(spec.server)
      const id = await add({ userName: 'fay' })
      const old = String((await ask('GET', `Users/${id}`)).headers.get('etag'))
      expect((await ask('GET', `Users/${id}`, { headers: { 'if-none-match': old } })).status).toBe(304)
      await expecting(200, 'PATCH', `Users/${id}`, { ...patchOf({ op: 'add', path: 'title', value: 'T' }), headers: { 'if-match': old } })
      for (const [method, more] of [
        ['PUT', { body: { userName: 'gone' } }],
        ['PATCH', patchOf({ op: 'remove', path: 'title' })],
        ['DELETE', {}],
      ] as const) {
        expectScimError(await ask(method, `Users/${id}`, { ...more, headers: { 'if-match': old } }), 412)
      }
      const now = await ask('GET', `Users/${id}`, { headers: { 'if-none-match': old } })
      expect([now.status, now.body['title'], now.body['userName']]).toEqual([200, 'T', 'fay'])
      expect((await ask('DELETE', `Users/${id}`, { headers: { 'if-match': String(now.headers.get('etag')) } })).status).toBe(204)
    })

    test('RFC 7644 3.4.2.4 SCIM users come in pages: startIndex from 1, count at most 200, 0 for the total alone', async () => {
      const { add, expecting } = await makeDirectory(spec.server)
      const stem = freshName('page')
      for (let at = 0; at < 5; at++) await add({ userName: `${stem}-${at}` })
      const all = namesOf(await expecting(200, 'GET', 'Users'))
      expect(all.toSorted()).toEqual([0, 1, 2, 3, 4].map((at) => `${stem}-${at}`))
      const pages = [await expecting(200, 'GET', 'Users?startIndex=1&count=2'), await expecting(200, 'GET', 'Users?startIndex=3&count=2')]
      expect(pages.flatMap(namesOf)).toEqual(all.slice(0, 4))
      expect(await expecting(200, 'GET', 'Users?startIndex=5&count=100000')).toMatchObject({ totalResults: 5, startIndex: 5, itemsPerPage: 1 })
      expect(await expecting(200, 'GET', 'Users?count=0')).toMatchObject({ totalResults: 5, itemsPerPage: 0, Resources: [] })
      expect(await expecting(200, 'GET', 'Users?startIndex=-7&count=-1')).toMatchObject({ totalResults: 5, startIndex: 1, Resources: [] })
      expect(await expecting(200, 'GET', 'Users?startIndex=99')).toMatchObject({ totalResults: 5, Resources: [] })
      await expecting(400, 'GET', 'Users?count=many')
    })
  },
  { transports: ['rest'] },
)
