import type { JsonObject } from '@bufbuild/protobuf'
import { expect, test, onTestFinished } from 'vitest'
import { StoreError } from '../../src/store/store.ts'
import { describeOnStores } from '../parts/require-part.ts'
import { failNext } from '../harness/fail-next.ts'
import { freshName, makeOrganisation, ok, startTestServer } from '../harness/test-server.ts'

const full = new StoreError('exhausted', 'no room')

describeOnStores('a store that gets full', (store) => {
  test('writes the transaction that fills it and refuses it: the caller hears that it was made', async () => {
    const server = await startTestServer({ store })
    onTestFinished(() => server.stop())
    const { group, token } = await makeOrganisation(server)
    const name = freshName('filling')
    failNext(server, async (real, call) => {
      await real.transact(...call)
      throw full
    })
    const made = ok(await server.rest.call('CreateGroup', { parent: group, group: { name } }, { token }))
    failNext(server, async (real, call) => {
      await real.transact(...call)
      // As one of a group is sent again.
      return real.transact(...call)
    })
    ok(await server.rest.call('DeleteGroup', { uid: String(made['uid']) }, { token }))
    const { groups } = ok(await server.rest.call('ListGroups', { name }, { token })) as { groups: JsonObject[] }
    expect(groups).toEqual([])
  })

  test('refuses the others, and nothing of them is there', async () => {
    const server = await startTestServer({ store })
    onTestFinished(() => server.stop())
    const { group, token } = await makeOrganisation(server)
    const name = freshName('refused')
    failNext(server, () => Promise.reject(full))
    expect(await server.rest.call('CreateGroup', { parent: group, group: { name } }, { token })).toMatchObject({ code: 8 })
    const { groups } = ok(await server.rest.call('ListGroups', { name }, { token })) as { groups: JsonObject[] }
    expect(groups).toEqual([])
  })
})
