import { expect, test } from 'vitest'
import { specSuite } from '../../conformance/spec/spec-suite.ts'
import { enterpriseUrn, expectScimError, makeDirectory, patchOf, patchUrn, userUrn, type Directory } from './directory.ts'

/** Applies a patch that must succeed, and returns the user's attributes. */
async function after(directory: Directory, id: string, ...operations: readonly unknown[]): Promise<Readonly<Record<string, unknown>>> {
  const { id: _id, meta: _meta, schemas: _schemas, ...rest } = await directory.expecting(200, 'PATCH', `Users/${id}`, patchOf(...operations))
  return rest
}

specSuite(
  'SCIM patches',
  (spec) => {
    // docs/spec/scim.md#scim-patches
    test('SCIM patches from Entra work: operation names in upper case, booleans as text, qualified names without a path', async () => {
      const directory = await makeDirectory(spec.server)
      const id = await directory.add({ userName: 'ann' })
      const path = `${enterpriseUrn}:department`
      expect(await after(directory, id, { op: 'Replace', path: 'active', value: 'False' })).toEqual({ userName: 'ann', active: false })
      expect(await after(directory, id, { op: 'Replace', value: { active: 'True', 'name.givenName': 'Ann', [path]: 'Sales' } })).toEqual({
        userName: 'ann',
        active: true,
        name: { givenName: 'Ann' },
        [enterpriseUrn]: { department: 'Sales' },
      })
      await after(directory, id, { op: 'Add', path: `${enterpriseUrn}:manager`, value: 'boss-1' }, { op: 'Add', path: 'name.familyName', value: 'B' })
      expect(await after(directory, id, { op: 'Remove', path }, { op: 'Add', path: `${userUrn}:title`, value: 'T' })).toEqual({
        userName: 'ann',
        active: true,
        title: 'T',
        name: { givenName: 'Ann', familyName: 'B' },
        [enterpriseUrn]: { manager: { value: 'boss-1' } },
      })
    })

    // docs/spec/scim.md#scim-patches
    test('SCIM patches from Okta work: one replace without a path, or the whole user by PUT', async () => {
      const directory = await makeDirectory(spec.server)
      const id = await directory.add({ userName: 'okta@example.org', externalId: '00u1', password: 'never kept', groups: [] })
      expect(await after(directory, id, { op: 'replace', value: { active: false } })).toEqual({
        userName: 'okta@example.org',
        externalId: '00u1',
        active: false,
      })
      const body = {
        schemas: [userUrn],
        id,
        userName: 'okta@example.org',
        externalId: '00u1',
        active: true,
        locale: 'en-US',
        groups: [],
        password: 'never kept',
      }
      const shown = await directory.expecting(200, 'PUT', `Users/${id}`, { body })
      expect(shown).toMatchObject({ active: true, locale: 'en-US' })
      const { entries } = await spec.server.running.engine.store.range({ prefix: '', limit: 100_000 }, AbortSignal.timeout(60_000))
      expect(`${entries.map(({ value }) => Buffer.from(value).toString('latin1')).join('')}${JSON.stringify(spec.server.logs)}`).not.toContain('never kept')
    })

    test('RFC 7644 3.5.2.1 add values without duplicates; a new primary value replaces the old primary one', async () => {
      const directory = await makeDirectory(spec.server)
      const one = { value: 'one@example.org', type: 'work', primary: true }
      const id = await directory.add({ userName: 'ann', emails: [one] })
      const two = { value: 'two@example.org', primary: true }
      expect((await after(directory, id, { op: 'add', path: 'emails', value: [one] }, { op: 'add', path: 'emails', value: [two] }))['emails']).toEqual([
        { ...one, primary: false },
        two,
      ])
      expect((await after(directory, id, { op: 'add', path: 'EMAILS', value: two }))['emails']).toEqual([{ ...one, primary: false }, two])
      expect((await after(directory, id, { op: 'replace', path: 'emails', value: [one] }))['emails']).toEqual([one])
      expect((await after(directory, id, { op: 'remove', path: 'emails' }))['emails']).toBeUndefined()
    })

    test('RFC 7644 3.5.2.1 SCIM patches that add an empty list or null change nothing', async () => {
      const directory = await makeDirectory(spec.server)
      const user = { userName: 'ann', active: true, title: 'T', name: { givenName: 'A' }, emails: [{ value: 'x' }], [enterpriseUrn]: { department: 'D' } }
      const id = await directory.add(user)
      for (const operation of [
        { op: 'add', path: 'emails', value: [] },
        { op: 'add', path: 'title', value: null },
        { op: 'add', path: 'name.givenName', value: null },
        { op: 'add', path: enterpriseUrn, value: null },
        { op: 'add', value: { emails: [], active: null, name: { givenName: null }, [enterpriseUrn]: { department: null } } },
      ]) {
        expect([operation, await after(directory, id, operation)]).toEqual([operation, user])
      }
    })

    test('RFC 7644 3.5.2.3 replace a sub-attribute by null to remove it; without its last one the attribute is removed', async () => {
      const directory = await makeDirectory(spec.server)
      const id = await directory.add({ userName: 'ann', name: { givenName: 'A', middleName: 'M' }, [enterpriseUrn]: { department: 'D', division: 'V' } })
      expect((await after(directory, id, { op: 'replace', path: 'name', value: { middleName: null } }))['name']).toEqual({ givenName: 'A' })
      expect((await after(directory, id, { op: 'replace', value: { name: { givenName: null } } }))['name']).toBeUndefined()
      expect((await after(directory, id, { op: 'replace', value: { [enterpriseUrn]: { division: null } } }))[enterpriseUrn]).toEqual({ department: 'D' })
      expect((await after(directory, id, { op: 'replace', path: enterpriseUrn, value: null }))[enterpriseUrn]).toBeUndefined()
    })

    test('RFC 7644 3.5.2 SCIM patches may name attributes below the URN of their schema, also the core schema', async () => {
      const directory = await makeDirectory(spec.server)
      const id = await directory.add({ userName: 'ann' })
      expect(await after(directory, id, { op: 'replace', value: { [userUrn]: { active: 'False', 'name.givenName': 'A' } } })).toEqual({
        userName: 'ann',
        active: false,
        name: { givenName: 'A' },
      })
      expect(await after(directory, id, { op: 'add', path: userUrn.toUpperCase(), value: { title: 'T', id: 'dropped' } })).toMatchObject({
        title: 'T',
        active: false,
      })
    })

    test('RFC 7643 3.3 SCIM patches by POST or PUT that would lose data below a URN are 400 invalidValue', async () => {
      const directory = await makeDirectory(spec.server)
      const id = await directory.add({ userName: 'ann' })
      for (const more of [{ [userUrn]: { active: false } }, { [`${userUrn.toLowerCase()}:active`]: false }, { [`${enterpriseUrn}:department`]: 'D' }]) {
        expectScimError(await directory.ask('PUT', `Users/${id}`, { body: { userName: 'ann', ...more } }), 400, 'invalidValue')
        expectScimError(await directory.ask('POST', 'Users', { body: { userName: 'bob', ...more } }), 400, 'invalidValue')
      }
    })

    test('SCIM patches change at most 500 attributes, in however few operations', async () => {
      const directory = await makeDirectory(spec.server)
      const id = await directory.add()
      const value = { title: 'T', displayName: 'D', nickName: 'N' }
      expectScimError(await directory.ask('PATCH', `Users/${id}`, patchOf(...Array(167).fill({ op: 'add', value }))), 400, 'invalidSyntax')
      expectScimError(await directory.ask('PATCH', `Users/${id}`, patchOf(...Array(501).fill({ op: 'add', value: {} }))), 400, 'invalidSyntax')
      expect(await after(directory, id, ...Array(166).fill({ op: 'add', value }))).toMatchObject(value)
    })

    test('RFC 7644 3.5.2 SCIM patches with one invalid operation change nothing, and without a change keep the version', async () => {
      const directory = await makeDirectory(spec.server)
      const id = await directory.add({ userName: 'ann', title: 'T' })
      const before = await directory.ask('GET', `Users/${id}`)
      expectScimError(
        await directory.ask('PATCH', `Users/${id}`, patchOf({ op: 'add', path: 'title', value: 'X' }, { op: 'add', path: 'nosuch', value: 1 })),
        400,
        'invalidPath',
      )
      await directory.expecting(200, 'PATCH', `Users/${id}`, patchOf({ op: 'replace', path: 'title', value: 'T' }))
      const now = await directory.ask('GET', `Users/${id}`)
      expect([now.body, now.headers.get('etag')]).toEqual([before.body, before.headers.get('etag')])
    })

    test.each<[string, unknown, string]>([
      ['a value filter', { op: 'replace', path: 'emails[type eq "work"].value', value: 'x' }, 'invalidPath'],
      ['a value filter inside a value', { op: 'replace', value: { 'emails[type eq "work"].value': 'x' } }, 'invalidPath'],
      ['a name in no schema', { op: 'add', path: '__proto__.polluted', value: 'x' }, 'invalidPath'],
      ['a sub-attribute of several values at once', { op: 'add', path: 'emails.value', value: 'x' }, 'invalidPath'],
      ['a path that is not text', { op: 'add', path: 7, value: 'x' }, 'invalidPath'],
      ['a read-only attribute', { op: 'replace', path: 'id', value: 'x' }, 'mutability'],
      ['a sub-attribute of a read-only one', { op: 'replace', path: 'meta.version', value: 'x' }, 'mutability'],
      ['the removal of a required attribute', { op: 'remove', path: 'userName' }, 'mutability'],
      ['an empty userName', { op: 'replace', path: 'userName', value: ' ' }, 'invalidValue'],
      ['a value of another type', { op: 'replace', path: 'title', value: 7 }, 'invalidValue'],
      ['an invalid boolean', { op: 'replace', path: 'active', value: 'maybe' }, 'invalidValue'],
      ['half of a surrogate pair', { op: 'replace', path: 'title', value: '\ud800' }, 'invalidValue'],
      [
        'two primary values',
        {
          op: 'add',
          path: 'emails',
          value: [
            { value: 'a', primary: true },
            { value: 'b', primary: true },
          ],
        },
        'invalidValue',
      ],
      ['an add without a value', { op: 'add', path: 'title' }, 'invalidValue'],
      ['a replace without a value', { op: 'replace', path: 'active' }, 'invalidValue'],
      ['a replace of the extension without a value', { op: 'replace', path: enterpriseUrn }, 'invalidValue'],
      ['the removal of selected values', { op: 'remove', path: 'emails', value: [{ value: 'a' }] }, 'invalidValue'],
      ['an attribute twice in one value', { op: 'add', value: { roles: [{ value: 'a' }], ROLES: [{ value: 'b' }] } }, 'invalidValue'],
      ['an attribute twice, once below its URN', { op: 'add', value: { title: 'a', [userUrn]: { title: 'b' } } }, 'invalidValue'],
      ['a schema extension that is not an object', { op: 'add', value: { [userUrn]: 'x' } }, 'invalidValue'],
      ['a value filter below the URN', { op: 'add', value: { [userUrn]: { 'emails[type eq "work"].value': 'x' } } }, 'invalidPath'],
      ['a value that is not an object, without a path', { op: 'add', value: 'x' }, 'invalidValue'],
      ['a removal without a path', { op: 'remove' }, 'noTarget'],
      ['an unknown operation', { op: 'move', path: 'title', value: 'x' }, 'invalidSyntax'],
      ['an operation that is not an object', 'title', 'invalidSyntax'],
    ])('RFC 7644 3.5.2 SCIM patches are refused with %s', async (_name, operation, scimType) => {
      const directory = await makeDirectory(spec.server)
      const id = await directory.add()
      const before = await directory.expecting(200, 'GET', `Users/${id}`)
      expectScimError(await directory.ask('PATCH', `Users/${id}`, patchOf(operation)), 400, scimType)
      expect(await directory.expecting(200, 'GET', `Users/${id}`)).toEqual(before)
    })

    test('RFC 7644 3.12 SCIM patches are refused if the body is not a patch, not JSON, not an object, or of another type', async () => {
      const { ask, add } = await makeDirectory(spec.server)
      const id = await add()
      const patch = (more: object) => ask('PATCH', `Users/${id}`, more)
      for (const text of ['', '{', '[]', '"x"', 'null', '{"Operations":[]}', '{"Operations":{}}']) expectScimError(await patch({ text }), 400, 'invalidSyntax')
      expectScimError(await patch({ body: { schemas: [userUrn], Operations: [{ op: 'add', path: 'title', value: 'x' }] } }), 400, 'invalidSyntax')
      expectScimError(
        await patch({ body: { schemas: [patchUrn], Operations: Array(501).fill({ op: 'add', path: 'title', value: 'x' }) } }),
        400,
        'invalidSyntax',
      )
      expectScimError(await patch({ text: '<a/>', headers: { 'content-type': 'text/xml' } }), 415)
      expect(
        (await patch({ ...patchOf({ op: 'add', path: 'title', value: 'x' }), headers: { 'content-type': 'application/json; charset=utf-8' } })).status,
      ).toBe(200)
    })
  },
  { transports: ['rest'] },
)
