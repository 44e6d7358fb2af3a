import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import type { GrantStatus } from '../../../src/kubernetes/platform-object.ts'
import { objectTypes } from '../../../src/kubernetes/object-types.ts'
import { freshName, ok, type Organisation } from '../../support/test-server.ts'
import { describeWithPart } from '../../support/parts/require-part.ts'
import { grantOf, polling, startControllerWorld, type ControllerWorld } from '../controller-world.ts'

const signal = AbortSignal.timeout(600_000)

describeWithPart('kube-apiserver', 'the status of a grant', () => {
  let world: ControllerWorld
  let organisation: Organisation
  beforeAll(async () => {
    world = await startControllerWorld()
    organisation = await world.organisation()
  })
  afterAll(() => world?.stop())

  async function grant(spec: Readonly<Record<string, unknown>>): Promise<string> {
    const name = freshName('grant')
    await world.api.create(objectTypes.grant, { metadata: { name }, spec: { ...grantOf(name, organisation.group), ...spec } }, signal)
    return name
  }
  const isSoon = (name: string, status: object): Promise<void> =>
    vi.waitFor(async () => {
      const found = await world.api.get(objectTypes.grant, { name }, signal)
      expect(found?.status).toMatchObject({ observedGeneration: found?.metadata.generation, ...status })
    }, polling)
  const ready = (reason: string): object => ({ conditions: [{ type: 'Ready', status: 'True', reason }] })
  const stalled = (reason: string): object => ({
    conditions: [
      { type: 'Ready', status: 'False', reason },
      { type: 'Stalled', status: 'True', reason },
    ],
  })

  test('the status of a grant shows group and role, the namespaces, and the number of objects with a record under the grant', async () => {
    const namespace = await world.namespace(organisation)
    const group = String(world.record('Group', organisation.group)?.name)
    await isSoon(namespace, { resolved: { group, maxRole: 'owner' }, namespaces: [namespace], namespaceCount: 1, objectCount: 0, ...ready('Resolved') })
    for (const name of ['one', 'two']) await world.put('group', namespace, name, { parentRef: { uid: organisation.group } })
    for (const name of ['one', 'two']) await world.until('group', namespace, name, 'InSync')
    await isSoon(namespace, { objectCount: 2 })
    await world.api.delete(objectTypes.group, { namespace, name: 'two' }, {}, signal)
    await isSoon(namespace, { objectCount: 1 })
    const text = await world.objects.kube.kubectl(['get', 'png', namespace, '-o', 'wide'])
    const [head = '', row = ''] = text.trim().split('\n')
    expect(head.split(/\s{2,}/)).toEqual(['NAME', 'READY', 'GROUP', 'MAX-ROLE', 'ADOPTION', 'NAMESPACES', 'AGE', 'GROUP-NAME', 'OBJECTS', 'MESSAGE'])
    expect(row.split(/\s{2,}/)).toEqual(expect.arrayContaining([namespace, 'True', group, '1', 'all names are resolved']))
  })

  test('the status of a grant includes new namespaces', async () => {
    const tenant = freshName('tenant')
    const name = await grant({ namespaceSelector: { matchLabels: { tenant } } })
    await isSoon(name, { namespaces: [], namespaceCount: 0, ...ready('NoNamespace') })
    await world.api.create(objectTypes.namespace, { metadata: { name: tenant, labels: { tenant } } }, signal)
    await isSoon(name, { namespaces: [tenant], namespaceCount: 1, ...ready('Resolved') })
  })

  test('the status of a grant reports a missing group or role, and the deletion of its group', async () => {
    const missing = await grant({ groupUid: 'f'.repeat(40) })
    await isSoon(missing, stalled('GroupNotFound'))
    await isSoon(await grant({ maxRole: { uid: `${organisation.group}/${'0'.repeat(16)}` } }), stalled('RoleNotFound'))
    const { token } = organisation
    const uid = String(ok(await world.server.rest.call('CreateGroup', { parent: organisation.group, group: { name: 'short' } }, { token }))['uid'])
    const name = await grant({ groupUid: uid })
    await isSoon(name, { resolved: { group: 'short' }, ...ready('NoNamespace') })
    ok(await world.server.rest.call('DeleteGroup', { uid }, { token }))
    await isSoon(name, { resolved: { maxRole: 'owner' }, ...stalled('GroupNotFound') })
    await world.api.patch(objectTypes.grant, { name: missing }, { spec: { groupUid: organisation.group } }, signal)
    await isSoon(missing, ready('NoNamespace'))
  })

  test('the status of a grant does not cause the objects to be processed again', async () => {
    const namespace = await world.namespace(organisation)
    await world.put('group', namespace, 'still', { parentRef: { uid: organisation.group } })
    await world.until('group', namespace, 'still', 'InSync')
    await isSoon(namespace, { objectCount: 1 })
    const found = await world.api.get(objectTypes.grant, { name: namespace }, signal)
    const { lastTransitionTime } = (found?.status as GrantStatus).conditions[0] ?? {}
    const writes = world.writes.length
    await world.api.apply(objectTypes.grant, { metadata: { name: namespace }, status: { objectCount: 99 } }, { subresource: 'status' }, signal)
    const other = await world.namespace(organisation)
    await isSoon(other, ready('Resolved'))
    expect(world.writes.slice(writes).filter((call) => !call.includes('PlatformNamespaceGrant'))).toEqual([])
    expect(lastTransitionTime).toMatch(/^\d{4}-/)
  })
})
