import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { objectTypes } from '../../src/kubernetes/object-types.ts'
import { describeWithPart } from '../support/parts/require-part.ts'
import { polling, startControllerWorld, type ControllerWorld } from './controller-world.ts'
import { LongTimers } from './client/long-timers.ts'

const signal = AbortSignal.timeout(600_000)

describeWithPart('kube-apiserver', 'changes without an event', () => {
  const timers = new LongTimers()
  let world: ControllerWorld
  beforeAll(async () => {
    world = await startControllerWorld({ timers, mirror: { enabled: true } })
  })
  afterAll(() => world?.stop())

  /** The pending timers of repeated processing: of objects, mirrors, pull secrets and grants. */
  const looks = (): readonly number[] => timers.held.filter((ms) => ms >= 600_000 && ms <= 660_000)
  const tolds = (): number => world.server.logs.filter(({ message }) => message === 'records whose Kubernetes object is missing').length

  test('changes without an event are found as everything is processed again every ten minutes, spread over time', async () => {
    const organisation = await world.organisation()
    const namespace = await world.namespace(organisation)
    await world.put('group', namespace, 'left', { parentRef: { uid: organisation.group } })
    await world.until('group', namespace, 'left', 'InSync')
    await world.stopControllers()
    expect(looks()).toEqual([])
    await world.api.patch(objectTypes.group, { namespace, name: 'left' }, { metadata: { finalizers: null } }, signal)
    await world.api.delete(objectTypes.group, { namespace, name: 'left' }, {}, signal)
    world.startController()
    for (const round of [1, 2, 3]) {
      await vi.waitFor(() => expect({ looks: looks().length, tolds: tolds() }).toEqual({ looks: 4, tolds: round }), polling)
      expect(new Set(looks()).size).toBe(4)
      timers.ring(() => true)
    }
  })
})
