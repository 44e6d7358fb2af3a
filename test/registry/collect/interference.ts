import { systemClock } from '../../../src/cmd/runtime.ts'
import { createHttpUpstream } from '../../../src/registry/upstream/http/http-upstream.ts'
import type { Services } from '../../../src/resources/services.ts'
import type { Store, Write } from '../../../src/store/store.ts'
import { startRegistry } from '../../parts/registry.ts'
import type { TestUpstream } from '../oci/test-host.ts'

/** A real distribution registry as the upstream. */
export async function startHttpUpstream(): Promise<TestUpstream> {
  const registry = await startRegistry()
  const upstream = createHttpUpstream({ url: registry.url, clock: systemClock })
  return {
    upstream,
    stop: async () => {
      await upstream.close()
      await registry.stop()
    },
  }
}

/** The services, with something that happens once, just before a transaction whose writes match. */
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
  return { ...services, store: { ...rest, transact, elect: store.elect.bind(store), close: store.close.bind(store) } }
}
