import { afterAll, beforeAll, describe, test } from 'vitest'
import type { TestServer } from '../harness/test-server.ts'
import { walk } from './cases.ts'
import { capabilityChecks } from './capability-checks.ts'
import { makeWorld, startWalkServer, type World } from './world.ts'

describe.each(['rest', 'grpc'] as const)('who may call, over %s', (transport) => {
  let server: TestServer
  let world: World
  beforeAll(async () => {
    server = await startWalkServer()
    world = await makeWorld(server)
  })
  afterAll(() => server.stop())

  describe.each(walk)('$name:', (walked) => {
    test.each(Object.entries(capabilityChecks[walked.access]))('%s', (_, check) => check({ ...walked, world, door: server[transport] }))
  })
})
