import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { methods } from '../../../src/base/schema/schema.ts'
import { auditLedger, type AuditLedger } from '../../support/audit-ledger.ts'
import { runsAll, sampleOf } from '../../support/tier.ts'
import { describeOnStores } from '../../support/parts/require-part.ts'
import { caseName } from '../walk/cases/method-case.ts'
import { externalMethods, listMethods, publicMethods, scopedMethods, sharedMethods, signedInMethods } from './methods.ts'
import { exceptionsSuite } from './exceptions-suite.ts'
import { listsSuite } from './lists-suite.ts'
import { placesSuite, type Ground } from './places-suite.ts'
import { referencesCoverage, referencesSuite } from './references-suite.ts'
import { signedInSuite } from './signed-in-suite.ts'
import { makeMatrixWorld, startMatrixServer, type MatrixWorld } from './world.ts'

test('the access matrix contains every method of the schema exactly once', () => {
  const tables = [scopedMethods, listMethods, sharedMethods, signedInMethods, externalMethods]
  const named = [...tables.flatMap((table) => Object.keys(table)), ...Object.keys(publicMethods)]
  expect(named.sort()).toEqual(methods.map(caseName).sort())
})

referencesCoverage()

describeOnStores('the access matrix', (store) => {
  let ledger: AuditLedger | undefined
  let world: MatrixWorld | undefined
  beforeAll(async () => {
    ledger = auditLedger(await startMatrixServer(store))
    world = await makeMatrixWorld(ledger.server)
  })
  afterAll(() => ledger?.server.stop())

  describe.each(['rest', 'grpc'] as const)('over %s', (transport) => {
    const get = (): MatrixWorld => {
      if (world === undefined) throw new Error('no world yet: only tests may use it')
      return world
    }
    // The decision does not depend on store or transport: cells of each kind are tried on one of both, and few others elsewhere.
    const isWhole = store === 'sqlite' && transport === 'rest'
    const share = store === 'etcd' ? 1 / 20 : runsAll ? 1 : 1 / 10
    const ground: Ground = {
      world: get,
      apiClient: () => get().server[transport],
      chosen: (cells, { nameOf, kindOf }) => sampleOf(cells, { nameOf, share, kindOf: isWhole ? kindOf : undefined }),
    }
    placesSuite(ground)
    listsSuite(ground)
    signedInSuite(ground)
    referencesSuite(ground)
    exceptionsSuite(ground)
  })

  // docs/audit.md
  test('each change, denial and sign-in above left exactly one audit event, and no read left any', async () => {
    const counts = ledger?.counts() ?? {}
    const classes = [
      'a change',
      'a change that failed',
      'a denial',
      'a denial of a concealed record',
      'a change of a missing record',
      'a read',
      'a read of a missing record',
    ] as const
    for (const name of classes) expect(counts[name], name).toBeGreaterThan(20)
    // Events of concealed records are written a moment after the answer.
    await expect.poll(() => new Set(ledger?.deviations())).toEqual(new Set())
  })
})
