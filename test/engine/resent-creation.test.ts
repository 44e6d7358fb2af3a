import type { JsonObject } from '@bufbuild/protobuf'
import { expect, test, onTestFinished } from 'vitest'
import { StoreError } from '../../src/store/store.ts'
import { failNext } from '../support/fail-next.ts'
import { describeOnStores } from '../support/parts/require-part.ts'
import { freshName, makeOrganisation, ok, startTestServer } from '../support/test-server.ts'

describeOnStores('a create whose answer the store lost', (store) => {
  test('a create whose answer the store lost does not restore, when repeated, a record that another client removed in between', async () => {
    const server = await startTestServer({ store })
    onTestFinished(() => server.stop())
    const { group, token } = await makeOrganisation(server)
    const name = freshName('lost')
    const found = async (): Promise<JsonObject[]> => (ok(await server.rest.call('ListIdentities', { name }, { token }))['identities'] ?? []) as JsonObject[]
    failNext(server, async (real, call) => {
      await real.transact(...call)
      for (const { uid } of await found()) ok(await server.rest.call('DeleteIdentity', { uid: String(uid) }, { token }))
      throw new StoreError('indeterminate', 'the answer got lost')
    })
    const identity = { name, claimMatch: { issuer: 'https://issuer.example', subject: 'unknown' } }
    ok(await server.rest.call('CreateIdentity', { parent: group, identity }, { token }))
    expect(await found()).toEqual([])
  })
})
