import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { JsonObject } from '@bufbuild/protobuf'
import { reinstate, suspend } from '../support/suspend.ts'
import { describeOnStores } from '../support/parts/require-part.ts'
import { freshName, makeOrganisation, ok, roleUid, startTestServer, type Organisation, type TestServer } from '../support/test-server.ts'
import { isWithin, parentOf, trustedUid } from '../../src/base/uid.ts'
import { sinkAuthority, startSink, type Sink } from './sink.ts'

/** What happens in a step. `remove` deletes an empty group. */
const kinds = ['group', 'group', 'role', 'role', 'subscribe', 'subscribe', 'unsubscribe', 'bind', 'unbind', 'remove', 'remove'] as const

/** One step of a history: the action, and a number that chooses among the existing groups or subscriptions. */
interface Step {
  readonly kind: (typeof kinds)[number]
  readonly at: number
}

const steps = fc.array(fc.record<Step>({ kind: fc.constantFrom(...kinds), at: fc.nat(1_000) }), { minLength: 5, maxLength: 30 })

/** An event that the model expects. */
interface Expected {
  readonly subject: string
  readonly group: string
}

/** A subscription, and what it must receive. */
interface Subscribed {
  readonly uid: string
  readonly group: string
  readonly path: string
  readonly expected: Expected[]
  /** False once it is deleted. */
  isThere: boolean
}

describeOnStores('subscriptions in random trees of groups', (store) => {
  let server: TestServer
  let sink: Sink
  let folder: string

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'taproot-test-'))
    const caFile = join(folder, 'sinks.pem')
    await writeFile(caFile, sinkAuthority.certificate)
    server = await startTestServer({
      store,
      env: { TAPROOT_EVENTS_NETWORKS: '["127.0.0.0/8","::1"]', TAPROOT_EVENTS_CA_FILE: caFile, TAPROOT_RATE_LIMIT_ENABLED: 'false' },
    })
    sink = await startSink()
  })
  afterAll(async () => {
    await server.stop()
    await sink.close()
    await rm(folder, { recursive: true, force: true })
  })

  test('subscriptions in random trees of groups receive all events of their subtree while they exist, and no others', async () => {
    await fc.assert(
      fc.asyncProperty(steps, async (history) => {
        const [organisation, other] = [await makeOrganisation(server), await makeOrganisation(server)]
        const call = async (rpc: string, request: JsonObject): Promise<JsonObject> =>
          ok(await server.rest.call(rpc, request, { token: request['parent'] === other.group ? other.token : organisation.token }))
        const groups = [organisation.group]
        const bindings: { uid: string; group: string }[] = []
        /** Groups of all records that were made and not removed: such groups cannot be removed. */
        const occupied: string[] = []
        const subscriptions: Subscribed[] = []
        const happened = (event: Expected): void => {
          for (const one of subscriptions) if (one.isThere && isWithin(event.group, one.group)) one.expected.push(event)
        }
        const chosen = <T>(all: readonly T[], at: number): T | undefined => all[at % Math.max(all.length, 1)]
        for (const { kind, at } of history) {
          const parent = chosen(groups, at) ?? organisation.group
          // Events of another organisation occur all the time.
          await call('CreateGroup', { parent: other.group, group: { name: freshName('noise') } })
          if (kind === 'group') {
            const uid = String((await call('CreateGroup', { parent, group: { name: freshName('group') } }))['uid'])
            groups.push(uid)
            happened({ subject: uid, group: uid })
          } else if (kind === 'role') {
            const uid = String((await call('CreateRole', { parent, role: { name: freshName('role'), capabilities: ['CAP_IAM_GROUPS_LIST'] } }))['uid'])
            occupied.push(parent)
            happened({ subject: uid, group: parent })
          } else if (kind === 'bind') {
            // The first binding in a group; a second would be a conflict.
            if (!bindings.some(({ group }) => group === parent)) {
              const roleBinding = { identityUid: organisation.owner, roleUid: roleUid('viewer') }
              const uid = String((await call('CreateRoleBinding', { parent, roleBinding }))['uid'])
              bindings.push({ uid, group: parent })
              happened({ subject: uid, group: parent })
            }
          } else if (kind === 'unbind') {
            const binding = bindings.splice(at % Math.max(bindings.length, 1), 1)[0]
            if (binding !== undefined) {
              await call('DeleteRoleBinding', { uid: binding.uid })
              happened({ subject: binding.uid, group: binding.group })
            }
          } else if (kind === 'subscribe') {
            const path = freshName('sink')
            const uid = String((await call('CreateSubscription', { parent, subscription: { sink: `${sink.url}/${path}` } }))['uid'])
            subscriptions.push({ uid, group: parent, path, expected: [], isThere: true })
            occupied.push(parent)
            happened({ subject: uid, group: parent })
          } else if (kind === 'remove') {
            const isUsed = (group: string): boolean =>
              [...groups.filter((one) => one !== group), ...occupied, ...bindings.map((one) => one.group)].some((one) => isWithin(one, group))
            const empty = chosen(
              groups.filter((group) => !isUsed(group)),
              at,
            )
            if (empty !== undefined && empty !== organisation.group) {
              await call('DeleteGroup', { uid: empty })
              groups.splice(groups.indexOf(empty), 1)
              happened({ subject: empty, group: parentOf(trustedUid(empty)) })
            }
          } else {
            const ended = chosen(
              subscriptions.filter(({ isThere }) => isThere),
              at,
            )
            if (ended !== undefined) {
              // Its earlier events arrive before its deletion, because pending ones may be lost with it.
              await sink.until(() => received(ended.path).length >= ended.expected.length)
              await call('DeleteSubscription', { uid: ended.uid })
              ended.isThere = false
              happened({ subject: ended.uid, group: ended.group })
            }
          }
        }
        for (const one of subscriptions) {
          await sink.until(() => received(one.path).length >= one.expected.length)
          expect(received(one.path).toSorted()).toEqual(one.expected.map(({ subject }) => subject).toSorted())
        }
      }),
      { numRuns: 6 },
    )
  })

  // docs/spec/events.md#rights
  test('subscriptions of a suspended organisation receive nothing and say why; later they receive all events that waited', async () => {
    const [organisation, witness] = [await makeOrganisation(server), await makeOrganisation(server)]
    const subscribe = async ({ group, token }: Organisation): Promise<{ uid: string; path: string }> => {
      const path = freshName('sink')
      const subscription = { sink: `${sink.url}/${path}`, types: ['dev.taproot.api.iam.group.'] }
      const { uid } = ok(await server.rest.call('CreateSubscription', { parent: group, subscription }, { token }))
      return { uid: String(uid), path }
    }
    const [{ uid, path }, other] = [await subscribe(organisation), await subscribe(witness)]
    const operator = await server.operatorToken()
    const shown = async (): Promise<JsonObject> => ok(await server.rest.call('GetSubscription', { uid }, { token: operator }))
    await suspend(server, organisation.group)
    expect(await shown()).toMatchObject({ state: 'PAUSED', stateReason: 'the organisation is suspended' })
    const change = (group: string): Promise<JsonObject> =>
      server.rest.call('UpdateGroup', { group: { uid: group, description: freshName('text') } }, { token: operator }).then(ok)
    await change(organisation.group)
    await change(witness.group)
    await sink.until(() => received(other.path).length > 0)
    expect(received(path)).toEqual([])
    await reinstate(server, organisation.group)
    // The suspension, the change and the end of the suspension.
    await sink.until(() => received(path).length >= 3)
    expect(await shown()).toMatchObject({ state: 'ACTIVE' })
  })

  function received(path: string): string[] {
    return sink.received.filter((request) => request.path.endsWith(`/${path}`)).map(({ headers }) => String(headers['ce-subject']))
  }
})
