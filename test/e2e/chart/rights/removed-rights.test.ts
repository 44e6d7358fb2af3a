import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { pullSecretAnnotation } from '../../../../src/kubernetes/pull-secret.ts'
import { objectTypes } from '../../../../src/kubernetes/object-types.ts'
import { ok, type Organisation } from '../../../support/test-server.ts'
import { startControllerWorld, type ControllerWorld } from '../../../kubernetes/controller-world.ts'
import { describeWithParts } from '../../../support/parts/require-part.ts'
import { auditLogOf, resourceOf, type AuditLog } from './audit-log.ts'
import { controllerRoles, grantRights, place } from './given-rights.ts'
import type { Rendered } from '../helm.ts'

const account = 'system:serviceaccount:default:taproot-controller'
const signal = AbortSignal.timeout(600_000)
const polling = { timeout: 120_000, interval: 50 }

/** A rule of a role. */
interface Rule {
  readonly apiGroups: readonly string[]
  readonly resources: readonly string[]
  readonly verbs: readonly string[]
  readonly resourceNames?: readonly string[]
}

describeWithParts(['kube-apiserver', 'helm'], 'the roles of the controller', () => {
  let world: ControllerWorld
  let organisation: Organisation
  let namespace: string
  let directory: string
  let audit: AuditLog
  let roles: readonly Rendered[]

  const kubectl = (args: readonly string[], input?: object): Promise<string> =>
    world.objects.kube.kubectl(args, input === undefined ? undefined : JSON.stringify(input))

  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), 'taproot-removed-rights-'))
    audit = await auditLogOf(account, directory)
    roles = (await controllerRoles()).filter(({ kind }) => kind === 'Role' || kind === 'ClusterRole')
    world = await startControllerWorld({ kube: { flags: audit.flags }, mirror: { enabled: true, namespace: place.namespace }, controllerToken: grantRights })
    organisation = await world.organisation()
    namespace = await world.namespace(organisation)
    await world.api.create(objectTypes.serviceAccount, { metadata: { namespace, name: 'puller', annotations: { [pullSecretAnnotation]: 'pull' } } }, signal)
    await world.put('identity', namespace, 'puller', { parentRef: { uid: organisation.group }, serviceAccountRef: { name: 'puller' } })
    await world.until('identity', namespace, 'puller', 'InSync')
    await world.stopControllers()
  })
  afterAll(async () => {
    await world?.stop()
    await rm(directory, { recursive: true, force: true })
  })

  /** Resolves once the API server allows, or denies, the controller the actions of the rule. */
  async function awaitRule({ apiGroups: [group = ''], resources: [resource = ''], verbs: [verb = ''], resourceNames }: Rule, is: 'yes' | 'no'): Promise<void> {
    const [name, subresource] = resource.split('/')
    const what = `${name}${group === '' ? '' : `.${group}`}${resourceNames === undefined ? '' : `/${resourceNames[0]}`}`
    const question = [
      'auth',
      'can-i',
      verb,
      what,
      `--as=${account}`,
      '-n',
      place.namespace,
      ...(subresource === undefined ? [] : [`--subresource=${subresource}`]),
    ]
    // The command exits with 1 if the answer is no.
    await vi.waitFor(async () => expect((await kubectl(question).catch(() => 'no')).trim()).toBe(is), polling)
  }

  /** Returns whether a call that the rule allows was refused, among those after the first `from`. */
  async function isRefused({ apiGroups, resources, verbs }: Rule, from: number): Promise<boolean> {
    return (await audit.read())
      .slice(from)
      .some(
        (call) =>
          call.responseStatus.code === 403 &&
          verbs.includes(call.verb) &&
          resources.includes(resourceOf(call)) &&
          apiGroups.includes(call.objectRef?.apiGroup ?? ''),
      )
  }

  /** Creates and deletes an object, keeps another, and creates an API record, until a call that `rule` allows is refused. */
  async function live(name: string, refused: () => Promise<boolean>): Promise<void> {
    const { token, group } = organisation
    await world.put('group', namespace, name, { parentRef: { uid: group } })
    // The status of its grant counts this object for a longer time.
    await world.put('group', namespace, `${name}-stays`, { parentRef: { uid: group } })
    ok(await world.server.rest.call('CreateGroup', { parent: group, group: { name: `shown-${name}` } }, { token }))
    await vi.waitFor(async () => {
      const { status } = await world.object('group', namespace, name)
      expect((await refused()) || status?.conditions?.[0]?.reason === 'InSync').toBe(true)
    }, polling)
    await world.api.delete(objectTypes.group, { namespace, name }, {}, signal)
    await vi.waitFor(async () => expect(await refused()).toBe(true), polling)
  }

  test('every rule is needed: without it a request of the controller is refused', async () => {
    const before = await audit.read()
    expect(before.filter(({ responseStatus: { code } }) => code === 403 || code === 401)).toEqual([])
    let round = 0
    for (const role of roles) {
      const rules = role['rules'] as readonly Rule[]
      for (const rule of rules) {
        await kubectl(['-n', place.namespace, 'delete', 'lease', 'taproot-controller', '--ignore-not-found'])
        await kubectl(['replace', '-f', '-'], { ...role, rules: rules.filter((other) => other !== rule) })
        await awaitRule(rule, 'no')
        const from = (await audit.read()).length
        const controller = world.startController()
        await live(`round-${(round += 1)}`, () => isRefused(rule, from))
        await controller.stop()
        await kubectl(['replace', '-f', '-'], role)
        await awaitRule(rule, 'yes')
      }
    }
    expect(round).toBe(12)
  })
})
