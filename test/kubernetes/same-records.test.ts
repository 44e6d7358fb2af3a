import { afterAll, beforeAll, expect, test } from 'vitest'
import { apply } from '../../src/cli/apply/apply.ts'
import { contextOf } from '../cli/client-world.ts'
import { describeWithPart } from '../support/parts/require-part.ts'
import { startControllerWorld, type ControllerWorld } from './controller-world.ts'

const samples = ['deploy/samples/grant.yaml', 'deploy/samples/organisation.yaml']
/** The issuer of the tokens of service accounts in the world. */
const clusterIssuer = 'https://kubernetes.default.svc.cluster.local'

describeWithPart('kubectl', 'files that kubectl and the command apply', () => {
  let world: ControllerWorld
  beforeAll(async () => void (world = await startControllerWorld()))
  afterAll(() => world.stop())

  // docs/cli.md#apply
  test('make the same records', async () => {
    const { kubectl } = world.objects.kube
    await kubectl(['create', 'namespace', 'acme'])
    for (const file of samples) await kubectl(['apply', '-f', file])
    await kubectl(['-n', 'acme', 'wait', '--for=condition=Ready', 'platform', '--all', '--timeout=120s'])
    const context = contextOf(world.server, await world.server.operatorToken())
    const request = { paths: samples, recursive: false, dryRun: false, diff: true, format: undefined, clusterIssuer }
    expect(await apply(context, { ...request, readStdin: () => Promise.resolve('') })).toBe(true)
    expect(context.printed().split('\n').sort()).toEqual([
      '',
      'group/acme unchanged',
      'group/acme/web unchanged',
      'identity/acme/deployer unchanged',
      'repo/acme/web/shop unchanged',
      'role/acme/tag-reader unchanged',
      'rolebinding/acme (acme/tag-reader -> acme/deployer) unchanged',
      'rolebinding/acme/web (registry.push -> acme/deployer) unchanged',
      'subscription/acme/web (https://hooks.example/taproot) unchanged',
    ])
  })
})
