import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { JsonObject } from '@bufbuild/protobuf'
import { describeOnStores } from '../support/parts/require-part.ts'
import { freshName, makeOrganisation, ok, roleUid, startTestServer, type TestServer } from '../support/test-server.ts'
import { isWithin } from '../../src/base/uid.ts'
import { sinkAuthority, startSink, type Sink } from './sink.ts'

/** One step of a history: the action, and a number that chooses among the existing groups or subscriptions. */
interface Step {
  readonly kind: 'group' | 'role' | 'subscribe' | 'unsubscribe' | 'bind' | 'unbind'
  readonly at: number
}

const steps = fc.array(
  fc.record<Step>({ kind: fc.constantFrom('group', 'group', 'role', 'role', 'subscribe', 'subscribe', 'unsubscribe', 'bind', 'unbind'), at: fc.nat(1_000) }),
  { minLength: 5, maxLength: 25 },
)

/** An event that the model expects. */
interface Expected {
  readonly subject: string
  readonly group: string
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
        const subscriptions: { uid: string; group: string; path: string; expected: Expected[]; isThere: boolean }[] = []
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
            happened({ subject: uid, group: parent })
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

  function received(path: string): string[] {
    return sink.received.filter((request) => request.path.endsWith(`/${path}`)).map(({ headers }) => String(headers['ce-subject']))
  }
})
