import { expect, onTestFinished, test } from 'vitest'
import { rootOfKey } from '../../src/store/keys.ts'
import { freshName, makeOrganisation, ok, roleUid, startTestServer } from '../harness/test-server.ts'

test('every watched key of an organisation says to which root it belongs; only names of roots and the platform keys belong to none', async () => {
  const server = await startTestServer()
  onTestFinished(() => server.stop())
  const { group, owner, token } = await makeOrganisation(server)
  const child = String(ok(await server.rest.call('CreateGroup', { parent: group, group: { name: freshName('team') } }, { token }))['uid'])
  ok(await server.rest.call('CreateRoleBinding', { parent: child, roleBinding: { identityUid: owner, roleUid: roleUid('viewer') } }, { token }))
  const { entries } = await server.running.engine.store.range({ prefix: '', limit: 1000 }, AbortSignal.timeout(5_000))
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
  ['meta/signing-keys/1', undefined],
])('%s belongs to %s', (key, root) => {
  expect(rootOfKey(key)).toBe(root)
})
