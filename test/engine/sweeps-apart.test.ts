import { expect, test, onTestFinished } from 'vitest'
import { fill, filledBinding, filledGroup, uidsBelow } from '../support/fill-bindings.ts'
import { freshName, makeMember, makeOrganisation, ok, startTestServer } from '../support/test-server.ts'
import { describeOnStores } from '../support/parts/require-part.ts'

const bindings = 3_000

describeOnStores('during the sweep of the bindings of a deleted identity', (store) => {
  test('refused and conflicting writes in other groups do not wait for it; only a deletion that these bindings block waits', async () => {
    const server = await startTestServer({ store })
    onTestFinished(() => server.stop())
    const [busy, other] = [await makeOrganisation(server), await makeOrganisation(server)]
    const { tables } = server.running.engine.cache
    const identity = await makeMember(server, busy.group)
    const draft = { name: freshName('role'), capabilities: ['CAP_IAM_GROUPS_LIST'] }
    const role = String(ok(await server.rest.call('CreateRole', { parent: busy.group, role: draft }, { token: busy.token }))['uid'])
    const groups = uidsBelow(busy.group, bindings)
    await fill(server, [
      ...groups.map((uid, at) => filledGroup(uid, `team ${at}`)),
      ...groups.map((uid) => filledBinding(`${uid}/${'b'.repeat(16)}`, identity.uid, role)),
    ])
    const name = freshName('taken')
    const group = { parent: other.group, group: { name } }
    ok(await server.rest.call('CreateGroup', group, { token: other.token }))
    const refuse = async (): Promise<void> => expect(await server.rest.call('CreateGroup', group, { token: other.token })).toMatchObject({ code: 6 })
    await refuse()

    ok(await server.rest.call('DeleteIdentity', { uid: identity.uid }, { token: busy.token }))
    expect(tables.cascades()).toHaveLength(1)
    await refuse()
    const contended = Array.from({ length: 8 }, (_, at) =>
      server.rest.call('UpdateGroup', { group: { uid: other.group, description: `${at}` }, updateMask: 'description' }, { token: other.token }),
    )
    for (const reply of await Promise.all(contended)) expect([0, 10]).toContain(reply.code)
    expect(tables.cascades(), 'the sweep goes on').toHaveLength(1)

    ok(await server.rest.call('DeleteRole', { uid: role }, { token: busy.token }))
    expect(tables.cascades(), 'the role was in use until the end').toEqual([])
  })
})
