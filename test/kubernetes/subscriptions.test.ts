import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest'
import { Webhook } from 'standardwebhooks'
import { fromBinary, type JsonObject } from '@bufbuild/protobuf'
import { Subscription_State, SubscriptionSchema } from '../../src/gen/taproot/events/v2/subscriptions_pb.ts'
import { EventGround } from '../events/event-ground.ts'
import { outboxPrefix } from '../../src/engine/log/outbox-keys.ts'
import type { KubeObject } from '../../src/kubernetes/kube-api.ts'
import { mirrorName } from '../../src/kubernetes/mirror/mirror-object.ts'
import { objectKinds } from '../../src/kubernetes/object-kinds.ts'
import { objectTypes } from '../../src/kubernetes/object-types.ts'
import { uidAnnotation, type PlatformObject } from '../../src/kubernetes/platform-object.ts'
import { answer, sinkAuthority, startSink, type Sink } from '../events/sink.ts'
import { describeWithPart } from '../support/parts/require-part.ts'
import { freshName, ok, type Organisation } from '../support/test-server.ts'
import { polling, startControllerWorld, uidOf, type ControllerWorld } from './controller-world.ts'
import { LongTimers } from './client/long-timers.ts'

const signal = AbortSignal.timeout(900_000)
const groupTypes = ['dev.taproot.api.iam.group.']
const roleTypes = ['dev.taproot.api.iam.roles.']
const refreshMs = objectKinds.Subscription.refreshMs
/** A sink that no test reaches. Rules: docs/spec/kubernetes.md#subscription-objects. */
const farSink = 'https://hooks.example/taproot'

describeWithPart('kube-apiserver', 'subscriptions as Kubernetes objects', () => {
  let world: ControllerWorld
  let folder: string
  let organisation: Organisation
  let namespace: string
  const timers = new LongTimers(refreshMs)

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'taproot-test-'))
    const caFile = join(folder, 'sinks.pem')
    await writeFile(caFile, sinkAuthority.certificate)
    const env = { TAPROOT_EVENTS_NETWORKS: '["127.0.0.0/8","::1"]', TAPROOT_EVENTS_CA_FILE: caFile }
    world = await startControllerWorld({ timers, env, mirror: { enabled: true, namespace: 'default' } })
  })
  beforeEach(async () => {
    organisation = await world.organisation()
    namespace = await world.namespace(organisation)
  })
  afterAll(async () => {
    await world?.stop()
    await rm(folder, { recursive: true, force: true })
  })

  const call = async (rpc: string, request: JsonObject): Promise<JsonObject> => ok(await world.server.rest.call(rpc, request, { token: organisation.token }))
  const put = (spec: JsonObject, metadata = {}): Promise<void> =>
    world.put('subscription', namespace, 'hook', { parentRef: { uid: organisation.group }, sink: farSink, types: groupTypes, ...spec }, metadata)
  const until = (reason: string): Promise<PlatformObject> => world.until('subscription', namespace, 'hook', reason)
  const refresh = (): void => timers.ring((ms) => ms === refreshMs)
  const newGroup = async (): Promise<string> => String((await call('CreateGroup', { parent: organisation.group, group: { name: freshName('group') } }))['uid'])
  const newSink = async (): Promise<Sink> => {
    const sink = await startSink()
    onTestFinished(() => sink.close())
    return sink
  }
  /** The object once its status has this state. */
  const untilState = (state: string): Promise<PlatformObject> =>
    vi.waitFor(async () => {
      refresh()
      const found = await world.object('subscription', namespace, 'hook')
      expect(found.status).toMatchObject({ state })
      return found
    }, polling)
  const limitTo = async (...capabilities: string[]): Promise<void> => {
    const { uid } = await call('CreateRole', { parent: organisation.group, role: { name: freshName('role'), capabilities } })
    await world.api.patch(objectTypes.grant, { name: namespace }, { spec: { maxRole: { uid, builtIn: null } } }, signal)
  }
  const widen = (): Promise<KubeObject> =>
    world.api.patch(objectTypes.grant, { name: namespace }, { spec: { maxRole: { uid: null, builtIn: 'owner' } } }, signal)

  test('subscriptions as Kubernetes objects deliver the events of their group, and report it', async () => {
    const sink = await newSink()
    await put({ sink: sink.url, ordered: true })
    const object = await until('InSync')
    expect(object.status).toMatchObject({ state: 'ACTIVE', uid: uidOf(object) })
    expect(object.status).not.toHaveProperty('stateReason')
    const group = await newGroup()
    await sink.until(() => sink.about(group).length === 1)
    expect(await call('GetSubscription', { uid: uidOf(object) })).toMatchObject({ managedBy: `cluster-1/${namespace}/hook`, ordered: true, types: groupTypes })
  })

  test('subscriptions as Kubernetes objects follow changes, and reset removed fields', async () => {
    await put({ ordered: true, includePulls: true })
    const uid = uidOf(await until('InSync'))
    await put({ ordered: null, types: roleTypes, sink: `${farSink}/2` })
    await until('InSync')
    expect(world.record('Subscription', uid)?.message).toMatchObject({ ordered: false, includePulls: true, types: roleTypes, sink: `${farSink}/2` })
  })

  test.each([
    ['unknown event types', { types: ['iam.group.'] }, /types.*did you mean "dev\.taproot\.api\.iam\.group\."/],
    ['a sink in a private network', { sink: 'https://10.0.0.1/x' }, /sink.*events\.networks/],
  ])('subscriptions as Kubernetes objects with %s are Invalid, with the message of the API', async (_, spec, message) => {
    await put(spec)
    expect((await until('Invalid')).status?.conditions?.[0]?.message).toMatch(message)
  })

  test('subscriptions as Kubernetes objects can not be changed or deleted through the API, and their record is deleted with the object', async () => {
    await put({})
    const uid = uidOf(await until('InSync'))
    for (const [rpc, request] of [
      ['UpdateSubscription', { subscription: { uid, ordered: true } }],
      ['DeleteSubscription', { uid }],
    ] as const)
      expect(await world.server.rest.call(rpc, request, { token: organisation.token })).toMatchObject({ body: { code: 9 } })
    await world.api.delete(objectTypes.subscription, { namespace, name: 'hook' }, {}, signal)
    await world.gone('subscription', namespace, 'hook')
    expect(world.record('Subscription', uid)).toBeUndefined()
  })

  test('subscriptions as Kubernetes objects with deletionPolicy Orphan stay in the API, and an object adopts them by uid', async () => {
    await world.api.patch(objectTypes.grant, { name: namespace }, { spec: { allowAdoption: true } }, signal)
    await put({ deletionPolicy: 'Orphan' })
    const uid = uidOf(await until('InSync'))
    await world.api.delete(objectTypes.subscription, { namespace, name: 'hook' }, {}, signal)
    await world.gone('subscription', namespace, 'hook')
    expect(world.record('Subscription', uid)?.managedBy).toBe('')
    await put({ ordered: true }, { annotations: { [uidAnnotation]: uid } })
    expect(uidOf(await until('InSync'))).toBe(uid)
  })

  test('subscriptions as Kubernetes objects with the same sink have one record each', async () => {
    await put({})
    await world.put('subscription', namespace, 'other', { parentRef: { uid: organisation.group }, sink: farSink })
    const [one, other] = [await until('InSync'), await world.until('subscription', namespace, 'other', 'InSync')]
    expect(uidOf(one)).not.toBe(uidOf(other))
  })

  test('subscriptions as Kubernetes objects are created and changed by server-side apply; a dry run does neither', async () => {
    const apply = (spec: JsonObject, ...options: string[]): Promise<string> =>
      world.objects.kube.kubectl(
        ['apply', '--server-side', ...options, '-f', '-'],
        JSON.stringify({
          apiVersion: 'taproot.dev/v1alpha1',
          kind: 'PlatformSubscription',
          metadata: { namespace, name: 'hook' },
          spec: { parentRef: { uid: organisation.group }, sink: farSink, ...spec },
        }),
      )
    await apply({ ordered: true }, '--dry-run=server')
    await expect(world.object('subscription', namespace, 'hook')).rejects.toThrow('no subscription')
    await apply({ ordered: true })
    const uid = uidOf(await until('InSync'))
    await apply({})
    await vi.waitFor(() => expect(world.record('Subscription', uid)?.message).toMatchObject({ ordered: false }), polling)
  })

  describe('a subscription with suspend', () => {
    test('set from the beginning delivers nothing until it is cleared, and loses nothing', async () => {
      const sink = await newSink()
      await put({ sink: sink.url, suspend: true })
      const object = await until('InSync')
      expect(object.status).toMatchObject({ state: 'PAUSED', stateReason: 'suspended by its Kubernetes object' })
      const [created] = await new EventGround(world.server).stored({ type: 'api.events.subscription.created.v1', subject: uidOf(object) })
      expect(created && fromBinary(SubscriptionSchema, created.body)).toMatchObject({
        state: Subscription_State.PAUSED,
        stateReason: object.status?.stateReason,
      })
      const group = await newGroup()
      expect(sink.received).toEqual([])
      await put({ sink: sink.url, suspend: false })
      await sink.until(() => sink.about(group).length === 1)
      await untilState('ACTIVE')
    })

    test('a subscription with suspend does not end a pause for another reason until suspend was set and cleared', async () => {
      const sink = await newSink()
      sink.respond(answer(410))
      await put({ sink: sink.url })
      const uid = uidOf(await until('InSync'))
      const group = await newGroup()
      expect((await untilState('PAUSED')).status).toMatchObject({ stateReason: 'the sink answered 410 Gone' })
      sink.respond(answer(200))
      await put({ sink: sink.url, ordered: true })
      await until('InSync')
      expect(await call('GetSubscription', { uid })).toMatchObject({ state: 'PAUSED' })
      await put({ sink: sink.url, suspend: true })
      await vi.waitFor(async () => expect(await call('GetSubscription', { uid })).toMatchObject({ stateReason: 'suspended by its Kubernetes object' }), polling)
      await put({ sink: sink.url, suspend: null })
      await sink.until(() => sink.about(group).length === 2)
    })

    test('a subscription with suspend can also be paused with :pause, and the object shows it', async () => {
      await put({})
      const uid = uidOf(await until('InSync'))
      await call('PauseSubscription', { uid })
      expect((await untilState('PAUSED')).status).toMatchObject({ stateReason: 'paused by :pause' })
      await call('ResumeSubscription', { uid })
      await untilState('ACTIVE')
    })
  })

  test('a failing sink is shown as FAILING; successful deliveries write no status', async () => {
    const sink = await newSink()
    await put({ sink: sink.url })
    await until('InSync')
    const group = await newGroup()
    await sink.until(() => sink.about(group).length === 1)
    const writes = world.writes.length
    for (let count = 0; count < 20; count++) {
      const uid = await newGroup()
      await sink.until(() => sink.about(uid).length === 1)
      refresh()
    }
    // Mirrors of the groups are written, but not that of the subscription.
    expect(world.writes.slice(writes).filter((write) => write.includes('PlatformSubscription'))).toEqual([])
    sink.respond(answer(500))
    for (let count = 0; count < 8; count++) await newGroup()
    expect((await untilState('FAILING')).status?.stateReason).toMatch(/500/)
    expect((await until('InSync')).status?.state).toBe('FAILING')
  })

  describe('a subscription with secretName', () => {
    const hooks = { signing: 'STANDARD_WEBHOOKS', secretName: 'hook-secret' }
    const secretOf = async (name = 'hook-secret'): Promise<KubeObject | undefined> => world.api.get(objectTypes.secret, { namespace, name }, signal)
    const textOf = (secret: KubeObject | undefined): string => {
      const { secret: data = '' } = secret?.['data'] as Readonly<Record<string, string>> // as Secrets are
      return Buffer.from(data, 'base64').toString()
    }

    test('a subscription with secretName has a Secret with the signing secret, which is stored nowhere else', async () => {
      const sink = await newSink()
      await put({ sink: sink.url, ...hooks })
      const object = await until('InSync')
      const secret = await secretOf()
      expect(secret?.metadata.ownerReferences).toMatchObject([{ kind: 'PlatformSubscription', name: 'hook', uid: object.metadata.uid }])
      const text = textOf(secret)
      const group = await newGroup()
      await sink.until(() => sink.about(group).length === 1)
      const [received] = sink.about(group)
      const headers = received?.headers as Record<string, string>
      expect(() => new Webhook(text).verify(received?.body ?? '', headers)).not.toThrow()
      expect(JSON.stringify(await world.object('subscription', namespace, 'hook'))).not.toContain(text)
      const { entries } = await world.server.running.engine.store.range({ prefix: outboxPrefix, limit: 10_000 }, signal)
      expect(entries.filter(({ value }) => Buffer.from(value).includes(text))).toEqual([])
    })

    test('a subscription with secretName updates the Secret after a rotation, and creates it again after its deletion', async () => {
      await put(hooks)
      const uid = uidOf(await until('InSync'))
      const { secret } = await call('RotateSubscriptionSecret', { uid })
      await vi.waitFor(async () => {
        refresh()
        expect(textOf(await secretOf())).toBe(secret)
      }, polling)
      await world.api.delete(objectTypes.secret, { namespace, name: 'hook-secret' }, {}, signal)
      await vi.waitFor(async () => {
        refresh()
        expect(textOf(await secretOf())).toBe(secret)
      }, polling)
    })

    test('a changed or removed secretName deletes the former Secret of the object, but no Secret of another owner', async () => {
      const gone = (name: string): Promise<void> => vi.waitFor(async () => expect(await secretOf(name)).toBeUndefined(), polling)
      await put(hooks)
      await until('InSync')
      await put({ ...hooks, secretName: 'second' })
      await gone('hook-secret')
      expect(textOf(await secretOf('second'))).toMatch(/^whsec_/)
      await world.api.create(objectTypes.secret, { metadata: { namespace, name: 'mine' }, data: { secret: 'bWluZQ==' } }, signal)
      const annotations = { 'taproot.dev/webhook-secrets': 'mine,second,../../default/secrets/x,' }
      await world.api.patch(objectTypes.subscription, { namespace, name: 'hook' }, { metadata: { annotations } }, signal)
      await put({ ...hooks, secretName: 'mine' })
      await until('SecretInUse')
      expect(textOf(await secretOf('second'))).toMatch(/^whsec_/)
      await put({ signing: 'STANDARD_WEBHOOKS', secretName: null })
      await gone('second')
      expect(textOf(await secretOf('mine'))).toBe('mine')
    })

    test('a subscription with secretName keeps a Secret of another owner unchanged, and reports it', async () => {
      await world.api.create(objectTypes.secret, { metadata: { namespace, name: 'hook-secret' }, data: { secret: 'bWluZQ==' } }, signal)
      await put(hooks)
      expect((await until('SecretInUse')).status?.conditions?.[0]?.message).toContain('hook-secret')
      expect(textOf(await secretOf())).toBe('mine')
      await put({ ...hooks, secretName: 'free' })
      await until('InSync')
    })
  })

  describe('a grant for subscriptions', () => {
    test('a grant for subscriptions needs a maxRole that can list the records of the events: otherwise no record is created', async () => {
      await limitTo('CAP_IAM_GROUPS_LIST')
      await put({ types: [...groupTypes, ...roleTypes] })
      const refused = await until('ExceedsGrant')
      expect(refused.status?.conditions?.[0]?.message).toMatch(/its events need roles\.list: .*choose fewer types/)
      expect(refused.status).not.toHaveProperty('uid')
      await put({ types: groupTypes })
      await until('InSync')
    })

    test('a grant for subscriptions pauses a subscription when it is narrowed, with the reason; fewer event types end the pause', async () => {
      await put({ types: [...groupTypes, ...roleTypes] })
      const uid = uidOf(await until('InSync'))
      await limitTo('CAP_IAM_GROUPS_LIST')
      const paused = await until('ExceedsGrant')
      expect(paused.status).toMatchObject({ state: 'PAUSED', stateReason: "the maxRole of the namespace's grants lacks roles.list", uid })
      await put({ types: groupTypes })
      expect((await until('InSync')).status).toMatchObject({ uid, state: 'ACTIVE' })
    })

    test('a grant for subscriptions ends such a pause when it is widened', async () => {
      await put({ types: roleTypes })
      await until('InSync')
      await limitTo('CAP_IAM_GROUPS_LIST')
      await until('ExceedsGrant')
      await widen()
      expect((await until('InSync')).status).toMatchObject({ state: 'ACTIVE' })
    })

    test('a grant for subscriptions pauses a subscription without its object too', async () => {
      await put({ types: roleTypes })
      const uid = uidOf(await until('InSync'))
      await world.stopControllers()
      await world.api.patch(objectTypes.subscription, { namespace, name: 'hook' }, { metadata: { finalizers: null } }, signal)
      await world.api.delete(objectTypes.subscription, { namespace, name: 'hook' }, {}, signal)
      world.startController()
      await limitTo('CAP_IAM_GROUPS_LIST')
      await vi.waitFor(async () => expect(await call('GetSubscription', { uid })).toMatchObject({ state: 'PAUSED' }), polling)
    })

    test('a grant for subscriptions has no effect on other kinds', async () => {
      await world.api.patch(objectTypes.grant, { name: namespace }, { spec: { allowedKinds: ['PlatformGroup'] } }, signal)
      await put({})
      await until('NotGranted')
    })
  })

  describe('a mirror of a subscription', () => {
    const shown = (uid: string, more: object): Promise<PlatformObject> =>
      vi.waitFor(async () => {
        refresh()
        const found = await world.api.get(objectTypes.subscription, { namespace: 'default', name: mirrorName(objectKinds.Subscription, uid) }, signal)
        expect(found).toMatchObject(more)
        return found as PlatformObject
      }, polling)

    test('a mirror of a subscription shows the state of an API subscription, without its secret, and is deleted with it', async () => {
      const subscription = { sink: farSink, types: groupTypes, signing: 'STANDARD_WEBHOOKS' }
      const { uid, secret } = (await call('CreateSubscription', { parent: organisation.group, subscription })) as { uid: string; secret: string }
      const spec = { ...subscription, parentRef: { uid: organisation.group } }
      const mirror = await shown(uid, { spec, status: { uid, state: 'ACTIVE' } })
      expect(mirror.metadata.name).toMatch(/^psub-[0-9a-f]{20}$/)
      expect(JSON.stringify(mirror)).not.toContain(secret)
      await call('PauseSubscription', { uid })
      await shown(uid, { status: { state: 'PAUSED', stateReason: 'paused by :pause' } })
      await world.api.patch(objectTypes.subscription, { namespace: 'default', name: mirror.metadata.name }, { spec: { suspend: true } }, signal)
      await vi.waitFor(async () => expect((await shown(uid, {})).spec).not.toHaveProperty('suspend'), polling)
      await call('DeleteSubscription', { uid })
      await world.gone('subscription', 'default', mirror.metadata.name)
    })

    test('a mirror of a subscription does not exist for a subscription with its own object', async () => {
      await put({})
      const uid = uidOf(await until('InSync'))
      expect(await world.api.get(objectTypes.subscription, { namespace: 'default', name: mirrorName(objectKinds.Subscription, uid) }, signal)).toBeUndefined()
    })
  })
})

describeWithPart('kube-apiserver', 'subscriptions of a controller that may not write Secrets', () => {
  test('subscriptions of a controller that may not write Secrets report it if they name a Secret, and deliver their events', async () => {
    const world = await startControllerWorld({ writesSecrets: false })
    onTestFinished(() => world.stop())
    const organisation = await world.organisation()
    const namespace = await world.namespace(organisation)
    const spec = { parentRef: { uid: organisation.group }, sink: farSink, signing: 'STANDARD_WEBHOOKS', secretName: 'hook' }
    await world.put('subscription', namespace, 'hook', spec)
    const object = await world.until('subscription', namespace, 'hook', 'SecretsDisabled')
    expect(object.status).toMatchObject({ state: 'ACTIVE', uid: uidOf(object) })
    expect(await world.api.get(objectTypes.secret, { namespace, name: 'hook' }, signal)).toBeUndefined()
  })
})
