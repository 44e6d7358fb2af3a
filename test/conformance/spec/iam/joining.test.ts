import { randomBytes } from 'node:crypto'
import { create, type JsonObject } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import { personUid } from '../../../../src/auth/oidc/issuer-name.ts'
import { setOf } from '../../../../src/base/capability.ts'
import { trustedUid } from '../../../../src/base/uid.ts'
import { RoleBindingSchema } from '../../../../src/gen/taproot/iam/v2/role_bindings_pb.ts'
import { ChangeSet, newEtag } from '../../../../src/engine/change-set.ts'
import { roleBindingKind } from '../../../../src/iam/records/role-bindings.ts'
import { forgetPending } from '../../../../src/engine/membership.ts'
import type { Resource } from '../../../../src/cache/records/cached-record.ts'
import { pendingKey, pendingPrefix, recordKey } from '../../../../src/store/keys.ts'
import type { Store } from '../../../../src/store/store.ts'
import { failNext } from '../../../support/fail-next.ts'
import { reinstate, suspend } from '../../../support/suspend.ts'
import { freshName, makeOrganisation, roleUid, type Organisation } from '../../../support/test-server.ts'
import { makeRole } from '../../walk/world.ts'
import { eventsOf } from '../outbox.ts'
import { subgroup } from '../spec-kinds.ts'
import { expectFailure, itemsOf, specSuite, uidOf } from '../spec-suite.ts'

interface Arrival {
  readonly subject: string
  readonly uid: string
  readonly external: string
}

function methodIn(store: Store, property: string | symbol): unknown {
  const value: unknown = Reflect.get(store, property)
  return typeof value === 'function' ? (value.bind(store) as unknown) : value
}

specSuite('joining an organisation', (spec) => {
  const signal = (): AbortSignal => AbortSignal.timeout(60_000)
  const viewer = roleUid('viewer')

  const newcomer = async (): Promise<Arrival> => {
    const { devIssuer, config } = spec.server
    const subject = freshName('newcomer')
    const claims = { name: 'Some Body', email: `${subject}@person.example`, email_verified: true }
    return { subject, uid: personUid(devIssuer.issuer, subject), external: await devIssuer.mintDevToken({ subject, audience: config.baseUrl, claims }) }
  }
  const bind = async (org: Organisation, identityUid: string, { at = org.group, role = viewer } = {}) =>
    spec.ok('CreateRoleBinding', { parent: at, roleBinding: { identityUid, roleUid: role } }, { token: org.token })
  const register = (person: Arrival, request: JsonObject = {}) => spec.ok('Register', request, { token: person.external })
  /** An access token of a person who belongs somewhere, so that they are registered. */
  const tokenOf = async (person: Arrival): Promise<string> => String((await spec.ok('Exchange', {}, { token: person.external }))['token'])
  const atHome = async (): Promise<Arrival & { home: Organisation }> => {
    const [home, person] = [await makeOrganisation(spec.server), await newcomer()]
    await invited(home, person)
    return { ...person, home }
  }
  const invited = async (org: Organisation, person: Arrival): Promise<void> => {
    const { code = '' } = await spec.ok('CreateGroupInvite', { parent: org.group, groupInvite: { roleUid: viewer, ttl: '3600s' } }, { token: org.token })
    await register(person, { code })
  }
  const roots = async (token: string): Promise<string[]> => itemsOf(await spec.ok('ListGroups', {}, { token }), 'groups').map(uidOf)
  const join = (uid: string, token: string, validateOnly = false) => spec.call('JoinGroup', { uid }, { token, validateOnly })

  test('a binding created by others works at once, and unscoped lists show it after the person joins', async () => {
    const person = await atHome()
    const org = await makeOrganisation(spec.server)
    const sub = await subgroup(spec, org.group, org.token)
    const repo = uidOf(await spec.ok('CreateRepo', { parent: sub, repo: { name: freshName('repo') } }, { token: org.token }))
    await bind(org, person.uid)
    const token = await tokenOf(person)
    const { home } = person
    expect(await spec.ok('GetGroup', { uid: sub }, { token })).toMatchObject({ uid: sub })
    expect(await roots(token)).toEqual([home.group])
    expect(await spec.ok('ListGroups', { name: '', uidp: { inRoot: true } }, { token })).toMatchObject({ totalCount: '1' })
    expect(await spec.ok('ListGroups', { uidp: { childrenOf: '/' } }, { token })).toMatchObject({ totalCount: '1' })
    expect(await spec.ok('ListRepos', {}, { token })).toMatchObject({ repos: [], totalCount: '0' })
    for (const uidp of [{ descendantsOf: org.group }, { childrenOf: sub }, { ids: [repo] }])
      expect(itemsOf(await spec.ok('ListRepos', { uidp }, { token }), 'repos').map(uidOf)).toEqual([repo])
    expect(itemsOf(await spec.ok('ListGroups', { uidp: { ancestorsOf: sub } }, { token }), 'groups').map(uidOf)).toEqual([org.group])

    expect((await join(org.group, token, true)).code).toBe(0)
    expect(await roots(token)).toEqual([home.group])
    expect(await spec.ok('JoinGroup', { uid: org.group }, { token })).toEqual({ organizationUid: org.group })
    expect(await roots(token)).toEqual([home.group, org.group, sub].sort())
    expect(itemsOf(await spec.ok('ListRepos', {}, { token }), 'repos').map(uidOf)).toEqual([repo])
    // Once is enough, with one event.
    expect((await join(sub, token)).code).toBe(0)
    const joined = (await eventsOf(spec, org.group)).filter(({ type }) => type === 'dev.taproot.api.iam.group.joined.v1')
    expect(joined).toMatchObject([{ group: org.group, actorSubject: person.uid }])
    // Another binding there is theirs from the beginning.
    await bind(org, person.uid, { role: roleUid('editor') })
    expect(await roots(token)).toHaveLength(3)
  })

  test('a person without any other organisation can list the built-in roles', async () => {
    const [org, person] = [await makeOrganisation(spec.server), await newcomer()]
    await bind(org, person.uid)
    await register(person)
    const token = await tokenOf(person)
    expect(await roots(token)).toEqual([])
    expect(itemsOf(await spec.ok('ListRoles', { name: 'viewer' }, { token }), 'roles')).toHaveLength(1)
    expect(itemsOf(await spec.ok('Auth/Validate', {}, { token }), 'capabilities')).toHaveLength(1)
  })

  test('an invite joins a person, also after others bound a role', async () => {
    const [org, person] = [await makeOrganisation(spec.server), await newcomer()]
    await bind(org, person.uid, { role: roleUid('editor') })
    await register(person)
    const token = await tokenOf(person)
    expect(await roots(token)).toEqual([])
    await invited(org, person)
    expect(await roots(token)).toEqual([org.group])
    await spec.ok('DeleteRoleBinding', { uid: await bindingOf(org, person.uid, viewer) }, { token: org.token })
    expect(await roots(token)).toEqual([org.group])
  })

  const bindingOf = async (org: Organisation, identity: string, role: string): Promise<string> => {
    const { roleBindings } = await spec.ok('ListRoleBindings', { identity, role, uidp: { descendantsOf: org.group } }, { token: org.token })
    return uidOf((roleBindings as JsonObject[])[0] ?? {}) // a list answer
  }

  test('joining needs a role binding in an open organisation and a token without restrictions', async () => {
    const person = await atHome()
    const [org, other] = [await makeOrganisation(spec.server), await makeOrganisation(spec.server)]
    const [team, sibling] = [await subgroup(spec, org.group, org.token), await subgroup(spec, org.group, org.token)]
    await bind(org, person.uid, { at: team })
    const token = await tokenOf(person)
    for (const uid of [other.group, sibling, `${team}/${'0'.repeat(16)}`, 'nothing', person.uid]) expectFailure(await join(uid, token), { code: 5 })
    for (const restrictions of [{ capabilities: setOf(['groups.list']) }, { scopes: [trustedUid(team)] }])
      expectFailure(await join(team, await spec.server.tokenFor(person.uid, restrictions)), { code: 7 })
    // The provider of another organisation does not speak for the person here.
    expectFailure(await join(team, await spec.server.tokenFor(person.uid, { trustedGroups: [trustedUid(other.group)] })), { code: 5 })
    await suspend(spec.server, org.group)
    expectFailure(await join(team, token), { code: 7, reason: 'ORGANIZATION_SUSPENDED' })
    await reinstate(spec.server, org.group)
    expect(await roots(token)).not.toContain(team)
    // The group above, of which they may see nothing, names the same organisation.
    expect(await spec.ok('JoinGroup', { uid: org.group }, { token })).toEqual({ organizationUid: org.group })
    expect(await roots(token)).toContain(team)
  })

  test('role bindings of a person who has not joined show the subject and no e-mail address, in answers and events', async () => {
    const person = await atHome()
    const org = await makeOrganisation(spec.server)
    const masked = { uid: person.uid, name: person.subject, description: '', subject: person.subject, email: '' }
    const full = { uid: person.uid, name: 'some body', subject: person.subject, email: `${person.subject}@person.example` }
    const tried = await spec.ok(
      'CreateRoleBinding',
      { parent: org.group, roleBinding: { identityUid: person.uid, roleUid: viewer } },
      { token: org.token, validateOnly: true },
    )
    expect(tried).toMatchObject({ identity: masked })
    const made = await bind(org, person.uid)
    expect(made).toMatchObject({ identity: masked })
    expect((await eventsOf(spec, uidOf(made))).some(({ body }) => Buffer.from(body).includes('person.example'))).toBe(false)
    const shown = async (): Promise<JsonObject[]> => {
      const { token } = org
      const listed = itemsOf(await spec.ok('ListRoleBindings', { identity: person.uid }, { token }), 'roleBindings')[0] ?? {}
      const access = itemsOf(await spec.ok('ListAccess', { resource: org.group }, { token }), 'access')
      const held = access.find(({ uid }) => uid === made['uid']) ?? {}
      const explained = await spec.ok('Explain', { resource: org.group, identity: person.uid, capability: 'repo.list' }, { token })
      return [await spec.ok('GetRoleBinding', { uid: uidOf(made) }, { token }), listed, held, explained]
    }
    expect(await shown()).toMatchObject(Array.from({ length: 4 }, () => ({ identity: masked })))
    await spec.ok('JoinGroup', { uid: org.group }, { token: await tokenOf(person) })
    expect(await shown()).toMatchObject(Array.from({ length: 4 }, () => ({ identity: full })))
    const again = await spec.ok('UpdateRoleBinding', { roleBinding: { uid: uidOf(made), roleUid: roleUid('editor') } }, { token: org.token })
    expect(again).toMatchObject({ identity: full })
  })

  test('bindings of an unregistered person still have all identity fields', async () => {
    const org = await makeOrganisation(spec.server)
    const made = await bind(org, 'e'.repeat(40))
    const { identity } = await spec.ok('GetRoleBinding', { uid: uidOf(made) }, { token: org.token })
    if (spec.transport === 'rest') expect(identity).toEqual({ uid: 'e'.repeat(40), name: '', description: '', subject: '', issuer: '', email: '' })
  })

  test('a person who was removed, or has left, can join again', async () => {
    const person = await atHome()
    const org = await makeOrganisation(spec.server)
    const [one, two] = [await bind(org, person.uid), await bind(org, person.uid, { role: roleUid('editor') })]
    const token = await tokenOf(person)
    await spec.ok('JoinGroup', { uid: org.group }, { token })
    await spec.ok('DeleteRoleBinding', { uid: uidOf(one) }, { token: org.token })
    expect(await roots(token)).toContain(org.group)
    await spec.ok('DeleteRoleBinding', { uid: uidOf(two) }, { token: org.token })
    const three = await bind(org, person.uid)
    expect(await roots(token)).not.toContain(org.group)
    // The binding is pointed at another person, who has not joined either.
    const other = await atHome()
    await spec.ok('UpdateRoleBinding', { roleBinding: { uid: uidOf(three), identityUid: other.uid } }, { token: org.token })
    expect(await roots(await tokenOf(other))).toEqual([other.home.group])
    const { store } = spec.server.running.engine
    expect(await store.get(pendingKey(trustedUid(person.uid), trustedUid(org.group)), signal())).toBeUndefined()
    await spec.ok('Auth/Delete', { id: other.uid }, { token: await tokenOf(other) })
    await spec.server.running.engine.services.cascader.finish(signal())
    expect(await store.get(pendingKey(trustedUid(other.uid), trustedUid(org.group)), signal())).toBeUndefined()
  })

  test('a binding created during the removal of the last one does not join the person', async () => {
    const person = await atHome()
    const org = await makeOrganisation(spec.server)
    const token = await tokenOf(person)
    let held = uidOf(await bind(org, person.uid))
    for (const role of ['editor', 'viewer', 'editor', 'viewer', 'editor', 'viewer']) {
      const [made] = await Promise.all([bind(org, person.uid, { role: roleUid(role) }), spec.ok('DeleteRoleBinding', { uid: held }, { token: org.token })])
      held = uidOf(made)
      expect(await roots(token)).toEqual([person.home.group])
    }
  })

  test('a binding created just before the removal of the last one leaves the person pending', async () => {
    const person = await atHome()
    const org = await makeOrganisation(spec.server)
    const held = uidOf(await bind(org, person.uid))
    const token = await tokenOf(person)
    const comes = async (): Promise<unknown> => bind(org, person.uid, { role: roleUid('editor') })
    await spec.server.running.engine.cache.barrier()
    failNext(spec.server, async (real, call) => (await comes(), real.transact(...call)), pendingPrefix)
    await spec.ok('DeleteRoleBinding', { uid: held }, { token: org.token })
    expect(await roots(token)).toEqual([person.home.group])
    expect((await join(org.group, token)).code).toBe(0)
    expect(await roots(token)).toEqual([person.home.group, org.group].sort())
  })

  test('a deleted identity takes along a binding that was created just before', async () => {
    const org = await makeOrganisation(spec.server)
    const identity = { name: freshName('late'), claimMatch: { issuer: 'https://issuer.example', subject: freshName('subject') } }
    const uid = uidOf(await spec.ok('CreateIdentity', { parent: org.group, identity }, { token: org.token }))
    failNext(spec.server, async (real, call) => (await bind(org, uid), real.transact(...call)), recordKey('Identity', trustedUid(uid)))
    await spec.ok('DeleteIdentity', { uid }, { token: org.token })
    expect(await spec.ok('ListRoleBindings', { identity: uid, uidp: { descendantsOf: org.group } }, { token: org.token })).toMatchObject({ totalCount: '0' })
  })

  test('a session with roles in the organisation shows it in unscoped lists, but neither joins nor allows joining', async () => {
    const person = await atHome()
    const [org, other] = [await makeOrganisation(spec.server), await makeOrganisation(spec.server)]
    for (const each of [org, other]) await bind(each, person.uid)
    const session = (group: string): Promise<string> => spec.server.tokenFor(person.uid, { roles: [{ group: trustedUid(group), role: trustedUid(viewer) }] })
    const mapped = await session(org.group)
    expect(await roots(mapped)).toEqual([person.home.group, org.group].sort())
    // Without the session they are as they were.
    expect(await roots(await tokenOf(person))).toEqual([person.home.group])
    const third = await makeOrganisation(spec.server)
    expectFailure(await join(third.group, await session(third.group)), { code: 5 })
    expect((await join(other.group, mapped)).code).toBe(0)
    expect(await roots(mapped)).toEqual([person.home.group, org.group, other.group].sort())
    expect(await roots(await tokenOf(person))).toEqual([person.home.group, other.group].sort())
  })

  test('a batch of 25 persons with 25 roles fits into one transaction', async () => {
    const org = await makeOrganisation(spec.server)
    const people = await Promise.all(Array.from({ length: 25 }, newcomer))
    const roles: string[] = []
    for (const _ of people) roles.push(await makeRole(spec.server, org.group, ['groups.list']))
    const requests = people.map(({ uid }, at) => ({ roleBinding: { identityUid: uid, roleUid: roles[at] ?? '' } }))
    await spec.ok('BatchCreateRoleBindings', { parent: org.group, requests }, { token: org.token, idempotencyKey: freshName('key') })
    for (const person of people.slice(0, 2)) {
      await register(person)
      expect(await roots(await tokenOf(person))).toEqual([])
    }
  })

  test('bindings stored by the previous version count as joined', async () => {
    const person = await atHome()
    const org = await makeOrganisation(spec.server)
    const { cache, store, services } = spec.server.running.engine
    const nowMs = services.clock.now()
    const changes = new ChangeSet()
    const uid = trustedUid(`${org.group}/${randomBytes(8).toString('hex')}`)
    const record = create(RoleBindingSchema, { identityUid: person.uid, roleUid: viewer }) as unknown as Resource
    changes.create(roleBindingKind, { uid, record, facts: { etag: newEtag(services.random), createMs: nowMs, updateMs: nowMs, managedBy: '' } })
    const outcome = await store.transact(changes, signal())
    if (outcome.committed) await cache.reached(outcome.revision, signal())
    expect(await roots(await tokenOf(person))).toContain(org.group)
    expect(await spec.ok('GetRoleBinding', { uid }, { token: org.token })).toMatchObject({ identity: { name: 'some body' } })
    await bind(org, person.uid, { role: roleUid('editor') })
    expect(await roots(await tokenOf(person))).toContain(org.group)
  })

  test('the name of a group is unknown in an organisation that the caller has not joined', async () => {
    const person = await atHome()
    const { home } = person
    await bind(home, person.uid, { role: roleUid('owner') })
    const name = freshName('platform')
    await subgroup(spec, home.group, home.token, name)
    const hostile = await makeOrganisation(spec.server)
    await subgroup(spec, hostile.group, hostile.token, name)
    await bind(hostile, person.uid, { role: roleUid('owner') })
    const made = await spec.ok('CreateGroup', { parent: name, group: { name: freshName('team') } }, { token: await tokenOf(person) })
    expect(uidOf(made).startsWith(`${home.group}/`)).toBe(true)
  })

  const pendingIn = async (org: Organisation): Promise<number> => {
    const { store } = spec.server.running.engine
    const { entries } = await store.range({ prefix: pendingPrefix, limit: 10_000 }, signal())
    return entries.filter(({ key }) => key.endsWith(`/${org.group}`)).length
  }
  const batchOf = (org: Organisation, persons: readonly string[]) => ({
    parent: org.group,
    roleUid: viewer,
    requests: persons.map((identityUid) => ({ roleBinding: { identityUid } })),
  })
  const strangers = (count: number): string[] => Array.from({ length: count }, () => randomBytes(20).toString('hex'))

  test.each(['the limit is reached', 'one of them is bound already', 'one role does not exist', 'it is a dry run'])(
    'a batch of bindings leaves no person pending if %s',
    async (why) => {
      const org = await makeOrganisation(spec.server)
      const batch = batchOf(org, strangers(25))
      const first = batch.requests[24]?.roleBinding.identityUid ?? ''
      if (why === 'one of them is bound already') await bind(org, first)
      if (why === 'the limit is reached')
        await spec.ok('SetGroupLimits', { uid: org.group, resourceLimits: { role_bindings: 25 } }, { token: await spec.server.operatorToken() })
      if (why === 'one role does not exist') batch.roleUid = randomBytes(20).toString('hex')
      const before = await pendingIn(org)
      const answer = await spec.call('BatchCreateRoleBindings', batch, { token: org.token, validateOnly: why === 'it is a dry run' })
      if (why === 'the limit is reached') expectFailure(answer, { code: 8, reason: 'QUOTA_EXCEEDED' })
      if (why === 'one of them is bound already') expectFailure(answer, { code: 6 })
      if (why === 'one role does not exist') expectFailure(answer, { code: 3 })
      expect(await pendingIn(org)).toBe(before)
    },
  )

  test('the leader forgets many former members in few transactions, and keeps those bound meanwhile', async () => {
    const org = await makeOrganisation(spec.server)
    const { services, store, cache } = spec.server.running.engine
    const [bound = '', ...others] = strangers(231)
    await bind(org, bound)
    // As the version before left them: nothing is bound.
    for (let at = 0; at < others.length; at += 100) {
      const writes = others
        .slice(at, at + 100)
        .map((person) => ({ kind: 'put', key: pendingKey(trustedUid(person), trustedUid(org.group)), value: new Uint8Array() }) as const)
      const outcome = await store.transact({ guards: [], writes }, signal())
      if (outcome.committed) await cache.reached(outcome.revision, signal())
    }
    expect(await pendingIn(org)).toBe(231)
    let transactions = 0
    const transact: Store['transact'] = (...call) => {
      transactions += 1
      return store.transact(...call)
    }
    const counted = new Proxy(store, { get: (target, property) => (property === 'transact' ? transact : methodIn(target, property)) })
    expect(await forgetPending({ ...services, store: counted }, signal())).toBeGreaterThanOrEqual(230)
    expect(await pendingIn(org)).toBe(1)
    expect(transactions).toBeLessThan(20)
  })

  test('the leader forgets a person without any bindings', async () => {
    const person = await atHome()
    const org = await makeOrganisation(spec.server)
    const team = await subgroup(spec, org.group, org.token)
    await bind(org, person.uid, { at: team })
    await spec.ok('DeleteGroup', { uid: team }, { token: org.token })
    const { services, store } = spec.server.running.engine
    await services.cascader.finish(signal())
    const kept = () => store.get(pendingKey(trustedUid(person.uid), trustedUid(org.group)), signal())
    expect(await kept()).toBeDefined()
    expect(await forgetPending(services, signal())).toBeGreaterThan(0)
    expect(await kept()).toBeUndefined()
  })
})
