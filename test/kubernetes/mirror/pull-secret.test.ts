import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { decodeJwt } from 'jose'
import { systemClock } from '../../../src/server/runtime.ts'
import { pullSecretAnnotation, pullSecretLabel } from '../../../src/kubernetes/pull-secret.ts'
import type { KubeObject } from '../../../src/kubernetes/kube-api.ts'
import { objectTypes } from '../../../src/kubernetes/object-types.ts'
import { freshName, ok, roleUid } from '../../support/test-server.ts'
import { describeWithPart } from '../../support/parts/require-part.ts'
import { polling, startControllerWorld, uidOf, type ControllerWorld } from '../controller-world.ts'
import { LongTimers } from '../client/long-timers.ts'

const signal = AbortSignal.timeout(600_000)

/** Returns the credentials in the Secret for the registry host. */
function passwordOf(secret: KubeObject, host: string): { username: string; password: string } | undefined {
  const data = secret['data'] as Readonly<Record<string, string>>
  const config = JSON.parse(Buffer.from(data['.dockerconfigjson'] ?? '', 'base64').toString()) as {
    auths: Record<string, { username: string; password: string }>
  } // a cast of what the format says
  return config.auths[host]
}

describeWithPart('kube-apiserver', 'pull secrets', () => {
  let world: ControllerWorld
  let movedMs = 0
  const timers = new LongTimers()
  beforeAll(async () => {
    world = await startControllerWorld({ timers, clock: { now: () => systemClock.now() + movedMs } })
  })
  afterAll(() => world?.stop())

  const account = (namespace: string, name: string): Promise<KubeObject> =>
    world.api.create(objectTypes.serviceAccount, { metadata: { namespace, name, annotations: { [pullSecretAnnotation]: 'pull' } } }, signal)
  const secret = (namespace: string): Promise<KubeObject> =>
    vi.waitFor(async () => {
      const found = await world.api.get(objectTypes.secret, { namespace, name: 'pull' }, signal)
      if (found === undefined) throw new Error('no Secret yet')
      return found
    }, polling)

  test('pull secrets are created for an annotated service account with a token for the registry host, and deleted with it', async () => {
    const organisation = await world.organisation()
    const namespace = await world.namespace(organisation)
    const { metadata } = await account(namespace, 'deployer')
    await world.put('identity', namespace, 'deployer', { parentRef: { uid: organisation.group }, serviceAccountRef: { name: 'deployer' } })
    await world.put('roleBinding', namespace, 'pulls', {
      parentRef: { uid: organisation.group },
      identityRef: { name: 'deployer' },
      roleRef: { builtIn: 'registry.pull' },
    })
    await world.until('roleBinding', namespace, 'pulls', 'InSync')
    const made = await secret(namespace)
    expect(made).toMatchObject({ type: 'kubernetes.io/dockerconfigjson', metadata: { ownerReferences: [{ kind: 'ServiceAccount', uid: metadata.uid }] } })
    const { host } = world.server.config.registry
    const { username = '', password = '' } = passwordOf(made, host) ?? {}
    const authorization = `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}`
    const answer = await fetch(`http://${host}/token?service=${host}`, { headers: { authorization } })
    expect(answer.status).toBe(200)
  })

  test('pull secrets contain a token that pulls and can not push, whatever its identity may do', async () => {
    const organisation = await world.organisation()
    const namespace = await world.namespace(organisation)
    const { group } = organisation
    await account(namespace, 'deployer')
    const name = freshName('repo')
    await world.put('repo', namespace, name, { parentRef: { uid: group } })
    await world.until('repo', namespace, name, 'InSync')
    await world.put('identity', namespace, 'deployer', { parentRef: { uid: group }, serviceAccountRef: { name: 'deployer' } })
    await world.put('roleBinding', namespace, 'owns', { parentRef: { uid: group }, identityRef: { name: 'deployer' }, roleRef: { builtIn: 'owner' } })
    await world.until('roleBinding', namespace, 'owns', 'InSync')
    const { host } = world.server.config.registry
    const { username = '', password = '' } = passwordOf(await secret(namespace), host) ?? {}
    const authorization = `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}`
    const path = `${String(world.record('Group', group)?.name)}/${name}`
    const answer = await fetch(`http://${host}/token?service=${host}&scope=repository:${path}:pull,push`, { headers: { authorization } })
    const { token } = (await answer.json()) as { token: string } // a cast of what the protocol says
    expect(decodeJwt(token)['access']).toMatchObject([{ type: 'repository', name: path, actions: ['pull'] }])
  })

  test('pull secrets are renewed half an hour before their token expires', async () => {
    const organisation = await world.organisation()
    const namespace = await world.namespace(organisation)
    await account(namespace, 'deployer')
    await world.put('identity', namespace, 'deployer', { parentRef: { uid: organisation.group }, serviceAccountRef: { name: 'deployer' } })
    const first = await secret(namespace)
    const expiryOf = ({ metadata }: KubeObject): number => Date.parse(metadata.annotations?.['taproot.dev/expires'] ?? '')
    // Renewals of all accounts, which no event announces.
    const isRenewal = (ms: number): boolean => ms > 1_700_000 && ms <= 1_800_000
    movedMs += 1_800_000
    await vi.waitFor(async () => {
      timers.ring(isRenewal)
      expect(expiryOf(await secret(namespace))).toBeGreaterThanOrEqual(expiryOf(first) + 1_790_000)
    }, polling)
    const { host } = world.server.config.registry
    const next = await secret(namespace)
    expect(passwordOf(next, host)?.password).not.toBe(passwordOf(first, host)?.password)
    expect(next.metadata).toMatchObject({ uid: first.metadata.uid, labels: { [pullSecretLabel]: 'true' } })
  })

  test('pull secrets are not created for an account without an object in its namespace', async () => {
    const organisation = await world.organisation()
    const [namespace, other] = [await world.namespace(organisation), await world.namespace(organisation)]
    await account(namespace, 'deployer')
    await world.put('identity', other, 'deployer', { parentRef: { uid: organisation.group }, serviceAccountRef: { name: 'deployer', namespace } })
    await world.put('identity', namespace, 'another', { parentRef: { uid: organisation.group }, serviceAccountRef: { name: 'another' } })
    await world.until('identity', other, 'deployer', 'InSync')
    await world.until('identity', namespace, 'another', 'InSync')
    // A later object was processed, so the earlier one was processed and ignored.
    await world.put('identity', namespace, 'deployer', { parentRef: { uid: organisation.group }, serviceAccountRef: { name: 'deployer' } })
    const identity = await world.until('identity', namespace, 'deployer', 'InSync')
    expect((await secret(namespace)).metadata.annotations?.['taproot.dev/identity']).toBe(uidOf(identity))
  })

  test('pull secrets are not created for an identity that another account signs in to, whatever the object says now', async () => {
    const organisation = await world.organisation()
    const namespace = await world.namespace(organisation, { maxRole: { builtIn: 'viewer' } })
    const { group, token } = organisation
    await world.put('identity', namespace, 'ci', { parentRef: { uid: group }, claimMatch: { issuer: 'https://ci.example', subject: 'main' } })
    const identityUid = uidOf(await world.until('identity', namespace, 'ci', 'InSync'))
    ok(await world.server.rest.call('CreateRoleBinding', { parent: group, roleBinding: { identityUid, roleUid: roleUid('owner') } }, { token }))
    await world.api.patch(objectTypes.identity, { namespace, name: 'ci' }, { spec: { claimMatch: null, serviceAccountRef: { name: 'deployer' } } }, signal)
    await world.until('identity', namespace, 'ci', 'ExceedsGrant')
    await account(namespace, 'deployer')
    // Its own object comes later, when the other was processed.
    await world.put('identity', namespace, 'own', { parentRef: { uid: group }, serviceAccountRef: { name: 'deployer' } })
    const own = uidOf(await world.until('identity', namespace, 'own', 'InSync'))
    expect((await secret(namespace)).metadata.annotations?.['taproot.dev/identity']).toBe(own)
  })

  test('pull secrets that can not be created cause an event with the reason', async () => {
    const organisation = await world.organisation()
    const namespace = await world.namespace(organisation)
    await world.api.create(objectTypes.secret, { metadata: { namespace, name: 'pull' }, type: 'Opaque', data: {} }, signal)
    await world.put('identity', namespace, 'deployer', { parentRef: { uid: organisation.group }, serviceAccountRef: { name: 'deployer' } })
    await world.until('identity', namespace, 'deployer', 'InSync')
    await account(namespace, 'deployer')
    await account(namespace, 'stranger')
    await world.api.create(objectTypes.serviceAccount, { metadata: { namespace, name: 'odd', annotations: { [pullSecretAnnotation]: 'No Name' } } }, signal)
    await vi.waitFor(async () => {
      const { items } = await world.api.list(objectTypes.event, { namespace, limit: 100 }, signal)
      const eventsOf = items.filter(({ regarding }) => (regarding as { kind: string }).kind === 'ServiceAccount')
      const reasons = eventsOf.map(({ regarding, type, reason }) => `${String(type)} ${(regarding as { name: string }).name} ${String(reason)}`)
      expect(new Set(reasons)).toEqual(new Set(['Warning deployer SecretInUse', 'Warning stranger NoIdentity', 'Warning odd InvalidSecretName']))
    }, polling)
  })

  test('pull secrets do not replace a foreign Secret', async () => {
    const organisation = await world.organisation()
    const namespace = await world.namespace(organisation)
    const theirs = { metadata: { namespace, name: 'pull' }, type: 'Opaque', data: { key: 'dmFsdWU=' } }
    const { metadata } = await world.api.create(objectTypes.secret, theirs, signal)
    await account(namespace, 'deployer')
    await world.put('identity', namespace, 'deployer', { parentRef: { uid: organisation.group }, serviceAccountRef: { name: 'deployer' } })
    await world.until('identity', namespace, 'deployer', 'InSync')
    await vi.waitFor(
      () =>
        expect(world.server.logs.some(({ message, fields }) => message.includes('did not create the Secret') && fields['namespace'] === namespace)).toBe(true),
      polling,
    )
    const found = await secret(namespace)
    expect(found.metadata.resourceVersion).toBe(metadata.resourceVersion)
    expect(found.metadata.labels?.[pullSecretLabel]).toBeUndefined()
  })
})
