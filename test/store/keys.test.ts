import type { JsonObject } from '@bufbuild/protobuf'
import { expect, onTestFinished, test, vi } from 'vitest'
import { trustedUid } from '../../src/base/uid.ts'
import { rootOfKey } from '../../src/store/keys.ts'
import { freshName, makeOrganisation, makePerson, ok, roleUid, startTestServer } from '../support/test-server.ts'

test('every watched key of an organisation contains its root group; only names of root groups and platform keys do not', async () => {
  const server = await startTestServer()
  onTestFinished(() => server.stop())
  const { group, owner, token } = await makeOrganisation(server)
  const child = String(ok(await server.rest.call('CreateGroup', { parent: group, group: { name: freshName('team') } }, { token }))['uid'])
  ok(await server.rest.call('CreateRoleBinding', { parent: child, roleBinding: { identityUid: owner, roleUid: roleUid('viewer') } }, { token }))
  const { entries } = await server.running.engine.store.range({ prefix: '', limit: 1000 }, AbortSignal.timeout(60_000))
  const watched = entries.map(({ key }) => key).filter((key) => /^(?:r|i)\//.test(key))
  const roots = new Map(watched.map((key) => [key, rootOfKey(key)]))
  const records = watched.filter((key) => key.startsWith('r/'))
  expect(records.length).toBeGreaterThan(4)
  for (const key of watched) {
    const root = roots.get(key)
    if (root === undefined) expect(key).toMatch(/^i\/name\/[A-Za-z]+\/:/)
    else
      expect(
        records.some((record) => record.split('/')[2] === root),
        key,
      ).toBe(true)
  }
  expect([...roots.values()].filter((root) => root === group).length).toBeGreaterThan(6)
})

test('a transaction concerns one root group, and only checks the existence of people and built-in roles elsewhere', async () => {
  const server = await startTestServer()
  onTestFinished(() => server.stop())
  const { store, cache } = server.running.engine
  const { tables } = cache
  const transact = vi.spyOn(store, 'transact')
  const { group, owner, token } = await makeOrganisation(server)
  const person = await makePerson(server, { issuer: server.devIssuer.issuer, subject: 'foreign-name' })
  const call = async (method: string, request: JsonObject): Promise<string> => String(ok(await server.rest.call(method, request, { token }))['uid'])
  const team = await call('CreateGroup', { parent: group, group: { name: 'team' } })
  for (const identityUid of [owner, person.uid]) await call('CreateRoleBinding', { parent: team, roleBinding: { identityUid, roleUid: roleUid('viewer') } })
  const repo = await call('CreateRepo', { parent: team, repo: { name: 'app' } })
  await call('UpdateGroup', { group: { uid: team, name: 'crew' } })
  await call('DeleteRepo', { uid: repo })
  await call('DeleteGroup', { uid: team })
  const transactions = transact.mock.calls.map(([transaction]) => transaction)
  expect(transactions.length).toBeGreaterThan(8)
  for (const { guards, writes } of transactions) {
    const written = new Set(writes.map(({ key }) => rootOfKey(key)).filter((root) => root !== undefined))
    expect(written.size, JSON.stringify(writes.map(({ key }) => key))).toBeLessThanOrEqual(1)
    const [root] = written
    const elsewhere = guards.map((guard) => ('key' in guard ? guard.key : guard.prefix)).filter((key) => ![root, undefined].includes(rootOfKey(key)))
    for (const key of elsewhere) {
      expect(key).toMatch(/^i\/sweep\/[0-9a-f]{40}$/)
      expect(tables.get('Group', trustedUid(key.slice('i/sweep/'.length))), 'no other organisation').toBeUndefined()
    }
  }
})

test.each([
  ['r/Group/aaaa/bbbb', 'aaaa'],
  ['r/Group/aaaa', 'aaaa'],
  ['i/name/Group/:acme', undefined],
  ['i/name/Group/aaaa:team', 'aaaa'],
  ['i/name/Role/aaaa/bbbb:x%2Fy', 'aaaa'],
  ['i/used/RoleBinding.identity/pppp:aaaa/bbbb', 'aaaa'],
  ['i/sweep/aaaa/bbbb', 'aaaa'],
  ['i/owners/aaaa', 'aaaa'],
  ['i/scim/aaaa/bbbb', 'aaaa'],
  ['i/managed/Group/default/acme', undefined],
  ['meta/signing-keys/1', undefined],
])('the key %s belongs to %s', (key, root) => {
  expect(rootOfKey(key)).toBe(root)
})
