import { expect, test } from 'vitest'
import { specSuiteEverywhere } from '../../conformance/spec/spec-suite.ts'
import { enterpriseUrn, expectScimError, makeDirectory, namesOf, userUrn, type Directory } from './directory.ts'

const people = [
  {
    userName: 'ann@example.org',
    externalId: 'A',
    title: 'Boss',
    active: true,
    emails: [
      { value: 'ann@work.org', type: 'work' },
      { value: 'ann@home.org', type: 'home' },
    ],
  },
  { userName: 'DOMAIN\\bob', externalId: 'a', name: { familyName: 'B "quoted"' }, active: false, [enterpriseUrn]: { department: 'Sales' } },
  { userName: 'carl (temp) and co', displayName: 'Carl é', active: true, emails: [{ value: 'carl@home.org', type: 'work' }] },
]
const [ann = '', bob = '', carl = ''] = people.map(({ userName }) => userName)

async function populated(spec: Parameters<Parameters<typeof specSuiteEverywhere>[1]>[0]): Promise<Directory> {
  const directory = await makeDirectory(spec.server)
  for (const person of people) await directory.add(person)
  return directory
}

specSuiteEverywhere(
  'SCIM lists',
  (spec) => {
    test('RFC 7644 3.4.2.2 filters return the matching users', async () => {
      const { expecting } = await populated(spec)
      const cases: readonly (readonly [filter: string, names: readonly string[]])[] = [
        ['userName eq "ANN@EXAMPLE.ORG"', [ann]],
        ['userName eq "DOMAIN\\\\bob"', [bob]],
        ['username EQ "carl (temp) and co"', [carl]],
        [`${userUrn}:userName eq "ann@example.org"`, [ann]],
        ['externalId eq "a"', [bob]],
        ['externalId eq "A" and userName eq "ann@example.org"', [ann]],
        ['externalId eq "A" and userName eq "carl"', []],
        ['externalId eq "A" or userName eq "carl (temp) and co"', [ann, carl]],
        ['externalId eq ""', []],
        ['externalId eq "" or title pr', [ann]],
        ['externalId pr', [ann, bob]],
        ['not (externalId pr)', [carl]],
        ['title pr and active eq true', [ann]],
        ['active eq "False"', [bob]],
        ['active ne true', [bob]],
        ['title ne "boss"', [bob, carl]],
        ['title eq null', [bob, carl]],
        ['title ne null', [ann]],
        ['userName co "EXAMPLE"', [ann]],
        ['userName sw "domain\\\\"', [bob]],
        ['userName ew "and co"', [carl]],
        ['name.familyName eq "B \\"quoted\\""', [bob]],
        ['displayName eq "Carl \\u00E9"', [carl]],
        ['emails eq "ann@home.org"', [ann]],
        ['emails.value ew "home.org"', [ann, carl]],
        ['emails[type eq "work" and value co "home"]', [carl]],
        [`${enterpriseUrn}:department eq "sales"`, [bob]],
        ['userName gt "b" and userName lt "d"', [carl]],
        ['(userName sw "ann" or userName sw "carl") and not (title pr)', [carl]],
        ['title pr or title pr and userName eq "unknown"', [ann]],
        ['meta.created gt "2001-01-01T00:00:00Z" and schemas eq "' + userUrn + '"', people.map(({ userName }) => userName)],
        ['meta.lastModified lt "2001-01-01T00:00:00+02:00"', []],
        ['id eq "0000000000000000"', []],
      ]
      for (const [filter, names] of cases) {
        const found = await expecting(200, 'GET', `Users?filter=${encodeURIComponent(filter)}`)
        expect([filter, namesOf(found).toSorted(), found['totalResults']]).toEqual([filter, names.toSorted(), names.length])
      }
    })

    test('RFC 7644 3.4.2.2 an empty externalId can be filtered like any other text', async () => {
      const { add, expecting } = await makeDirectory(spec.server)
      await add({ userName: 'none' })
      for (const userName of ['empty', 'also empty']) await add({ userName, externalId: '' })
      for (const [filter, names] of [
        ['externalId eq ""', ['also empty', 'empty']],
        ['externalId eq "" and userName eq "empty"', ['empty']],
      ] as const)
        expect(namesOf(await expecting(200, 'GET', `Users?filter=${encodeURIComponent(filter)}`)).toSorted()).toEqual(names)
    })

    test('RFC 7644 3.4.2.2 a filter that is malformed, too deep or of the wrong type is 400 invalidFilter', async () => {
      const { ask } = await makeDirectory(spec.server)
      const bad = [
        'userName',
        'userName eq',
        'userName eq ann',
        'eq "x"',
        'userName is "x"',
        'userName eq "x" and',
        '(userName pr',
        'userName pr)',
        'not userName pr',
        '"x"',
        '[',
        ')(',
      ]
      const deep = [`${'('.repeat(2000)}userName pr${')'.repeat(2000)}`, Array(101).fill('userName pr').join(' or '), 'userName eq "' + 'x'.repeat(5000) + '"']
      const types = [
        'active gt true',
        'active eq "maybe"',
        'userName eq 7',
        'userName co null',
        'name eq "x"',
        'meta.created gt "soon"',
        'title[value eq "x"]',
        'emails[nosuch pr]',
      ]
      const names = ['nosuch eq "x"', '__proto__ pr', 'constructor.name pr', 'userName.x pr', 'urn:other:User:userName pr']
      for (const filter of [...bad, ...deep, ...types, ...names])
        expectScimError(await ask('GET', `Users?filter=${encodeURIComponent(filter)}`), 400, 'invalidFilter')
    })

    test('RFC 7644 3.4.3 a search by POST gives the same result', async () => {
      const { expecting, ask } = await populated(spec)
      const body = {
        schemas: ['urn:ietf:params:scim:api:messages:2.0:SearchRequest'],
        filter: 'active eq true',
        startIndex: 1,
        count: 1,
        attributes: ['userName'],
      }
      for (const path of ['Users/.search', '.search']) {
        expect(await expecting(200, 'POST', path, { body })).toMatchObject({ totalResults: 2, itemsPerPage: 1, startIndex: 1 })
      }
      expectScimError(await ask('POST', 'Users/.search', { body: { filter: 7 } }), 400, 'invalidFilter')
      expectScimError(await ask('POST', 'Users/.search', { body: { count: 1.5 } }), 400, 'invalidValue')
    })

    test('RFC 7644 3.9 attributes and excludedAttributes choose the attributes; id is always included', async () => {
      const { expecting, ask } = await populated(spec)
      const asked = async (query: string): Promise<unknown> =>
        (await expecting(200, 'GET', `Users?filter=${encodeURIComponent('externalId eq "A"')}&${query}`))['Resources']
      const [id, schemas] = [expect.stringMatching(/^[0-9a-f]{16}$/) as unknown, [userUrn]]
      expect(await asked('attributes=USERNAME,emails.type')).toEqual([{ schemas, id, userName: ann, emails: [{ type: 'work' }, { type: 'home' }] }])
      expect(await asked('attributes=nosuch')).toEqual([{ schemas, id }])
      expect(await asked(`excludedAttributes=id,meta,emails.value,${userUrn}:title`)).toEqual([
        { schemas, id, userName: ann, externalId: 'A', active: true, emails: [{ type: 'work' }, { type: 'home' }] },
      ])
      const [found] = (await expecting(200, 'GET', `Users?filter=externalId%20eq%20%22a%22&attributes=${enterpriseUrn}`))['Resources'] as Record<
        string,
        unknown
      >[]
      expect(found).toEqual({ schemas: [userUrn, enterpriseUrn], id, [enterpriseUrn]: { department: 'Sales' } })
      expectScimError(await ask('GET', 'Users?attributes=id&excludedAttributes=title'), 400, 'invalidValue')
      // An empty list counts as absent, in reads and writes.
      for (const [method, path, more] of [
        ['GET', 'Users', {}],
        ['POST', 'Users', { body: { userName: 'both' } }],
      ] as const)
        expect((await ask(method, `${path}?attributes=&excludedAttributes=title`, more)).status).toBeLessThan(300)
      // A fault in the query of a write is reported before the write.
      expectScimError(await ask('POST', 'Users?attributes=id&excludedAttributes=title', { body: { userName: 'unmade' } }), 400, 'invalidValue')
      expect(await expecting(200, 'GET', 'Users?filter=userName%20eq%20%22unmade%22')).toMatchObject({ totalResults: 0 })
      const made = await expecting(201, 'POST', 'Users?attributes=userName', { body: { userName: 'made', title: 'T' } })
      expect(made).toEqual({ schemas, id, userName: 'made' })
    })

    test('RFC 7644 4 discovery shows users, no groups and no bulk support; Me is 501', async () => {
      const { expecting, ask, endpoint } = await makeDirectory(spec.server)
      expect(await expecting(200, 'GET', 'ServiceProviderConfig')).toMatchObject({
        patch: { supported: true },
        bulk: { supported: false },
        filter: { supported: true, maxResults: 200 },
        changePassword: { supported: false },
        sort: { supported: false },
        etag: { supported: true },
        authenticationSchemes: [{ type: 'oauthbearertoken' }],
      })
      const types = await expecting(200, 'GET', 'ResourceTypes')
      expect((types['Resources'] as { id: string }[]).map(({ id }) => id)).toEqual(['User'])
      expect(await expecting(200, 'GET', 'ResourceTypes/User')).toMatchObject({ endpoint: '/Users', meta: { location: `${endpoint}/ResourceTypes/User` } })
      const schemas = await expecting(200, 'GET', 'Schemas')
      expect((schemas['Resources'] as { id: string }[]).map(({ id }) => id)).toEqual([userUrn, enterpriseUrn])
      expect(JSON.stringify(schemas)).not.toContain('password')
      expect(await expecting(200, 'GET', `Schemas/${userUrn}`)).toMatchObject({ name: 'User' })
      for (const path of ['Groups', 'Groups/1', 'Schemas/nosuch', 'ResourceTypes/Group', 'nosuch', 'Users/1/2', 'constructor', ''])
        expectScimError(await ask('GET', path), 404)
      for (const path of ['ServiceProviderConfig', 'Schemas', 'ResourceTypes']) expectScimError(await ask('GET', `${path}?filter=id%20pr`), 403)
      for (const method of ['GET', 'POST', 'PUT', 'PATCH', 'DELETE']) expectScimError(await ask(method, 'Me'), 501)
      expectScimError(await ask('POST', 'Bulk', { body: {} }), 501)
      const unserved = await ask('PUT', 'Users', { body: {} })
      expectScimError(unserved, 405)
      expect(unserved.headers.get('allow')).toBe('GET, POST')
      expectScimError(await ask('POST', 'Schemas', { body: {} }), 405)
    })
  },
  { transports: ['rest'] },
)
