import { expect, test, onTestFinished } from 'vitest'
import { freshName, ok, startTestServer } from '../support/test-server.ts'

test('concurrent updates that give one record the same name all succeed', async () => {
  const server = await startTestServer({ store: 'etcd' })
  onTestFinished(() => server.stop())
  const token = await server.operatorToken()
  const uid = String(ok(await server.rest.call('CreateGroup', { group: { name: freshName('renamed') } }, { token }))['uid'])
  for (let round = 0; round < 20; round += 1) {
    const group = { uid, name: freshName('renamed') }
    const replies = await Promise.all([1, 2, 3].map(() => server.grpc.call('UpdateGroup', { group }, { token })))
    expect(replies.map(({ code, message }) => `${code} ${message}`)).toEqual(['0 ', '0 ', '0 '])
  }
})
