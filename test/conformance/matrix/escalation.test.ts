import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { auditLedger, type AuditLedger } from '../../support/audit-ledger.ts'
import { startTestServer, type TestServer } from '../../support/test-server.ts'
import { startOidcProvider, type OidcProvider } from '../../iam/signin/issuers.ts'
import { closedSuite } from './closed-suite.ts'
import { apiClientsSuite } from './endpoints-suite.ts'
import { grantsSuite } from './grants-suite.ts'
import { sessionsSuite } from './sessions-suite.ts'
import { Stage } from './stage.ts'

describe('a caller can not gain rights beyond those granted', () => {
  let running: { server: TestServer; issuer: OidcProvider } | undefined
  let ledger: AuditLedger | undefined
  beforeAll(async () => {
    const issuer = await startOidcProvider(['client'])
    const env = {
      TAPROOT_SELF_SERVICE_ROOT_GROUPS: 'false',
      TAPROOT_ISSUERS: JSON.stringify([{ issuer: issuer.issuer, allowPrivate: true }]),
      TAPROOT_AUDIT_DENIED_PER_MINUTE: '1000000',
    }
    ledger = auditLedger(await startTestServer({ store: 'sqlite', env }))
    running = { server: ledger.server, issuer }
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

  // docs/audit.md
  test('each change, denial and sign-in above left exactly one audit event, and no read left any', async () => {
    const counts = ledger?.counts() ?? {}
    for (const name of ['a change', 'a denial', 'a denial of a concealed record', 'a read'] as const) expect(counts[name], name).toBeGreaterThan(20)
    await expect.poll(() => new Set(ledger?.deviations())).toEqual(new Set())
  })
})
