import { afterAll, beforeAll, expect, test } from 'vitest'
import { makeOrganisation, ok, startTestServer, type TestServer } from '../support/test-server.ts'
import { describeOnStores } from '../support/parts/require-part.ts'

describeOnStores('a whole server', (store) => {
  let server: TestServer
  let threads = 0
  const count = (): void => void (threads += 1)
  beforeAll(async () => {
    process.on('worker', count)
    server = await startTestServer({ store })
  })
  afterAll(async () => {
    process.off('worker', count)
    await server.stop()
  })

  test.each(['rest', 'grpc'] as const)('over %s an owner creates, reads, changes and deletes a group', async (transport) => {
    const apiClient = server[transport]
    const { group, token } = await makeOrganisation(server)
    const made = ok(await apiClient.call('CreateGroup', { parent: group, group: { name: 'team' } }, { token }))
    const uid = String(made['uid'])
    expect(uid.startsWith(`${group}/`)).toBe(true)
    expect(ok(await apiClient.call('GetGroup', { uid }, { token }))).toEqual(made)
    const changed = ok(await apiClient.call('UpdateGroup', { group: { uid, description: 'changed' } }, { token }))
    expect(changed).toMatchObject({ name: 'team', description: 'changed' })
    const list = ok(await apiClient.call('ListGroups', { uidp: { descendantsOf: group } }, { token }))
    expect(list).toMatchObject({ groups: [changed], totalCount: '1', skipped: 0 })
    expect(ok(await apiClient.call('DeleteGroup', { uid }, { token }))).toEqual({})
    expect((await apiClient.call('GetGroup', { uid }, { token })).code).toBe(5)
  })

  test('no thread starts for contents of images and catalogues that do not exist', () => {
    expect(threads).toBe(0)
  })
})
