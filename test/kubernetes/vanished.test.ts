import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { objectTypes } from '../../src/kubernetes/object-types.ts'
import type { ObjectType } from '../../src/kubernetes/kube-api.ts'
import type { CachedRecord } from '../../src/cache/records/cached-record.ts'
import { grantRights } from '../e2e/chart/rights/given-rights.ts'
import { reinstate, suspend } from '../support/suspend.ts'
import type { Organisation } from '../support/test-server.ts'
import { startDeletionWebhook, type DeletionWebhook } from '../support/parts/kubernetes/deletion-webhook.ts'
import { describeOnStoresWithParts } from '../support/parts/require-part.ts'
import { polling, startControllerWorld, type ControllerWorld } from './controller-world.ts'

const signal = AbortSignal.timeout(900_000)
const longTimeouts = { timeout: 120_000, interval: 50 }
const webhooks: ObjectType = {
  group: 'admissionregistration.k8s.io',
  version: 'v1',
  kind: 'ValidatingWebhookConfiguration',
  plural: 'validatingwebhookconfigurations',
  namespaced: false,
}

/** A deletion that the API server has started, of an object that had no finalizers then. */
interface Deletion {
  readonly begun: PromiseWithResolvers<void>
  readonly mayEnd: PromiseWithResolvers<void>
}

describeOnStoresWithParts(['kube-apiserver'], 'an object that the API server removes while its finalizer is being added', (store) => {
  const deletions = new Map<string, Deletion>()
  let webhook: DeletionWebhook
  let world: ControllerWorld
  let organisation: Organisation
  let namespace: string

  beforeAll(async () => {
    webhook = await startDeletionWebhook(async (name) => {
      const deletion = deletions.get(name)
      deletion?.begun.resolve()
      await deletion?.mayEnd.promise
    })
    world = await startControllerWorld({
      store,
      kube: {},
      // With exactly the rights in the chart.
      controllerToken: grantRights,
      // The finalizer arrives during the deletion.
      beforeWrite: (call) => deletions.get(/^apply PlatformGroup .*\/(.*)$/.exec(call)?.[1] ?? '')?.begun.promise,
    })
    organisation = await world.organisation()
    namespace = await world.namespace(organisation)
    const rules = [{ apiGroups: ['taproot.dev'], apiVersions: ['*'], operations: ['DELETE'], resources: ['platformgroups'] }]
    const hook = { name: 'deletion.example.com', clientConfig: webhook.clientConfig, rules, sideEffects: 'None', admissionReviewVersions: ['v1'] }
    await world.api.create(webhooks, { metadata: { name: 'deletion' }, webhooks: [{ ...hook, timeoutSeconds: 30 }] }, signal)
    await inForce()
  })
  afterAll(async () => {
    await world?.stop()
    await webhook?.stop()
  })

  function expectDeletion(name: string): Deletion {
    const deletion = { begun: Promise.withResolvers<void>(), mayEnd: Promise.withResolvers<void>() }
    deletions.set(name, deletion)
    return deletion
  }

  /** Waits until the API server calls the webhook before deletions. */
  async function inForce(): Promise<void> {
    const { begun, mayEnd } = expectDeletion('probe')
    mayEnd.resolve()
    let isAsked = false
    void begun.promise.then(() => (isAsked = true))
    await vi.waitFor(async () => {
      // It creates no record.
      await world.put('group', namespace, 'probe', { parentRef: { name: 'nowhere' } })
      await world.api.delete(objectTypes.group, { namespace, name: 'probe' }, {}, signal)
      expect(isAsked).toBe(true)
    }, polling)
  }

  const recordOf = (name: string): CachedRecord | undefined => {
    const { tables } = world.server.running.engine.cache
    return [...tables.table('Group').matching('parent', organisation.group)].find(({ message }) => (message as unknown as { name: string }).name === name)
  }

  /**
   * Applies a group and deletes it at once, so that both the finalizer and the record arrive during the deletion. Then runs `meanwhile`. Resolves with its
   * record when the object is gone.
   */
  async function race(name: string, spec: Readonly<Record<string, unknown>> = {}, meanwhile = (): Promise<unknown> => Promise.resolve()): Promise<string> {
    const { mayEnd } = expectDeletion(name)
    await world.put('group', namespace, name, { parentRef: { uid: organisation.group }, ...spec })
    const deleted = world.api.delete(objectTypes.group, { namespace, name }, {}, signal)
    const uid = await vi.waitFor(() => {
      const record = recordOf(name)
      expect(record).toBeDefined()
      return record?.uid ?? ''
    }, polling)
    await meanwhile()
    mayEnd.resolve()
    await deleted
    await world.gone('group', namespace, name)
    return uid
  }

  test('an object that the API server removes while its finalizer is being added has its record deleted', async () => {
    const uid = await race('raced')
    await vi.waitFor(() => expect(world.record('Group', uid)).toBeUndefined(), polling)
  })

  test('an object that the API server removes while its finalizer is being added has its record released if its deletion policy is Orphan', async () => {
    const uid = await race('raced-orphan', { deletionPolicy: 'Orphan' })
    await vi.waitFor(() => expect(world.record('Group', uid)?.managedBy).toBe(''), polling)
  })

  test('an object that the API server removes while its finalizer is being added leaves its record to another object of the same name', async () => {
    const uid = await race('raced-again', {}, () => suspend(world.server, organisation.group))
    const put = (description: string): Promise<unknown> => world.put('group', namespace, 'raced-again', { parentRef: { uid: organisation.group }, description })
    const expectReady = (ready: object): Promise<void> =>
      vi.waitFor(async () => {
        const { status } = await world.object('group', namespace, 'raced-again')
        expect(status?.conditions?.find(({ type }) => type === 'Ready')).toMatchObject(ready)
      }, longTimeouts)
    await put('too early')
    // If the controller has not processed the deletion yet, the record of the first object is deleted, and the second gets its own.
    await expectReady({ status: 'False' })
    await reinstate(world.server, organisation.group)
    await put('of the second')
    await expectReady({ reason: 'InSync' })
    expect(recordOf('raced-again')).toMatchObject({ uid, message: { description: 'of the second' } })
  })

  test('an object that the API server removes while its finalizer is being added is handled by the next leader if the first one could not', async () => {
    await world.stopControllers()
    const first = world.startController()
    await first.settled()
    const standby = world.startController()
    await standby.controller.allSynced
    const uid = await race('raced-away', {}, () => suspend(world.server, organisation.group))
    await first.stop()
    await reinstate(world.server, organisation.group)
    await vi.waitFor(() => expect(world.record('Group', uid)).toBeUndefined(), longTimeouts)
  })
})
