import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { dirname, delimiter } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { uidAnnotation } from '../../src/kubernetes/platform-object.ts'
import { objectTypes } from '../../src/kubernetes/object-types.ts'
import { ok, type Organisation } from '../support/test-server.ts'
import { describeWithPart, requirePart } from '../support/parts/require-part.ts'
import { polling, startControllerWorld, uidOf, type ControllerWorld } from './controller-world.ts'
import { definitions } from './crd/definitions.ts'

const signal = AbortSignal.timeout(900_000)
/** The commands under "Remove everything", in order. */
const removing = [...(/\n## Remove everything\n(.*?)\n## /s.exec(readFileSync('docs/install.md', 'utf8'))?.[1] ?? '').matchAll(/```sh\n(.*?)```/gs)].map(
  (match) => match[1] ?? '',
)
const goingTimeouts = { timeout: 120_000, interval: 100 }

describeWithPart('kube-controller-manager', 'the deletion of a namespace, a grant or a definition', () => {
  let world: ControllerWorld
  let organisation: Organisation

  beforeAll(async () => {
    world = await startControllerWorld({ kube: { controllerManager: true } })
    organisation = await world.organisation()
  })
  afterAll(() => world?.stop())

  const gone = (namespace: string): Promise<void> =>
    vi.waitFor(async () => expect(await world.api.get(objectTypes.namespace, { name: namespace }, signal)).toBeUndefined(), goingTimeouts)

  /** Creates a group with a group, an identity and a binding in it, each by an object. Returns the records' kinds and uids, outermost first. */
  async function family(namespace: string, stem: string): Promise<readonly (readonly [kind: string, uid: string])[]> {
    const inner = { parentRef: { name: `${stem}-outer` } }
    await world.put('group', namespace, `${stem}-outer`, { parentRef: { uid: organisation.group } })
    await world.put('group', namespace, `${stem}-inner`, inner)
    await world.put('identity', namespace, `${stem}-someone`, { ...inner, serviceAccountRef: { name: 'deployer' } })
    await world.put('roleBinding', namespace, `${stem}-binding`, { ...inner, identityRef: { name: `${stem}-someone` }, roleRef: { builtIn: 'viewer' } })
    return [
      ['Group', uidOf(await world.until('group', namespace, `${stem}-outer`, 'InSync'))],
      ['Group', uidOf(await world.until('group', namespace, `${stem}-inner`, 'InSync'))],
      ['Identity', uidOf(await world.until('identity', namespace, `${stem}-someone`, 'InSync'))],
      ['RoleBinding', uidOf(await world.until('roleBinding', namespace, `${stem}-binding`, 'InSync'))],
    ]
  }
  const owners = (records: readonly (readonly [string, string])[]): readonly (string | undefined)[] =>
    records.map(([kind, uid]) => world.record(kind, uid)?.managedBy)

  // Kubernetes takes ten seconds to remove a namespace with finalizers in it, so these wait together.
  test.concurrent.each<[string, Readonly<Record<string, unknown>> | 'gone', string | undefined]>([
    ['by default: the records stay and belong to the API', {}, ''],
    ['with onNamespaceDelete Orphan: the records stay and belong to the API', { onNamespaceDelete: 'Orphan' }, ''],
    ['with onNamespaceDelete Delete: the records are deleted too, innermost first', { onNamespaceDelete: 'Delete' }, undefined],
    ['without its grant: the records stay, whatever the objects say', 'gone', ''],
  ])('a namespace is deleted %s', async (_, grant, owner) => {
    const namespace = await world.namespace(organisation, grant === 'gone' ? {} : grant)
    const records = await family(namespace, namespace)
    if (grant === 'gone') await world.api.delete(objectTypes.grant, { name: namespace }, {}, signal)
    await world.api.delete(objectTypes.namespace, { name: namespace }, {}, signal)
    await gone(namespace)
    expect(owners(records)).toEqual(records.map(() => owner))
  })

  test('a namespace deleted while no controller runs waits, and then its records are handled as the grant says', async () => {
    const namespace = await world.namespace(organisation, { onNamespaceDelete: 'Delete' })
    const records = await family(namespace, namespace)
    await world.stopControllers()
    await world.api.delete(objectTypes.namespace, { name: namespace }, {}, signal)
    await vi.waitFor(async () => expect((await world.object('group', namespace, `${namespace}-outer`)).metadata.deletionTimestamp).toBeDefined(), polling)
    world.startController()
    await gone(namespace)
    expect(owners(records)).toEqual(records.map(() => undefined))
  })

  test('a deleted definition deletes its objects and keeps the records; objects of a new installation find them again', async () => {
    const namespace = await world.namespace(organisation, { allowAdoption: true, onNamespaceDelete: 'Delete' })
    const uid = await (async () => {
      await world.put('group', namespace, 'kept', { parentRef: { uid: organisation.group }, deletionPolicy: 'Delete' })
      return uidOf(await world.until('group', namespace, 'kept', 'InSync'))
    })()
    const name = 'platformgroups.taproot.dev'
    await world.api.delete(objectTypes.crd, { name }, {}, signal)
    await vi.waitFor(async () => expect(await world.api.get(objectTypes.crd, { name }, signal)).toBeUndefined(), goingTimeouts)
    expect(world.record('Group', uid)?.managedBy).toBe('')
    ok(await world.server.rest.call('UpdateGroup', { group: { uid, description: 'free' } }, { token: organisation.token }))
    const { kubectl } = world.objects.kube
    await kubectl(['apply', '--server-side', '-f', 'crds'])
    await kubectl(['wait', '--for=condition=Established', '--timeout=60s', `crd/${name}`])
    await vi.waitFor(
      () => world.put('group', namespace, 'kept', { parentRef: { uid: organisation.group } }, { annotations: { [uidAnnotation]: uid } }),
      polling,
    )
    expect(uidOf(await world.until('group', namespace, 'kept', 'InSync'))).toBe(uid)
  })

  /** Runs a command of a page as administrator of the cluster. */
  async function sh(command: string): Promise<void> {
    const env = { ...process.env, KUBECONFIG: world.objects.kube.kubeconfigFile, PATH: [dirname(requirePart('kubectl')), process.env['PATH']].join(delimiter) }
    await promisify(execFile)('sh', ['-euc', command], { env })
  }
  const [deleteDefinitions = '', , takeFinalizersOff = ''] = removing

  test('without a controller a namespace waits until its finalizers are removed as in docs/install.md; records keep their owner', async () => {
    const namespace = await world.namespace(organisation)
    const records = await family(namespace, namespace)
    await world.stopControllers()
    await world.api.delete(objectTypes.namespace, { name: namespace }, {}, signal)
    await vi.waitFor(async () => expect((await world.object('group', namespace, `${namespace}-outer`)).metadata.deletionTimestamp).toBeDefined(), polling)
    await sh(takeFinalizersOff)
    await gone(namespace)
    expect(owners(records)).toEqual(['outer', 'inner', 'someone', 'binding'].map((name) => `cluster-1/${namespace}/${namespace}-${name}`))
    world.startController()
  })

  test('all definitions can be deleted while a controller runs, as in docs/install.md, and records stay', async () => {
    expect([...deleteDefinitions.matchAll(/[a-z]+\.taproot\.dev/g)].map(([name]) => name).toSorted()).toEqual(
      [...definitions.values()].map(({ metadata }) => metadata.name).toSorted(),
    )
    const namespace = await world.namespace(organisation, { onNamespaceDelete: 'Delete' })
    const records = await family(namespace, namespace)
    await sh(deleteDefinitions)
    expect(owners(records)).toEqual(records.map(() => ''))
    await world.stopControllers()
    await world.api.delete(objectTypes.namespace, { name: namespace }, {}, signal)
    await gone(namespace)
  })
})
