import { afterAll, beforeAll, describe } from 'vitest'
import { startTestServer, type TestServer } from '../../support/test-server.ts'
import { startOidcProvider, type OidcProvider } from '../../iam/signin/issuers.ts'
import { closedSuite } from './closed-suite.ts'
import { apiClientsSuite } from './endpoints-suite.ts'
import { grantsSuite } from './grants-suite.ts'
import { sessionsSuite } from './sessions-suite.ts'
import { Stage } from './stage.ts'

describe('a caller can not gain rights beyond those granted', () => {
  let running: { server: TestServer; issuer: OidcProvider } | undefined
  beforeAll(async () => {
    const issuer = await startOidcProvider(['client'])
    const env = { TAPROOT_SELF_SERVICE_ROOT_GROUPS: 'false', TAPROOT_ISSUERS: JSON.stringify([{ issuer: issuer.issuer, allowPrivate: true }]) }
    running = { server: await startTestServer({ store: 'sqlite', env }), issuer }
  })
  afterAll(async () => {
    await running?.server.stop()
    await running?.issuer.stop()
  })

  describe.each(['rest', 'grpc'] as const)('over %s', (transport) => {
    const get = (): Stage => {
      if (running === undefined) throw new Error('no server yet: only tests may use it')
      return new Stage(running, transport)
    }
    grantsSuite(get)
    sessionsSuite(get)
    apiClientsSuite(get)
    closedSuite(get)
  })
})
