import type { Services } from '../../../src/engine/services.ts'
import type { Store, Write } from '../../../src/store/store.ts'

/** The services, with a callback that runs once, before a transaction with matching writes. */
export function happeningBefore(services: Services, matches: (writes: readonly Write[]) => boolean, happen: () => Promise<unknown>): Services {
  const { store } = services
  let isDue = true
  const transact: Store['transact'] = async (transaction, signal) => {
    if (isDue && matches(transaction.writes)) {
      isDue = false
      await happen()
    }
    return store.transact(transaction, signal)
  }
  const rest = { get: store.get.bind(store), range: store.range.bind(store), watch: store.watch.bind(store), revision: store.revision.bind(store) }
  return { ...services, store: { ...rest, transact, fence: store.fence.bind(store), elect: store.elect.bind(store), close: store.close.bind(store) } }
}
