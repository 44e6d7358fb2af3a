import { afterAll, beforeAll } from 'vitest'
import { startTestServer } from '../../support/test-server.ts'
import { describeOnChosenStore } from '../../support/parts/require-part.ts'
import { TestClock } from '../../conformance/spec/test-clock.ts'
import { bearer, publicName, RegistryWorld, type Tenant } from './registry-world.ts'

/** A server with two tenants and the public organisation. */
export interface RegistrySuite {
  readonly clock: TestClock
  readonly world: RegistryWorld
  readonly mine: Tenant
  readonly theirs: Tenant
  readonly free: Tenant
  /** Renews the credentials of the tenants after a move of the clock. */
  renew(): Promise<void>
}

/** Runs `body` with one server for all its tests, which must use distinct names. */
export function registrySuite(title: string, body: (suite: RegistrySuite) => void, env: Readonly<Record<string, string>> = {}): void {
  describeOnChosenStore(title, (store) => {
    const clock = new TestClock()
    let made: { world: RegistryWorld; mine: Tenant; theirs: Tenant; free: Tenant } | undefined
    const get = (): NonNullable<typeof made> => {
      if (made === undefined) throw new Error('no server yet: only tests may use it')
      return made
    }
    beforeAll(async () => {
      const world = new RegistryWorld(await startTestServer({ store, clock, env: { TAPROOT_REGISTRY_PUBLIC_ORGANIZATION: publicName, ...env } }))
      made = { world, mine: await world.tenant(), theirs: await world.tenant(), free: await world.publicTenant() }
    })
    afterAll(() => made?.world.server.stop())
    body({
      clock,
      get world() {
        return get().world
      },
      get mine() {
        return get().mine
      },
      get theirs() {
        return get().theirs
      },
      get free() {
        return get().free
      },
      async renew() {
        const { world, mine, theirs, free } = get()
        const fresh = async (tenant: Tenant): Promise<Tenant> => ({ ...tenant, authorization: bearer(await world.accessToken(tenant.owner)) })
        made = { world, mine: await fresh(mine), theirs: await fresh(theirs), free: await fresh(free) }
      },
    })
  })
}
