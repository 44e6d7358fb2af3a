import type { JsonObject } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import { freshName, makeOrganisation, roleUid } from '../../support/test-server.ts'
import { claimMatch, create, identityUnder, specKinds, subgroup } from './spec-kinds.ts'
import { etagOf, specSuiteEverywhere, uidOf } from './spec-suite.ts'

const everyKind = specKinds.map((kind) => [kind] as const)
const timestamp = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/

/** All keys of a JSON value, at any depth, but those of maps that callers name themselves. */
function keysOf(value: unknown): string[] {
  if (Array.isArray(value)) return value.flatMap(keysOf)
  if (typeof value !== 'object' || value === null) return []
  return Object.entries(value).flatMap(([key, inner]) => [key, ...(key === 'claims' || key === 'claimPatterns' || key === 'metadata' ? [] : keysOf(inner))])
}

/** Every value under a key that names a time. */
function timesOf(value: unknown): unknown[] {
  if (Array.isArray(value)) return value.flatMap(timesOf)
  if (typeof value !== 'object' || value === null) return []
  return Object.entries(value).flatMap(([key, inner]) => (key.endsWith('Time') ? [inner] : timesOf(inner)))
}

interface Raw {
  readonly status: number
  readonly headers: Headers
  readonly text: string
  readonly json: JsonObject
}

specSuiteEverywhere(
  'the format of the REST API',
  (spec) => {
    const send = async (verb: string, path: string, options: { token?: string; body?: unknown; headers?: Record<string, string> } = {}): Promise<Raw> => {
      const { token, body, headers } = options
      const response = await fetch(`http://127.0.0.1:${spec.server.config.api.port}${path}`, {
        method: verb,
        headers: {
          ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
          ...(body === undefined ? {} : { 'content-type': 'application/json' }),
          ...headers,
        },
        ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
      })
      const text = await response.text()
      return { status: response.status, headers: response.headers, text, json: (text === '' ? {} : JSON.parse(text)) as JsonObject }
    }

    // docs/spec/conventions.md#create
    test.each(everyKind)('$collection: POST, GET, PATCH and DELETE on the collection and uid paths, each 200', async (kind) => {
      const { group, token } = await makeOrganisation(spec.server)
      const base = `/${kind.domain}/v2/${kind.collection}`
      const made = await send('POST', `${base}/${group}`, { token, body: await kind.draft(spec, group) })
      expect(made).toMatchObject({ status: 200, json: { createTime: expect.stringMatching(timestamp) as unknown } })
      expect(made.headers.get('content-type')).toMatch(/^application\/json/)
      const path = `${base}/${uidOf(made.json)}`
      expect(await send('GET', path, { token })).toMatchObject({ status: 200, json: made.json })
      const changed = await send('PATCH', path, { token, body: await kind.change(spec, group) })
      expect(changed).toMatchObject({ status: 200, json: { uid: uidOf(made.json) } })
      const deleted = await send('DELETE', path, { token })
      expect(deleted).toMatchObject({ status: 200, text: '' })
      expect(deleted.headers.get('content-length')).toBe('0')
      expect(deleted.headers.get('content-type')).toBeNull()
      expect(await send('GET', path, { token })).toMatchObject({ status: 404, json: { code: 5 } })
    })

    // docs/spec/resources.md#json-form
    test.each(everyKind)('$collection: keys are camelCase, times have milliseconds and Z, lists are envelopes', async (kind) => {
      const { group, token } = await makeOrganisation(spec.server)
      for (let at = 0; at < 3; at++) await create(spec, kind, { group }, { token })
      const { json: all } = await send('GET', `/${kind.domain}/v2/${kind.collection}?uidp.children_of=${group}`, { token })
      const records = all[kind.plural] as JsonObject[]
      expect(records.length).toBeGreaterThanOrEqual(3)
      expect(all).toMatchObject({ totalCount: String(records.length), skipped: 0 })
      expect(all).not.toHaveProperty('nextPageToken')
      expect(Object.keys(all).sort()).toEqual(['skipped', 'totalCount', kind.plural].sort())
      for (const key of keysOf(all)) expect(key).toMatch(/^[a-z][a-zA-Z0-9]*$/)
      for (const record of records)
        expect(record).toMatchObject({ uid: expect.any(String) as unknown, createTime: expect.any(String) as unknown, etag: expect.any(String) as unknown })
      for (const time of timesOf(all)) expect(time).toMatch(timestamp)
      const { json: page } = await send('GET', `/${kind.domain}/v2/${kind.collection}?uidp.children_of=${group}&page_size=2&skip=1`, { token })
      expect(page).toMatchObject({ totalCount: String(records.length), skipped: 1 })
      expect(page[kind.plural]).toHaveLength(2)
      expect(typeof page['nextPageToken']).toBe(records.length > 3 ? 'string' : 'undefined')
    })

    // docs/spec/conventions.md#lists
    test('an empty list has all members except the page token', async () => {
      const { token } = await makeOrganisation(spec.server)
      const { text } = await send('GET', `/iam/v2/groups?name=${freshName('unknown')}`, { token })
      expect(JSON.parse(text)).toEqual({ groups: [], totalCount: '0', skipped: 0 })
    })

    // docs/spec/resources.md#record-fields
    test('an identity has exactly the documented fields', async () => {
      const { group, token } = await makeOrganisation(spec.server)
      const { json } = await send('POST', `/iam/v2/identities/${group}`, { token, body: { name: 'exact', claimMatch: claimMatch() } })
      expect(json).toMatchObject({ name: 'exact', description: '' })
      for (const field of ['uid', 'name', 'description', 'lastSeenTime', 'createTime', 'updateTime', 'claimMatch']) expect(json).toHaveProperty(field)
      expect(json['claimMatch']).toHaveProperty('issuer')
      expect(json['claimMatch']).toHaveProperty('subject')
    })

    // docs/spec/iam.md#role-binding-fields
    test('a role binding has exactly the documented fields, and no input fields', async () => {
      const { group, owner, token } = await makeOrganisation(spec.server)
      const { json } = await send('POST', `/iam/v2/roleBindings/${group}`, { token, body: { identityUid: owner, roleUid: roleUid('viewer') } })
      expect(Object.keys(json).filter((key) => !['etag', 'updateTime', 'managedBy'].includes(key))).toEqual(
        expect.arrayContaining(['uid', 'identity', 'group', 'role', 'createTime']) as unknown,
      )
      expect(json).not.toHaveProperty('identityUid')
      expect(json).not.toHaveProperty('roleUid')
      expect(Object.keys(json['group'] as JsonObject).sort()).toEqual(['description', 'name', 'uid'])
      expect(Object.keys(json['role'] as JsonObject).sort()).toEqual(['description', 'name', 'uid'])
      expect(Object.keys(json['identity'] as JsonObject)).toEqual(expect.arrayContaining(['uid', 'name', 'description', 'subject', 'issuer']) as unknown)
    })

    // docs/spec/iam.md#role-binding-fields
    test('the e-mail address of a bound identity is empty if unknown, and never absent', async () => {
      const { group, owner, token } = await makeOrganisation(spec.server)
      const { json } = await send('POST', `/iam/v2/roleBindings/${group}`, { token, body: { identityUid: owner, roleUid: roleUid('viewer') } })
      expect(json['identity']).toMatchObject({ email: '' })
    })

    // docs/spec/errors.md#error-shape
    test('an error is code, message and details with type URLs', async () => {
      const { group, token } = await makeOrganisation(spec.server)
      const { status, json, headers } = await send('POST', `/iam/v2/identities/${group}`, { token, body: {} })
      expect(status).toBe(400)
      expect(headers.get('content-type')).toMatch(/^application\/json/)
      expect(Object.keys(json).sort()).toEqual(['code', 'details', 'message'])
      const details = json['details'] as JsonObject[]
      expect(details.map((detail) => detail['@type'])).toEqual(['type.googleapis.com/google.rpc.ErrorInfo', 'type.googleapis.com/google.rpc.BadRequest'])
      expect(details[0]).toMatchObject({ reason: 'INVALID_ARGUMENT', domain: 'iam.taproot.dev', metadata: { requestId: headers.get('x-request-id') } })
      expect(details[1]).toMatchObject({
        fieldViolations: [{ field: 'name', description: expect.any(String) as unknown }, { field: expect.any(String) as unknown }],
      })
      expect(json['message']).toMatch(/^Invalid argument: name: ./)
    })

    // docs/spec/errors.md#preconditions
    test('the error for deleting a group with children has exactly the documented body', async () => {
      const { group, token } = await makeOrganisation(spec.server)
      const sub = await subgroup(spec, group, token)
      await subgroup(spec, sub, token)
      const { status, json } = await send('DELETE', `/iam/v2/groups/${sub}`, { token })
      expect(status).toBe(400)
      expect(json).toMatchObject({
        code: 9,
        message: expect.stringMatching(/^Precondition failed: cannot delete group with child groups/) as unknown,
        details: [
          { '@type': 'type.googleapis.com/google.rpc.ErrorInfo', reason: 'FAILED_PRECONDITION' },
          {
            '@type': 'type.googleapis.com/google.rpc.PreconditionFailure',
            violations: [{ type: 'RESOURCE_NOT_EMPTY', description: expect.stringMatching(/^cannot delete group with child groups/) as unknown }],
          },
        ],
      })
    })

    // docs/spec/conventions.md#query-parameters
    test('list parameters are accepted in snake and camel case, order_by with an escaped blank', async () => {
      const { group, token } = await makeOrganisation(spec.server)
      for (const name of ['one', 'two', 'three']) await identityUnder(spec, group, token, name)
      const names = async (query: string): Promise<unknown[]> =>
        ((await send('GET', `/iam/v2/identities?${query}`, { token })).json['identities'] as JsonObject[]).map((record) => record['name'])
      const expected = ['two', 'three']
      expect(await names(`uidp.children_of=${group}&page_size=2&order_by=name%20desc`)).toEqual(expected)
      expect(await names(`uidp.childrenOf=${group}&pageSize=2&orderBy=name%20desc`)).toEqual(expected)
      expect(await names(`uidp.descendants_of=${group.replaceAll('/', '%2F')}&page_size=2&order_by=name+desc`)).toEqual(expected)
      const { json } = await send('GET', `/iam/v2/identities?uidp.children_of=${group}&page_size=2&order_by=name%20desc`, { token })
      const next = encodeURIComponent(String(json['nextPageToken']))
      expect((await names(`uidp.children_of=${group}&page_size=2&order_by=name%20desc&page_token=${next}`))[0]).toBe('one')
    })

    // docs/spec/conventions.md#page-size
    test.each([['page_size=abc'], ['page_size=1.5'], ['page_size=-1'], ['page_size=99999999999'], ['skip=x'], ['skip=-1'], ['uidp.in_root=maybe']])(
      '?%s is code 3 on that parameter',
      async (query) => {
        const { token } = await makeOrganisation(spec.server)
        const { status, json } = await send('GET', `/iam/v2/groups?${query}`, { token })
        expect(status).toBe(400)
        expect(json).toMatchObject({ code: 3, message: expect.stringMatching(new RegExp(`^Invalid argument: ${query.replace(/=.*/, '')}: `)) as unknown })
      },
    )

    // docs/spec/resources.md#uid-shape
    test('slashes of a uid in a path may be escaped', async () => {
      const { group, token } = await makeOrganisation(spec.server)
      const sub = await subgroup(spec, group, token)
      expect(await send('GET', `/iam/v2/groups/${encodeURIComponent(sub)}`, { token })).toMatchObject({ status: 200, json: { uid: sub } })
      const made = await send('POST', `/iam/v2/groups/${encodeURIComponent(sub)}`, { token, body: { name: 'escaped' } })
      expect(uidOf(made.json).startsWith(`${sub}/`)).toBe(true)
    })

    // docs/spec/conventions.md#create
    test('a root group is posted to the collection with or without a trailing slash', async () => {
      const token = await spec.server.operatorToken()
      for (const path of ['/iam/v2/groups', '/iam/v2/groups/']) {
        expect(await send('POST', path, { token, body: { name: freshName('root') } })).toMatchObject({
          status: 200,
          json: { uid: expect.stringMatching(/^[0-9a-f]{40}$/) as unknown },
        })
      }
    })

    // Each with a part of the message: what the caller probably meant, as it can be written.
    // docs/spec/conventions.md#query-parameters
    test.each([
      ['GET', '?uidp.childrn_of=x', undefined, 'uidp.childrn_of', '`uidp.childrenOf`'],
      ['GET', '?pagesize=5', undefined, 'pagesize', '`pageSize`'],
      ['GET', '?parent=x', undefined, 'parent', '`uidp.descendantsOf`'],
      ['GET', '?uidp.descendants_of=', undefined, 'uidp.descendants_of', 'must not be empty'],
      ['GET', '?uidp=', undefined, 'uidp', '`uidp.childrenOf`'],
      ['POST', '', { name: 'unknown-key', parentUid: 'x' }, 'parentUid', '`parent` is given in the path'],
      ['POST', '', { name: 'unknown-key', descripton: 'x' }, 'descripton', '`description`'],
      ['POST', '?name=unknown-key', { name: 'unknown-key' }, 'name', 'is a field of the body'],
      ['POST', '?validateonly=true', { name: 'unknown-key' }, 'validateonly', '`validateOnly`'],
    ] as const)('%s /iam/v2/groups%s with %j is code 3 on %s and says %s', async (verb, query, body, field, said) => {
      const token = await spec.server.operatorToken()
      const call = (path: string, headers?: Record<string, string>): Promise<Raw> =>
        send(verb, path, { token, ...(body === undefined ? {} : { body: { ...body, name: freshName('lenient') } }), ...(headers && { headers }) })
      const refused = await call(`/iam/v2/groups${query}`)
      expect(refused).toMatchObject({ status: 400, json: { code: 3 } })
      expect(refused.json['message']).toMatch(new RegExp(`^Invalid argument: ${field}: `))
      expect(refused.json['message']).toContain(said)
      for (const prefer of ['handling=lenient', 'respond-async, Handling="lenient"; x']) {
        expect(await call(`/iam/v2/groups${query}`, { prefer })).toMatchObject({ status: 200 })
      }
      expect(await call(`/iam/v2/groups${query}`, { prefer: 'handling=strict' })).toMatchObject({ status: 400 })
    })

    // docs/spec/conventions.md#request-bodies
    test('with a mask of fields an unknown key of the body is ignored; without a mask and with * it is code 3', async () => {
      const { group, token } = await makeOrganisation(spec.server)
      const patch = (query: string, headers = {}): Promise<Raw> =>
        send('PATCH', `/iam/v2/groups/${group}${query}`, { token, body: { description: 'new', colour: 'red' }, headers })
      expect(await patch('?updateMask=description')).toMatchObject({ status: 200, json: { description: 'new' } })
      expect(await patch('')).toMatchObject({ status: 400, json: { code: 3 } })
      expect(await patch('?updateMask=*')).toMatchObject({ status: 400, json: { code: 3 } })
      expect(await patch('', { prefer: 'handling=lenient' })).toMatchObject({ status: 200 })
    })

    // docs/spec/errors.md#field-violations
    test('errors show fields of the body by JSON name, and parameters as written', async () => {
      const { group, token } = await makeOrganisation(spec.server)
      const message = async (verb: string, path: string, body?: unknown): Promise<unknown> => (await send(verb, path, { token, body })).json['message']
      expect(await message('POST', `/iam/v2/roleBindings/${group}`, {})).toBe('Invalid argument: identityUid: is required')
      const none = 'Invalid argument: claimMatch: one of `claimMatch`, `staticKeys`, `awsIdentity` is required'
      expect(await message('POST', `/iam/v2/identities/${group}`, { name: 'none' })).toBe(none)
      const noSubject = 'Invalid argument: claimMatch.subject: one of `subject`, `subjectPattern` is required'
      expect(await message('POST', `/iam/v2/identities/${group}`, { name: 'none', claimMatch: { issuer: 'https://a.example' } })).toBe(noSubject)
      const both = { name: 'both', claimMatch: claimMatch(), awsIdentity: {} }
      expect(await message('POST', `/iam/v2/identities/${group}`, both)).toBe("Invalid argument: awsIdentity: can't be given together with `claimMatch`")
      expect(await message('GET', '/iam/v2/groups?page_size=-1')).toMatch(/^Invalid argument: page_size: /)
      expect(await message('GET', '/iam/v2/groups?pageSize=-1')).toMatch(/^Invalid argument: pageSize: /)
      expect(await message('PATCH', `/iam/v2/groups/${group}?updateMask=colour`, {})).toMatch(/^Invalid argument: updateMask: /)
    })

    // docs/spec/resources.md#output-only-fields
    test('output-only fields of a body are ignored, whatever their value', async () => {
      const { group, token } = await makeOrganisation(spec.server)
      const body = { name: 'ignored', uid: 5, createTime: 'long ago', status: 'NO_STATUS', resourceLimits: [] }
      expect(await send('POST', `/iam/v2/groups/${group}`, { token, body })).toMatchObject({ status: 200, json: { name: 'ignored' } })
    })

    // docs/spec/conventions.md#update-masks
    test('null in a PATCH body clears the field like an empty value', async () => {
      const { group, token } = await makeOrganisation(spec.server)
      const { json } = await send('POST', `/iam/v2/groups/${group}`, { token, body: { name: 'cleared', description: 'old' } })
      const path = `/iam/v2/groups/${uidOf(json)}`
      expect(await send('PATCH', path, { token, body: { description: null } })).toMatchObject({ status: 200, json: { name: 'cleared', description: '' } })
      expect(await send('PATCH', path, { token, body: { name: null } })).toMatchObject({ status: 400, json: { code: 3 } })
    })

    // docs/spec/conventions.md#versions
    test('answers carry no deprecation or sunset headers', async () => {
      const { token } = await makeOrganisation(spec.server)
      const { headers } = await send('GET', '/iam/v2/groups', { token })
      expect([headers.get('deprecation'), headers.get('sunset')]).toEqual([null, null])
    })

    // docs/spec/conventions.md#request-bodies
    test('malformed JSON is 400, a wrong content type 415, a body over its limit 413, each with code 3', async () => {
      const { group, token } = await makeOrganisation(spec.server)
      const path = `/iam/v2/groups/${group}`
      const rows = [
        [400, { body: '{"name":' }],
        [400, { body: '[]' }],
        [400, { body: '"text"' }],
        [400, { body: '{"name":1}' }],
        [415, { body: '{"name":"abc"}', headers: { 'content-type': 'text/plain' } }],
        [413, { body: { name: 'abc', description: 'x'.repeat(64 * 1024) } }],
      ] as const
      for (const [status, options] of rows) expect(await send('POST', path, { token, ...options })).toMatchObject({ status, json: { code: 3 } })
      expect((await send('GET', `/iam/v2/groups?uidp.children_of=${group}`, { token })).json).toMatchObject({ totalCount: '0' })
    })

    // docs/spec/errors.md#http-statuses
    test('another verb on a known path is 405 with code 12, an unknown path is 404', async () => {
      const { group, token } = await makeOrganisation(spec.server)
      const put = await send('PUT', `/iam/v2/groups/${group}`, { token, body: {} })
      expect(put).toMatchObject({ status: 405, json: { code: 12 } })
      expect(put.headers.get('allow')).toMatch(/PATCH/)
      expect(await send('GET', '/iam/v2/nothing', { token })).toMatchObject({ status: 404, json: { code: 5 } })
    })

    // docs/spec/errors.md#http-statuses
    test('a 401 answer contains a Bearer challenge', async () => {
      const { status, headers, json } = await send('GET', '/iam/v2/groups')
      expect([status, json['code']]).toEqual([401, 16])
      expect(headers.get('www-authenticate')).toMatch(/^Bearer/)
    })

    // docs/spec/conventions.md#etag-preconditions
    test('the ETag header is quoted, and If-Match accepts it unchanged, weak, in a list or as *', async () => {
      const { group, token } = await makeOrganisation(spec.server)
      const made = await send('POST', `/iam/v2/groups/${group}`, { token, body: { name: 'tagged' } })
      const path = `/iam/v2/groups/${uidOf(made.json)}`
      const first = made.headers.get('etag') ?? ''
      let etag = first
      expect(etag).toBe(`"${etagOf(made.json)}"`)
      for (const form of [etag, `W/${etag}`, `"stale", ${etag}`, `${etag},"stale"`, '*']) {
        const changed = await send('PATCH', path, {
          token,
          body: { description: form },
          headers: { 'if-match': form.replace(first, etag) },
        })
        expect(changed.status).toBe(200)
        etag = changed.headers.get('etag') ?? ''
      }
      for (const stale of ['"stale"', `"stale", ${first}`]) {
        const reply = await send('PATCH', path, { token, body: { description: 'x' }, headers: { 'if-match': stale } })
        expect(reply).toMatchObject({ status: 409, json: { code: 10 } })
      }
    })

    // docs/spec/conventions.md#page-tokens
    test('the header Page-Token-Restarted marks an expired page token', async () => {
      const { group, owner, token } = await makeOrganisation(spec.server)
      for (const name of ['one', 'two', 'three']) await identityUnder(spec, group, token, name)
      const path = `/iam/v2/identities?uidp.children_of=${group}&page_size=1`
      const first = await send('GET', path, { token })
      expect(first.headers.get('page-token-restarted')).toBeNull()
      spec.clock.advance(3 * 24 * 3_600_000 + 1000)
      const later = await send('GET', `${path}&page_token=${String(first.json['nextPageToken'])}`, { token: await spec.server.tokenFor(owner) })
      expect(later.status).toBe(200)
      expect(later.headers.get('page-token-restarted')).toBe('true')
      expect(later.json['identities']).toEqual(first.json['identities'])
    })

    // docs/spec/conventions.md#dry-run
    // docs/spec/conventions.md#page-tokens
    test('the links of a list lead through all of it', async () => {
      const { group, token } = await makeOrganisation(spec.server)
      const uids: string[] = []
      for (let at = 0; at < 5; at++) uids.push(await subgroup(spec, group, token))
      const found: unknown[] = []
      let pages = 0
      for (let path: string | undefined = `/iam/v2/groups?uidp.childrenOf=${group}&pageSize=2&skip=1`; path !== undefined; pages++) {
        const { json, headers } = await send('GET', path, { token })
        found.push(...(json['groups'] as JsonObject[]).map(({ uid }) => uid))
        path = /^<(.*)>; rel="next"$/.exec(headers.get('link') ?? '')?.[1]
      }
      expect([found, pages]).toEqual([uids.toSorted().slice(1), 2])
    })

    test('validateOnly is accepted in both spellings; another value is code 3 and changes nothing', async () => {
      const { group, token } = await makeOrganisation(spec.server)
      const post = (query: string): Promise<Raw> => send('POST', `/iam/v2/groups/${group}?${query}`, { token, body: { name: 'dry' } })
      for (const query of ['validateOnly=true', 'validate_only=true']) expect(await post(query)).toMatchObject({ status: 200 })
      expect(await post('validateOnly=perhaps')).toMatchObject({ status: 400, json: { code: 3 } })
      expect((await send('GET', `/iam/v2/groups?uidp.children_of=${group}`, { token })).json).toMatchObject({ totalCount: '0' })
      expect(await post('validateOnly=false')).toMatchObject({ status: 200 })
    })
  },
  { transports: ['rest'] },
)
