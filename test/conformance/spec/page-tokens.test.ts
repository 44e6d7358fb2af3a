import type { JsonObject } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import { makeMember, makeOrganisation, type Organisation } from '../../support/test-server.ts'
import { identityUnder } from './spec-kinds.ts'
import { expectFailure, itemsOf, specSuiteEverywhere, uidOf } from './spec-suite.ts'

const dayMs = 24 * 3_600_000

specSuiteEverywhere('the lifetime of page tokens', (spec) => {
  const first = async (token: string, request: JsonObject): Promise<string> =>
    String((await spec.ok('ListIdentities', { pageSize: 2, ...request }, { token }))['nextPageToken'])
  const refused = (token: string, request: JsonObject) => spec.call('ListIdentities', { pageSize: 2, ...request }, { token })
  const filled = async (): Promise<Organisation & { uids: string[]; second: string }> => {
    const organisation = await makeOrganisation(spec.server)
    const second = (await makeMember(spec.server, organisation.group, { role: 'owner' })).token
    for (let at = 0; at < 3; at++) await identityUnder(spec, organisation.group, organisation.token)
    const page = await spec.ok('ListIdentities', { uidp: { childrenOf: organisation.group } }, { token: organisation.token })
    return { ...organisation, uids: itemsOf(page, 'identities').map(uidOf), second }
  }

  // docs/spec/conventions.md#page-tokens
  test('a page token younger than three days continues; an expired one restarts from the beginning without an error', async () => {
    const { group, owner, token, uids } = await filled()
    const request = { uidp: { childrenOf: group }, pageSize: 2 }
    const pageToken = await first(token, request)
    spec.clock.advance(3 * dayMs - 3_600_000)
    const fresh = await spec.call('ListIdentities', { ...request, pageToken }, { token: await spec.server.tokenFor(owner) })
    expect(itemsOf(fresh.body, 'identities').map(uidOf)).toEqual(uids.slice(2, 4))
    expect(fresh.header('page-token-restarted')).toBeUndefined()
    spec.clock.advance(2 * 3_600_000)
    const expired = await spec.call('ListIdentities', { ...request, pageToken }, { token: await spec.server.tokenFor(owner) })
    expect(expired).toMatchObject({ code: 0, body: { totalCount: String(uids.length) } })
    expect(itemsOf(expired.body, 'identities').map(uidOf)).toEqual(uids.slice(0, 2))
    expect(expired.header('page-token-restarted')).toBe('true')
    const next = { ...request, pageToken: expired.body['nextPageToken'] ?? '' }
    const second = await spec.ok('ListIdentities', next, { token: await spec.server.tokenFor(owner) })
    expect(itemsOf(second, 'identities').map(uidOf)).toEqual(uids.slice(2, 4))
  })

  // docs/spec/conventions.md#page-tokens
  test.each([['x'], ['not a token'], ['abcdefgh.'], ['a.b.c'], ['%00'], ['0'.repeat(4096)]])('a malformed page token %# is code 3', async (pageToken) => {
    const { token } = await makeOrganisation(spec.server)
    expectFailure(await refused(token, { pageToken }), { code: 3, fields: ['page_token'] })
  })

  // docs/spec/conventions.md#page-tokens
  test('a page token that was changed is code 3', async () => {
    const { token } = await filled()
    const pageToken = await first(token, {})
    const at = pageToken.length - 10
    const changed = `${pageToken.slice(0, at)}${pageToken[at] === 'A' ? 'B' : 'A'}${pageToken.slice(at + 1)}`
    for (const bad of [changed, pageToken.slice(0, -4), `${pageToken}AAAA`])
      expectFailure(await refused(token, { pageToken: bad }), { code: 3, fields: ['page_token'] })
  })

  // docs/spec/conventions.md#page-tokens
  test('a page token used with another filter, order, parent, caller or list is code 3', async () => {
    const { group, token, second } = await filled()
    const base = { uidp: { childrenOf: group }, orderBy: 'name' }
    const pageToken = await first(token, base)
    const others: JsonObject[] = [
      { ...base, orderBy: 'name desc' },
      { uidp: base.uidp },
      { ...base, name: 'other' },
      { ...base, relationshipType: 'RELATIONSHIP_TYPE_CLAIM_MATCH' },
      { ...base, uidp: { descendantsOf: group } },
      { ...base, uidp: { childrenOf: `${group}/0000000000000000` } },
      { orderBy: 'name' },
    ]
    for (const other of others) expectFailure(await refused(token, { ...other, pageToken }), { code: 3, fields: ['page_token'] })
    expectFailure(await refused(second, { ...base, pageToken }), { code: 3, fields: ['page_token'] })
    expectFailure(await spec.call('ListRoles', { ...base, pageToken }, { token }), { code: 3, fields: ['page_token'] })
    expect((await refused(token, { ...base, pageToken })).code).toBe(0)
  })

  // docs/spec/conventions.md#page-size
  test('the page size may change from page to page', async () => {
    const { group, token, uids } = await filled()
    const request = { uidp: { childrenOf: group } }
    const rest = await spec.ok('ListIdentities', { ...request, pageSize: 200, pageToken: await first(token, request) }, { token })
    expect(itemsOf(rest, 'identities').map(uidOf)).toEqual(uids.slice(2))
  })
})
