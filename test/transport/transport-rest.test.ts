import { create, toJson } from '@bufbuild/protobuf'
import type { JsonObject } from '@bufbuild/protobuf'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { registry } from '../../src/base/schema/schema.ts'
import { serve } from './harness/harness.ts'
import type { Seen, Served } from './harness/harness.ts'
import { sendTo } from './harness/send.ts'
import type { Sent } from './harness/send.ts'

const root = 'a'.repeat(40)
const child = `${root}/${'b'.repeat(16)}`

let served: Served

beforeAll(async () => {
  served = await serve(({ call }) => create(call.method.output), {
    routes: [
      {
        method: 'GET',
        path: '/.well-known/thing',
        handle: () => ({ status: 200, headers: { 'Content-Type': 'text/x-thing', 'Cache-Control': 'max-age=60' }, body: 'raw' }),
      },
      {
        method: 'POST',
        path: '/echo/:name',
        handle: async (raw) => ({ status: 201, headers: {}, body: `${raw.params.name}:${raw.query.get('q')}:${await raw.text()}` }),
      },
    ],
  })
})
beforeEach(() => {
  served.seen.length = 0
})
afterAll(() => served.close())

function send(verb: string, path: string, body?: unknown, headers?: Record<string, string>): Promise<Sent> {
  return sendTo(served.port, { verb, path, body, headers })
}

function last(): Seen {
  const seen = served.seen.at(-1)
  if (seen === undefined) throw new Error('nothing was dispatched')
  return seen
}

function lastJson(): JsonObject {
  return toJson(last().call.method.input, last().decoded.message, { registry }) as JsonObject
}

async function fault(
  verb: string,
  path: string,
  body?: unknown,
  headers?: Record<string, string>,
): Promise<{ status: number; code: number; fields: string[]; message: string }> {
  const { status, text } = await send(verb, path, body, headers)
  const json = JSON.parse(text) as { code: number; message: string; details: { '@type': string; fieldViolations?: { field: string }[] }[] }
  const fields = json.details.flatMap((detail) => detail.fieldViolations ?? []).map(({ field }) => field)
  return { status, code: json.code, fields, message: json.message }
}

describe('REST paths', () => {
  test.each([
    ['GET', `/iam/v2/groups`, 'ListGroups', {}],
    ['GET', `/iam/v2/groups/`, 'ListGroups', {}],
    ['GET', `/iam/v2/groups?page_size=3`, 'ListGroups', { pageSize: 3 }],
    ['GET', `/iam/v2/groups/${root}`, 'GetGroup', { uid: root }],
    ['GET', `/iam/v2/groups/${child}`, 'GetGroup', { uid: child }],
    ['GET', `/iam/v2/groups/${encodeURIComponent(child)}`, 'GetGroup', { uid: child }],
    ['GET', `/iam/v2/groups/%zz`, 'GetGroup', { uid: '%zz' }],
    ['GET', `/iam/v2/groups/../roles`, 'GetGroup', { uid: '../roles' }],
    ['GET', `/iam/v2/groups:lookupGroup`, 'LookupGroup', {}],
    ['GET', `/iam/v2/groups%3AlookupGroup`, 'LookupGroup', {}],
    ['POST', `/iam/v2/groups/${child}:requestGroupAccess`, 'RequestGroupAccess', { groupUid: child }],
    ['POST', `/iam/v2/groups/${encodeURIComponent(child)}%3ArequestGroupAccess`, 'RequestGroupAccess', { groupUid: child }],
    ['POST', `/iam/v2/groups`, 'CreateGroup', { group: {} }],
    ['POST', `/iam/v2/groups/`, 'CreateGroup', { group: {} }],
    ['POST', `/iam/v2/groups/${root}`, 'CreateGroup', { parent: root, group: {} }],
    ['DELETE', `/iam/v2/groups/${root}`, 'DeleteGroup', { uid: root }],
    ['PATCH', `/iam/v2/groups/${child}`, 'UpdateGroup', { group: { uid: child } }],
    ['GET', `/registry/v2/repos/${child}`, 'GetRepo', { uid: child }],
    ['GET', `/registry/v2/repos/${child}/readme`, 'GetRepoReadme', { uid: child }],
    ['PATCH', `/registry/v2/repos/${encodeURIComponent(child)}/readme`, 'UpdateRepoReadme', { repoReadme: { uid: child } }],
    ['GET', `/registry/v2/repos/${child}/digests/sha256:ab/size`, 'GetSize', { repoUid: child, digest: 'sha256:ab' }],
    ['GET', `/registry/v2/repos/${child}/digests/sha256%3Aab/architectures`, 'GetArchitectures', { repoUid: child, digest: 'sha256:ab' }],
    ['GET', `/libraries/v2/artifacts/count`, 'GetArtifactCount', {}],
    ['GET', `/libraries/v2/artifacts/npm%2Fleft-pad/versions`, 'ListArtifactVersions', { artifactId: 'npm/left-pad' }],
    ['POST', `/iam/v2/roleBindings:batchCreate`, 'BatchCreateRoleBindings', {}],
    ['GET', `/iam/v2/terms/${root}`, 'ListTermsAcceptances', { group: root }],
    ['GET', `/iam/v2/terms`, 'ListTermsAcceptances', {}],
    ['GET', `/iam/v2beta1/groups/${root}`, 'GetGroup', { uid: root }],
    ['GET', `/iam/v2beta1/groups:lookupGroup`, 'LookupGroup', {}],
    ['GET', `/ping/v2/ping`, 'Ping', {}],
  ])('%s %s is %s', async (verb, path, rpc, request) => {
    const { status } = await send(verb, path)
    expect(status).toBe(200)
    expect(last().call.method.rpc).toBe(rpc)
    expect(lastJson()).toEqual(request)
  })

  test('HEAD is GET without the body', async () => {
    const { status, text, headers } = await send('HEAD', `/iam/v2/groups/${root}`)
    expect([status, text]).toEqual([200, ''])
    expect(Number(headers['content-length'])).toBeGreaterThan(0)
  })

  test.each([
    ['PUT', '/iam/v2/groups', 'HEAD, GET, POST'],
    ['DELETE', '/iam/v2/groups', 'HEAD, GET, POST'],
    ['DELETE', '/iam/v2/groups/', 'HEAD, GET, POST'],
    ['PUT', `/iam/v2/groups/${root}`, 'HEAD, GET, POST, DELETE, PATCH'],
    // Only a path of names may end like that.
    ['PUT', `/events/v2/subscriptions/${root}:pause`, 'POST'],
    ['PUT', `/iam/v2/groups/${root}%3Ausage`, 'HEAD, GET'],
    ['PUT', `/registry/v2/repos/${child}/history`, 'HEAD, GET'],
    ['PUT', '/registry/v2/repos/path:demo/history', 'HEAD, GET, POST, DELETE, PATCH'],
    ['PUT', '/events/v2/subscriptions/path:pause', 'HEAD, GET, POST, DELETE, PATCH'],
    ['POST', '/ping/v2/ping', 'HEAD, GET'],
    ['POST', '/libraries/v2/artifacts', 'HEAD, GET'],
  ])('%s %s is not allowed', async (verb, path, allow) => {
    const { status, headers, text } = await send(verb, path)
    expect(status).toBe(405)
    expect(JSON.parse(text).code).toBe(12)
    expect(String(headers.allow).split(', ').toSorted()).toEqual([...allow.split(', '), 'OPTIONS'].toSorted())
  })

  test('OPTIONS on a known path lists the verbs', async () => {
    const { status, headers } = await send('OPTIONS', '/ping/v2/ping')
    expect(status).toBe(204)
    expect(String(headers.allow)).toContain('GET')
  })

  test.each(['/', '/iam', '/iam/v2', '/iam/v3/groups', '/iam/v2/groupsx', '/iam/v2/groups:nothing', '//iam/v2/groups', '/%', '/constructor', '/__proto__/x'])(
    '%s is not found',
    async (path) => {
      expect(await fault('GET', path)).toMatchObject({ status: 404, code: 5 })
    },
  )

  test('web routes and API methods share one host', async () => {
    const thing = await send('GET', '/.well-known/thing')
    expect(thing).toMatchObject({ status: 200, text: 'raw' })
    expect(thing.headers).toMatchObject({ 'content-type': 'text/x-thing', 'cache-control': 'max-age=60', 'x-content-type-options': 'nosniff' })
    expect(await send('POST', '/echo/a%2Fb?q=1', 'a=1&b=2', { 'content-type': 'application/x-www-form-urlencoded' })).toMatchObject({
      status: 201,
      text: 'a/b:1:a=1&b=2',
    })
    expect(await send('POST', '/echo/x?q=1', 'bare', { 'content-type': '' })).toMatchObject({ status: 201, text: 'x:1:bare' })
    expect(await fault('DELETE', '/.well-known/thing')).toMatchObject({ status: 405, code: 12 })
    expect(await fault('POST', '/echo/x', 'x'.repeat(1024 * 1024 + 1), { 'content-type': 'text/plain' })).toMatchObject({ status: 413, code: 3 })
  })
})

describe('REST query parameters', () => {
  test.each([
    ['/iam/v2/groups?uidp.descendants_of=x&order_by=name%20desc', { uidp: { descendantsOf: 'x' }, orderBy: 'name desc' }],
    ['/iam/v2/groups?uidp.childrenOf=x&pageSize=7&skip=2', { uidp: { childrenOf: 'x' }, pageSize: 7, skip: 2 }],
    ['/iam/v2/groups?uidp.in_root=true&uidp.ids=a&uidp.ids=b', { uidp: { inRoot: true, ids: ['a', 'b'] } }],
    ['/iam/v2/groups?name=&page_size=', {}],
    ['/iam/v2/groups?page_size=-1', { pageSize: -1 }],
    ['/iam/v2/groups?name=a&name=b', { name: 'b' }],
    ['/vulnerabilities/v2/advisories?artifactNames=a&artifact_names=b', { artifactNames: ['a', 'b'] }],
    [
      '/advisory/v2/images/resolvedVulns?imageRefs=r:1,2&image_refs=s&startTime=2026-01-01T00:00:00Z',
      { imageRefs: [{ repo: 'r', tags: ['1', '2'] }, { repo: 's' }], startTime: '2026-01-01T00:00:00Z' },
    ],
  ])('%s is read', async (path, request) => {
    expect((await send('GET', path)).status).toBe(200)
    expect(lastJson()).toEqual(request)
  })

  test.each([
    ['/iam/v2/groups?page_size=ten', ['page_size']],
    ['/iam/v2/groups?pageSize=1.5&skip=x', ['pageSize', 'skip']],
    ['/iam/v2/groups?page_size=99999999999', ['page_size']],
    ['/iam/v2/groups?uidp.inRoot=maybe', ['uidp.inRoot']],
    ['/iam/v2/groups?nothing=1&uidp.nothing=2&uidp=3&uidp.ids.x=4&page_size=5', ['nothing', 'uidp.nothing', 'uidp', 'uidp.ids.x']],
    ['/iam/v2/groups?uidp.descendants_of=&uidp.ids=', ['uidp.descendants_of', 'uidp.ids']],
    ['/advisory/v2/images/resolvedVulns?startTime=yesterday', ['startTime']],
    ['/iam/v2/identities?relationship_type=NOPE', ['relationship_type']],
  ])('%s is refused', async (path, fields) => {
    expect(await fault('GET', path)).toMatchObject({ status: 400, code: 3, fields })
  })

  test('with Prefer: handling=lenient unknown fields and an empty filter are ignored', async () => {
    await send('GET', '/iam/v2/groups?nothing=1&uidp.nothing=2&uidp=3&uidp.ids.x=4&uidp.children_of=&page_size=5', undefined, { prefer: 'handling=lenient' })
    expect(lastJson()).toEqual({ pageSize: 5 })
  })

  test('a method of version 1 ignores unknown fields', async () => {
    await send('GET', '/sts/headless_sessions?code=c&nothing=1')
    expect(lastJson()).toEqual({ code: 'c' })
  })

  test('enums are given by name or by number', async () => {
    await send('GET', '/iam/v2/identities?relationship_type=1')
    const byNumber = lastJson()
    await send('GET', `/iam/v2/identities?relationshipType=${String(byNumber.relationshipType)}`)
    expect(typeof byNumber.relationshipType).toBe('string')
    expect(lastJson()).toEqual(byNumber)
  })

  test('a query never fills fields of the body', async () => {
    await send('POST', `/iam/v2/groups/${root}?group.name=x&parent=y`, { name: 'z' }, { prefer: 'handling=lenient' })
    expect(lastJson()).toEqual({ parent: root, group: { name: 'z' } })
    expect(await fault('POST', `/iam/v2/groups/${root}?group.name=x&parent=y`, { name: 'z' })).toMatchObject({ code: 3, fields: ['group.name'] })
  })

  test.each([
    ['validateOnly=true', true],
    ['validate_only=1', true],
    ['validateOnly=false', false],
    ['validateOnly=', false],
    ['', false],
  ])('?%s is a dry run: %s', async (query, expected) => {
    await send('DELETE', `/iam/v2/groups/${root}?${query}`)
    expect(last().call.validateOnly).toBe(expected)
  })

  test('an invalid validateOnly is refused', async () => {
    expect(await fault('DELETE', `/iam/v2/groups/${root}?validateOnly=perhaps`)).toMatchObject({ status: 400, code: 3, fields: ['validateOnly'] })
  })
})

describe('REST request bodies', () => {
  test('POST accepts both spellings, and refuses unknown keys and nulls as documented', async () => {
    const body = { name: 'ci', claim_match: { issuer: 'https://i', subjectPattern: 's' }, bogus: { deep: 1 }, description: null }
    expect(await fault('POST', `/iam/v2/identities/${root}`, body)).toMatchObject({ code: 3, fields: ['bogus'] })
    await send('POST', `/iam/v2/identities/${root}`, body, { prefer: 'handling=lenient' })
    expect(lastJson()).toEqual({ parent: root, identity: { name: 'ci', claimMatch: { issuer: 'https://i', subjectPattern: 's' } } })
    expect(last().decoded.present).toBeUndefined()
  })

  test('the path overrides the body', async () => {
    await send('POST', `/iam/v2/groups/${child}:requestGroupAccess`, { groupUid: 'other' })
    expect(lastJson()).toEqual({ groupUid: child })
    await send('PATCH', `/iam/v2/groups/${child}`, { uid: 'other', name: 'n' })
    expect(lastJson()).toEqual({ group: { uid: child, name: 'n' } })
  })

  test('capabilities are given by enum name, dotted name or number', async () => {
    await send('POST', `/iam/v2/roles/${root}`, { capabilities: ['CAP_IAM_GROUPS_LIST', 'groups.list'] })
    const { role } = lastJson() as { role: { capabilities: string[] } }
    expect(role.capabilities).toEqual(['CAP_IAM_GROUPS_LIST', 'CAP_IAM_GROUPS_LIST'])
    expect(await fault('POST', `/iam/v2/roles/${root}`, { capabilities: ['CAP_NOPE', 5, true] })).toMatchObject({
      code: 3,
      fields: ['capabilities[0]', 'capabilities[2]'],
    })
  })

  test.each([
    ['malformed JSON', '{"name":', {}, 400, ['body']],
    ['a list', '[]', {}, 400, ['body']],
    ['a scalar', '"x"', {}, 400, ['body']],
    ['null', 'null', {}, 400, ['body']],
    ['a key of the object prototype', '{"__proto__":{"a":1}}', {}, 400, ['__proto__']],
    ['another content type', '<a/>', { 'content-type': 'text/xml' }, 415, ['body']],
    ['a form', 'name=x', { 'content-type': 'application/x-www-form-urlencoded' }, 415, ['body']],
    ['an unknown encoding', '{}', { 'content-encoding': 'lzma' }, 415, ['body']],
    ['a deep object', `{"x":${'['.repeat(100)}${']'.repeat(100)}}`, {}, 400, ['body']],
    ['a very deep object', `{"x":${'['.repeat(30_000)}${']'.repeat(30_000)}}`, {}, 400, ['body']],
    ['more than the method takes', JSON.stringify({ name: 'x'.repeat(64 * 1024) }), {}, 413, ['body']],
    ['very many values', `{"x":[${'1,'.repeat(20_000)}1]}`, {}, 400, ['body']],
    ['wrong types', '{"name":1,"verified":"yes","kind":"NOPE"}', {}, 400, ['name', 'verified', 'kind']],
    ['a lone surrogate', '{"name":"\\ud800"}', {}, 400, ['name']],
    ['a field twice', '{"resource_limits":{},"resourceLimits":{}}', {}, 400, ['resourceLimits']],
  ] as const)('a body with %s is refused', async (_, body, headers, status, fields) => {
    expect(await fault('POST', `/iam/v2/groups/${root}`, body, headers)).toMatchObject({ status, code: 3, fields })
    expect(served.seen).toEqual([])
  })

  test('nested faults are named with their path', async () => {
    const body = { claimMatch: { issuer: 5, claims: { a: 1, b: true, c: ['x'] } }, createTime: 'never looked at', staticKeys: {} }
    expect(await fault('POST', `/iam/v2/identities/${root}`, body)).toMatchObject({
      fields: ['claimMatch.issuer', 'claimMatch.claims["a"]', 'claimMatch.claims["b"]', 'claimMatch.claims["c"]', 'staticKeys'],
    })
  })

  test('a message names the field and no internals', async () => {
    expect((await fault('POST', `/iam/v2/groups/${root}`, { name: 1 })).message).toBe('Invalid argument: name: must be a string')
  })

  test.each([
    ['no content type', {}],
    ['a charset', { 'content-type': 'application/json; charset=utf-8' }],
    ['a json suffix', { 'content-type': 'application/merge-patch+json' }],
    ["a form's content type", { 'content-type': 'application/x-www-form-urlencoded' }],
    ['an invalid content type', { 'content-type': 'json' }],
  ])('a body with %s is read as JSON', async (_, headers) => {
    const response = await send('PATCH', `/iam/v2/groups/${root}`, new TextEncoder().encode('{"name":"n"}'), { 'content-type': '', ...headers })
    expect(response.status).toBe(200)
    expect(lastJson()).toMatchObject({ group: { name: 'n' } })
  })

  test('a chunked body without bytes is the empty object', async () => {
    expect((await send('POST', `/iam/v2/groups/${root}`, '', { 'transfer-encoding': 'chunked', 'content-length': '' })).status).toBe(200)
  })
})

describe('the mask of a REST PATCH', () => {
  test.each([
    ['top-level keys', 'groups', { name: 'n', description: '' }, ['name', 'description']],
    ['null counts as present', 'groups', { description: null }, ['description']],
    ['uid and etag are not part of the mask', 'groups', { uid: 'u', etag: 'e', name: 'n' }, ['name']],
    [
      'nested keys as leaf paths, in either spelling',
      'identities',
      { claimMatch: { issuer: 'i', subject_pattern: 's' } },
      ['claim_match.issuer', 'claim_match.subject_pattern'],
    ],
    ['maps as a whole', 'identities', { claim_match: { claims: { a: 'b' } } }, ['claim_match.claims']],
    ['an empty nested message', 'identities', { claimMatch: {} }, ['claim_match']],
    ['lists as a whole', 'roles', { capabilities: ['groups.list'] }, ['capabilities']],
    ['an empty body', 'groups', {}, []],
  ])('the mask of a REST PATCH is derived from the body: %s', async (_, collection, body, present) => {
    expect((await send('PATCH', `/iam/v2/${collection}/${child}`, body)).status).toBe(200)
    expect(last().decoded.present).toEqual(present)
  })

  test.each([
    [{ bogus: 1 }, ['bogus']],
    [{ name: 'n', nmae: 'x' }, ['nmae']],
  ])('the mask of a REST PATCH is refused with an unknown key, also for a full replacement', async (body, fields) => {
    for (const query of ['', '?updateMask=*', '?update_mask=*'])
      expect(await fault('PATCH', `/iam/v2/groups/${root}${query}`, body)).toMatchObject({ status: 400, code: 3, fields })
  })

  test('the mask of a REST PATCH is refused with an unknown nested key and its path', async () => {
    for (const verb of ['PATCH', 'POST'] as const) {
      expect(await fault(verb, `/iam/v2/identities/${root}`, { claimMatch: { isuer: 'x' } })).toMatchObject({
        fields: ['claimMatch.isuer'],
        message: expect.stringContaining('did you mean `issuer`?') as unknown,
      })
    }
  })

  test.each([
    ['updateMask=description', ['description']],
    ['update_mask=claimMatch.issuerPattern,name', ['claim_match.issuer_pattern', 'name']],
    ['updateMask=claim_match.issuer&updateMask=name', ['claim_match.issuer', 'name']],
    ['updateMask=*', ['*']],
  ])('the mask of a REST PATCH given as ?%s overrides the keys of the body', async (query, paths) => {
    const bogus = paths[0] === '*' ? {} : { bogus: 1 }
    expect((await send('PATCH', `/iam/v2/identities/${child}?${query}`, { name: 'n', ...bogus })).status).toBe(200)
    expect(last().decoded.present).toBeUndefined()
    expect(last().decoded.message).toMatchObject({ updateMask: { paths } })
  })

  test('the mask of a REST PATCH counts as absent if it is empty', async () => {
    await send('PATCH', `/iam/v2/groups/${root}?updateMask=`, { name: 'n' })
    expect(last().decoded.present).toEqual(['name'])
  })
})

describe('REST forms', () => {
  const form = { 'content-type': 'application/x-www-form-urlencoded' }

  test('a form at the token exchange is read like a query', async () => {
    expect((await send('POST', '/sts/exchange?identity=i', 'aud=a&aud=b%20c&identity_provider=p', form)).status).toBe(200)
    expect(last().call.method.rpc).toBe('Exchange')
    expect(lastJson()).toMatchObject({ aud: ['a', 'b c'], identity: 'i', identityProvider: 'p' })
  })

  test('a JSON body is not read at the token exchange', async () => {
    await send('POST', '/sts/exchange?aud=a', { aud: ['evil'] })
    expect(lastJson()).toEqual({ aud: ['a'] })
  })

  test('a form posted to a path with GET alone is treated as that GET', async () => {
    expect((await send('POST', '/vulnerabilities/v2/advisories', 'artifactNames=a&page_size=3', form)).status).toBe(200)
    expect(last().call.method.rpc).toBe('ListAdvisories')
    expect(lastJson()).toEqual({ artifactNames: ['a'], pageSize: 3 })
  })

  test('a form over the limit of its method is refused', async () => {
    expect(await fault('POST', '/sts/exchange', `aud=${'x'.repeat(32 * 1024)}`, form)).toMatchObject({ status: 413, code: 3 })
  })
})
