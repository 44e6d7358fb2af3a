import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { expect, test } from 'vitest'
import { parse } from 'yaml'
import { DomainError } from '../../../src/base/errors.ts'
import type { PlatformObject } from '../../../src/kubernetes/platform-object.ts'
import { objectTypes } from '../../../src/kubernetes/object-types.ts'
import { statusOf } from '../../../src/kubernetes/reconcile/status.ts'
import { conditionStatusOf, verdicts, type ConditionStatus } from '../../../src/kubernetes/reconcile/condition-status.ts'
import { describeWithParts, requirePart } from '../../support/parts/require-part.ts'
import { grantOf, startControllerWorld } from '../controller-world.ts'

const generation = 3
const deploy = join(import.meta.dirname, '..', '..', '..', 'deploy')
const yaml = async (file: string): Promise<unknown> => parse(await readFile(join(deploy, 'gitops', file), 'utf8'))

/** The health of an object in Argo CD and Flux. */
interface Health {
  readonly argo: string
  readonly message: string
  readonly flux: string
}

/** The health of objects: Argo CD's by the script in deploy/gitops and its interpreter, Flux's by its library. */
async function healthOf(objects: readonly object[]): Promise<readonly Health[]> {
  const { data } = (await yaml('argocd-cm.yaml')) as { data: Record<string, string> } // a cast of the file
  const customizations = parse(data['resource.customizations'] ?? '') as Record<string, Record<string, string>> // a cast of the file
  const child = spawn(requirePart('gitops-health'), [], { stdio: ['pipe', 'pipe', 'pipe'] })
  const output = Promise.all([text(child.stdout), text(child.stderr)])
  child.stdin.end(JSON.stringify({ script: customizations['taproot.dev/*']?.['health.lua'], objects }))
  await once(child, 'close')
  const [answer, complaint] = await output
  if (child.exitCode !== 0) throw new Error(complaint)
  return JSON.parse(answer) as readonly Health[] // what the program prints
}

/** Returns an object in the API server with the controller's verdict about generation `seen`. */
function judged(conditionStatus: ConditionStatus, { seen = generation, more = {} } = {}): object {
  const metadata = { name: 'web', namespace: 'acme', uid: 'u', resourceVersion: '1', generation: seen }
  const object: PlatformObject = { apiVersion: 'taproot.dev/v1alpha1', kind: 'PlatformGroup', metadata, spec: {} }
  const references = { found: false, field: 'parentRef', meant: 'web' } as const
  const status = statusOf(object, {
    conditionStatus,
    record: undefined,
    references,
    written: false,
    forgets: false,
    extraFields: undefined,
    live: {},
    nowMs: 0,
  })
  return { ...object, metadata: { ...metadata, generation, ...more }, status }
}

const blocked = conditionStatusOf(new DomainError(9, 'it has child groups'), true) ?? verdicts.ready

const rows: readonly (readonly [sentence: string, object: object, health: Omit<Health, 'message'>, message: RegExp])[] = [
  ['in sync', judged(verdicts.ready), { argo: 'Healthy', flux: 'Current' }, /^InSync: the record matches/],
  ['changed and not processed yet', judged(verdicts.ready, { seen: 2 }), { argo: 'Progressing', flux: 'InProgress' }, /not looked/],
  ['invalid, then changed and not processed yet', judged(verdicts.invalid('no'), { seen: 2 }), { argo: 'Progressing', flux: 'InProgress' }, /not looked/],
  ['not granted', judged(verdicts.notGranted('/')), { argo: 'Degraded', flux: 'Failed' }, /^NotGranted: /],
  ['invalid', judged(verdicts.invalid('name: too long')), { argo: 'Degraded', flux: 'Failed' }, /^Invalid: name: too long$/],
  ['in conflict', judged(verdicts.olderFirst('acme/other')), { argo: 'Degraded', flux: 'Failed' }, /^InConflict: /],
  [
    'waiting for a reference',
    judged(verdicts.refNotFound({ found: false, field: 'parentRef', meant: 'web' })),
    { argo: 'Progressing', flux: 'InProgress' },
    /^RefNotFound: /,
  ],
  [
    'deleted and blocked by children',
    judged(blocked, { more: { deletionTimestamp: '2026-01-01T00:00:00Z', finalizers: ['taproot.dev/record'] } }),
    { argo: 'Progressing', flux: 'Terminating' },
    /^DeletionBlocked: /,
  ],
]

describeWithParts(['gitops-health', 'kube-apiserver'], 'deploy/gitops', () => {
  test.for(rows)('deploy/gitops reports the health of an object that is %s', async ([, object, health, message]) => {
    const [found] = await healthOf([object])
    expect(found).toMatchObject(health)
    expect(found?.message).toMatch(message)
  })

  test('deploy/gitops waits for applied objects and grants until the controller has processed them', async () => {
    const world = await startControllerWorld()
    try {
      const signal = AbortSignal.timeout(100_000)
      const organisation = await world.organisation()
      const namespace = await world.namespace(organisation)
      const read = async (): Promise<readonly Health[]> =>
        healthOf([
          (await world.api.get(objectTypes.group, { namespace, name: 'web' }, signal)) ?? {},
          (await world.api.get(objectTypes.grant, { name: 'late' }, signal)) ?? {},
        ])
      await world.stopControllers()
      await world.put('group', namespace, 'web', { parentRef: { uid: organisation.group } })
      await world.api.create(objectTypes.grant, { metadata: { name: 'late' }, spec: grantOf('late', organisation.group) }, signal)
      const waiting = { argo: 'Progressing', flux: 'InProgress' }
      expect(await read()).toMatchObject([waiting, waiting])
      world.startController()
      await expect.poll(read).toMatchObject([
        { argo: 'Healthy', flux: 'Current' },
        { argo: 'Healthy', flux: 'Current' },
      ])
    } finally {
      await world.stop()
    }
  })

  test('deploy/gitops lets Flux wait for all objects of the Kustomization, whose path exists', async () => {
    const kustomization = (await yaml('flux.yaml')) as { kind: string; spec: { wait: boolean; path: string; timeout: string } } // a cast of the file
    expect(kustomization).toMatchObject({ kind: 'Kustomization', spec: { wait: true, path: './deploy/samples' } })
    expect(await readFile(join(deploy, 'samples', 'organisation.yaml'), 'utf8')).toContain('kind: PlatformGroup')
  })
})
