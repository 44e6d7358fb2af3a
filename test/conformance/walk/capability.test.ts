import { afterAll, beforeAll, describe, test } from 'vitest'
import type { TestServer } from '../../support/test-server.ts'
import { chosenFor, runsAll } from '../../support/tier.ts'
import { walk, type Walked } from './cases/cases.ts'
import { aspects, capabilityChecks } from './capability-checks.ts'
import { makeWorld, startWalkServer, type World } from './world.ts'
import { describeOnStoresOfTier } from '../../support/parts/require-part.ts'

/**
 * The checks of a method over a transport. Over REST these are all.
 * Over gRPC they are the four aspects in which the transport carries the token and the answer, and one of the others.
 * The code behind the transports decides who may call. The full tier has all over both.
 */
function checksOver(transport: 'rest' | 'grpc', { name, access }: Walked): [title: string, check: (typeof capabilityChecks)[Walked['access']]['allowed']][] {
  const all = Object.entries(capabilityChecks[access])
  if (transport === 'rest' || runsAll) return all
  const others = Object.keys(capabilityChecks[access]).filter((title) => !aspects.some((aspect) => aspect === title))
  const chosen = chosenFor(name, others)
  return all.filter(([title]) => !others.includes(title) || title === chosen)
}

describeOnStoresOfTier('access to methods', (store) => {
  describe.each(['rest', 'grpc'] as const)('over %s', (transport) => {
    let server: TestServer
    let world: World
    beforeAll(async () => {
      server = await startWalkServer(store)
      world = await makeWorld(server)
    })
    afterAll(() => server.stop())

    describe.each(walk)('$name:', (walked) => {
      test.each(checksOver(transport, walked))('%s', (_, check) => check({ ...walked, world, apiClient: server[transport] }))
    })
  })
})
