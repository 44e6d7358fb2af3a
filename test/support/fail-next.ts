import { StoreError, type Store } from '../../src/store/store.ts'
import type { TestServer } from './test-server.ts'

/** A fault of a transaction on its way to or from the real store. */
export type Fault = (real: Store, call: Parameters<Store['transact']>) => ReturnType<Store['transact']>

const away = new StoreError('indeterminate', 'no answer')

/** Faults after which the store gives no or a wrong answer for a committed transaction. */
export const misleading: readonly (readonly [string, Fault])[] = [
  [
    'whose answer is lost',
    async (real, call) => {
      await real.transact(...call)
      throw away
    },
  ],
  ['that does not arrive', () => Promise.reject(away)],
  [
    'that fills the store',
    async (real, call) => {
      await real.transact(...call)
      throw new StoreError('exhausted', 'no room')
    },
  ],
  [
    'that fills the store, as one of a group, and is sent again',
    async (real, call) => {
      await real.transact(...call)
      return real.transact(...call)
    },
  ],
]

/** Passes all transactions of the server through `transact`, which gets the real store. Returns a function that ends this. */
export function interceptTransactions(server: TestServer, transact: Fault): () => void {
  // Services are shared by reference.
  const services = server.running.engine.services as { store: Store }
  const real = services.store
  services.store = new Proxy(real, {
    get: (target, property) => {
      if (property === 'transact') return (...call: Parameters<Store['transact']>) => transact(real, call)
      const value: unknown = Reflect.get(target, property)
      return typeof value === 'function' ? (value.bind(target) as unknown) : value
    },
  })
  return () => {
    services.store = real
  }
}

/** Passes the next transaction that writes a key below `prefix` through `fault`, and all others to the real store. */
export function failNext(server: TestServer, fault: Fault, prefix = ''): void {
  const end = interceptTransactions(server, (real, call) => {
    if (!call[0].writes.some(({ key }) => key.startsWith(prefix))) return real.transact(...call)
    end()
    return fault(real, call)
  })
}
