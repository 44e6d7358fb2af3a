import type { JsonObject } from '@bufbuild/protobuf'
import { expect, test, onTestFinished } from 'vitest'
import { StoreError, type Store } from '../../src/store/store.ts'
import { describeOnStores } from '../parts/require-part.ts'
import { freshName, makeOrganisation, ok, startTestServer } from '../harness/test-server.ts'

describeOnStores('a creation whose answer the store lost', (store) => {
  test('does not bring the record back that somebody removed meanwhile', async () => {
    const server = await startTestServer({ store })
    onTestFinished(() => server.stop())
    const { group, token } = await makeOrganisation(server)
    const name = freshName('lost')
    const found = async (): Promise<JsonObject[]> => (ok(await server.rest.call('ListIdentities', { name }, { token }))['identities'] ?? []) as JsonObject[]
    // Services are handed around by reference: the first transaction commits, and its sender hears nothing but that the store can't be reached.
    const services = server.running.engine.services as { store: Store }
    const real = services.store
    const transact: Store['transact'] = async (...call) => {
      services.store = real
      await real.transact(...call)
      for (const { uid } of await found()) ok(await server.rest.call('DeleteIdentity', { uid: String(uid) }, { token }))
      throw new StoreError('unavailable', 'the answer got lost')
    }
    services.store = new Proxy(real, {
      get: (target, property) => {
        const value: unknown = property === 'transact' ? transact : Reflect.get(target, property)
        return typeof value === 'function' ? (value.bind(target) as unknown) : value
      },
    })
    const identity = { name, claimMatch: { issuer: 'https://issuer.example', subject: 'nobody' } }
    ok(await server.rest.call('CreateIdentity', { parent: group, identity }, { token }))
    expect(await found()).toEqual([])
  })
})
