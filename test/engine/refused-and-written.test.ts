import type { JsonObject } from '@bufbuild/protobuf'
import { expect, test, onTestFinished } from 'vitest'
import { StoreError, type Store } from '../../src/store/store.ts'
import { describeOnStores } from '../parts/require-part.ts'
import { freshName, makeOrganisation, ok, startTestServer, type TestServer } from '../harness/test-server.ts'

/** The next transaction goes through `fault` and all others to the real store. */
function failNext(server: TestServer, fault: (real: Store, call: Parameters<Store['transact']>) => ReturnType<Store['transact']>): void {
  // Services are handed around by reference.
  const services = server.running.engine.services as { store: Store }
  const real = services.store
  const transact: Store['transact'] = (...call) => {
    services.store = real
    return fault(real, call)
  }
  services.store = new Proxy(real, {
    get: (target, property) => {
      const value: unknown = property === 'transact' ? transact : Reflect.get(target, property)
      return typeof value === 'function' ? (value.bind(target) as unknown) : value
    },
  })
}

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
