import type { JsonObject } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import type { Options, Reply } from '../../../support/api-clients.ts'
import { failNext } from '../../../support/fail-next.ts'
import { freshName, makeMember, makeOrganisation, ok, roleUid } from '../../../support/test-server.ts'
import { auditLines, makeRole } from '../../walk/world.ts'
import { expectFailure, itemsOf, specSuite, uidOf } from '../spec-suite.ts'

specSuite('paths in place of uids', (spec) => {
  /** An organisation with the group `web`, and in that the repo `ci`, the role `deployer` and the provider `login`. */
  async function makeTree() {
    const name = freshName('demo')
    const organisation = await makeOrganisation(spec.server, name)
    const { group, token } = organisation
    const call = (rpc: string, request: JsonObject, options: Options = {}): Promise<Reply> => spec.call(rpc, request, { token, ...options })
    const make = async (rpc: string, request: JsonObject): Promise<string> => uidOf(ok(await call(rpc, request)))
    const web = await make('CreateGroup', { parent: group, group: { name: 'web' } })
    return { ...organisation, web, call, make, path: (rest = '') => `path:${name}${rest}` }
  }

  /** A provider that is valid. */
  const provider = { name: 'login', defaultRole: 'path:viewer', oidc: { issuer: 'https://login.example', clientId: 'id', clientSecret: 'secret' } }

  // docs/spec/resources.md#paths
  test('a path finds groups, repos, roles and providers, and the answer has the uid', async () => {
    const { group, web, call, make, path } = await makeTree()
    const repo = await make('CreateRepo', { parent: path('/web'), repo: { name: 'ci' } })
    const role = await make('CreateRole', { parent: path('/web'), role: { name: 'deployer', capabilities: ['CAP_IAM_GROUPS_LIST'] } })
    const login = await make('CreateIdentityProvider', { parent: path('/web'), identityProvider: provider })
    for (const uid of [repo, role, login]) expect(uid).toMatch(new RegExp(`^${web}/`))
    const found = async (rpc: string, uid: string) => uidOf(ok(await call(rpc, { uid })))
    expect(await found('GetGroup', path())).toBe(group)
    expect(await found('GetGroup', path('/web'))).toBe(web)
    expect(await found('GetRepo', path('/web/ci'))).toBe(repo)
    expect(await found('GetRole', path('/web/deployer'))).toBe(role)
    expect(await found('GetRole', 'path:viewer')).toBe(roleUid('viewer'))
    expect(await found('GetIdentityProvider', path('/web/login'))).toBe(login)
    expect(ok(await call('GetIdentityProvider', { uid: login }))).toMatchObject({ defaultRole: roleUid('viewer') })
  })

  // docs/spec/resources.md#paths
  test('a path can be a reference in a body, and a filter of a list', async () => {
    const { group, web, call, make, path } = await makeTree()
    const { uid: identityUid } = await makeMember(spec.server, group)
    const role = await make('CreateRole', { parent: group, role: { name: 'deployer', capabilities: ['CAP_IAM_GROUPS_LIST'] } })
    const bind = { parent: path('/web'), roleBinding: { identityUid, roleUid: path('/deployer') } }
    const binding = ok(await call('CreateRoleBinding', bind))
    expect(binding).toMatchObject({ group: { uid: web }, role: { uid: role } })
    const repo = await make('CreateRepo', { parent: web, repo: { name: 'ci' } })
    const listed = async (rpc: string, plural: string, request: JsonObject) => itemsOf(ok(await call(rpc, request)), plural).map(uidOf)
    expect(await listed('ListRoleBindings', 'roleBindings', { role: path('/deployer'), group: path('/web') })).toEqual([uidOf(binding)])
    expect(await listed('ListRepos', 'repos', { uidp: { childrenOf: path('/web') } })).toEqual([repo])
    expect(await listed('ListRepos', 'repos', { uidp: { ids: [path('/web/ci'), path('/web/none')] } })).toEqual([repo])
    expect(await listed('ListGroups', 'groups', { uidp: { ancestorsOf: path('/web/ci') } })).toEqual([group, web])
    expect(await listed('ListRepos', 'repos', { uidp: { descendantsOf: path('/none') } })).toEqual([])
  })

  // docs/spec/resources.md#paths
  test('a record that the caller cannot get is like one that does not exist, and the audit trail has its uid', async () => {
    const { web, path } = await makeTree()
    const other = await makeTree()
    const lister = (await makeMember(spec.server, other.group, { role: await makeRole(spec.server, other.group, ['roles.list']) })).token
    const uids = new Map([
      [path('/web'), web],
      [other.path('/web'), other.web],
    ])
    const answers = new Map<string, Set<string>>()
    const asks: [who: string, uid: string, token: string][] = [
      ['a stranger', path('/web'), other.token],
      ['a stranger', path('/bew'), other.token],
      ['a member without the right', other.path('/web'), lister],
      ['a member without the right', other.path('/bew'), lister],
    ]
    const requests: Readonly<Record<string, (uid: string) => JsonObject>> = {
      GetGroup: (uid) => ({ uid }),
      DeleteGroup: (uid) => ({ uid }),
      CreateGroup: (parent) => ({ parent, group: { name: 'made' } }),
    }
    for (const [rpc, request] of Object.entries(requests)) {
      for (const [who, uid, token] of asks) {
        const requestId = freshName('ask')
        const reply = await spec.call(rpc, request(uid), { token, requestId })
        expectFailure(reply, { code: 5 })
        const text = JSON.stringify([reply.code, reply.message, reply.details['ResourceInfo'], reply.details['ErrorInfo']?.['reason']])
        const denied = { fields: { outcome: 'denied', subject: uids.get(uid) ?? uid } }
        await expect.poll(() => auditLines(spec.server, requestId)).toMatchObject([denied])
        answers.set(`${rpc} by ${who}`, (answers.get(`${rpc} by ${who}`) ?? new Set()).add(text.replaceAll(uid, '<path>')))
      }
    }
    expect([...answers.values()].map(({ size }) => size)).toEqual([1, 1, 1, 1, 1, 1])
  })

  // docs/spec/resources.md#paths
  test('a text that is no path is like a path that leads nowhere', async () => {
    const { call, path } = await makeTree()
    const texts = [path('//web'), `path:${'a/'.repeat(14)}a`, `path:${'a/'.repeat(2000)}a`, path('/web/web'), path('/Web'), path('/web:'), 'PATH:viewer']
    // The client of the tests leaves out a slash at the end of a URL.
    if (spec.transport === 'grpc') texts.push('path:', 'path:/', path('/'), path('/web/'))
    for (const uid of texts) expectFailure(await call('GetGroup', { uid }), { code: 5 })
    expectFailure(await call('GetRepo', { uid: path('/web') }), { code: 5 })
    const reference = { parent: path(), roleBinding: { identityUid: 'a'.repeat(40), roleUid: path('/none') } }
    expectFailure(await call('CreateRoleBinding', reference), { code: 3, fields: ['role_uid'] })
  })

  // docs/spec/resources.md#paths
  test('a caller with a role below needs none at the groups above', async () => {
    const { web, call, make, path } = await makeTree()
    const repo = await make('CreateRepo', { parent: web, repo: { name: 'ci' } })
    const { token } = await makeMember(spec.server, web, { role: 'viewer' })
    expect(uidOf(ok(await call('GetRepo', { uid: path('/web/ci') }, { token })))).toBe(repo)
    expectFailure(await call('GetGroup', { uid: path() }, { token }), { code: 5 })
  })

  // docs/spec/resources.md#paths
  test('kinds whose names are not unique have no paths', async () => {
    const { call, path, group } = await makeTree()
    const refused = await call('GetIdentity', { uid: path('/owner') })
    expectFailure(refused, { code: 3, fields: ['uid'] })
    expect(refused.message).toContain('only groups, repos, roles and identity providers have paths')
    const roleBinding = { identityUid: path('/owner'), roleUid: roleUid('viewer') }
    expectFailure(await call('CreateRoleBinding', { parent: group, roleBinding }), { code: 3, fields: ['identity_uid'] })
  })

  // docs/spec/resources.md#paths
  test('a path to records of several kinds is refused where any kind may be meant', async () => {
    const { web, call, make, path } = await makeTree()
    const repo = await make('CreateRepo', { parent: web, repo: { name: 'ci' } })
    expect(ok(await call('ListAccess', { resource: path('/web/ci') }))).toBeDefined()
    const group = await make('CreateGroup', { parent: web, group: { name: 'ci' } })
    expectFailure(await call('ListAccess', { resource: path('/web/ci') }), { code: 3, fields: ['resource'] })
    expect(uidOf(ok(await call('GetGroup', { uid: path('/web/ci') })))).toBe(group)
    expect(uidOf(ok(await call('GetRepo', { uid: path('/web/ci') })))).toBe(repo)
  })

  // docs/spec/resources.md#paths
  test('a path stands for a built-in role only where nothing but a role is taken', async () => {
    const operator = await spec.server.operatorToken()
    const group = uidOf(ok(await spec.call('CreateGroup', { group: { name: 'viewer' } }, { token: operator })))
    const access = await spec.call('ListAccess', { resource: 'path:viewer' }, { token: operator })
    expect(itemsOf(ok(access), 'access')).not.toEqual([])
    expect(uidOf(ok(await spec.call('GetGroup', { uid: 'path:viewer' }, { token: operator })))).toBe(group)
    expect(uidOf(ok(await spec.call('GetRole', { uid: 'path:viewer' }, { token: operator })))).toBe(roleUid('viewer'))
    ok(await spec.call('DeleteGroup', { uid: group }, { token: operator }))
  })

  // docs/spec/resources.md#paths
  test('a path finds the audit events of a record, and an actor has none', async () => {
    const { web, call, path } = await makeTree()
    const events = async (request: JsonObject) => itemsOf(ok(await call('ListAuditEvents', request)), 'events').map(({ resource }) => resource)
    await expect.poll(() => events({ resource: path('/web') })).toEqual([web])
    expectFailure(await call('ListAuditEvents', { actor: path('/web') }), { code: 3, fields: ['actor'], domain: 'audit.taproot.dev' })
  })

  // docs/spec/resources.md#paths
  test('the paths of a change lead through a limited number of records', async () => {
    const { group, web, call, make, path } = await makeTree()
    const exceptions: JsonObject[] = []
    for (let at = 0; at < 60; at++) {
      await make('CreateRepo', { parent: web, repo: { name: `app-${at}` } })
      exceptions.push({ repoUid: path(`/web/app-${at}`), endTime: '2027-06-01T00:00:00Z', reason: 'later' })
    }
    const policy = (some: JsonObject[]) =>
      call('CreatePullPolicy', { parent: group, pullPolicy: { name: freshName('policy'), rules: [{ denyDeprecated: true, mode: 'AUDIT' }], exceptions: some } })
    // Both groups above are on each path.
    expect(ok(await policy(exceptions.slice(0, 58)))).toBeDefined()
    const refused = await policy(exceptions)
    expectFailure(refused, { code: 3 })
    expect(refused.message).toContain('at most 60 records')
  })

  // docs/spec/resources.md#paths
  test('a request may have 100 paths', async () => {
    const { call, path } = await makeTree()
    const list = (count: number) => call('ListGroups', { uidp: { ids: Array.from({ length: count }, () => path('/web')) } })
    expect(itemsOf(ok(await list(100)), 'groups')).toHaveLength(1)
    expectFailure(await list(101), { code: 3, fields: ['uidp.ids[100]'] })
  })

  // docs/spec/resources.md#paths
  test('a mutation is refused if its path leads to another record meanwhile, and repeated if only the record changed', async () => {
    const { web, call, make, path } = await makeTree()
    const meanwhile = (change: () => Promise<unknown>): void =>
      failNext(spec.server, async (real, transaction) => {
        await change()
        return real.transact(...transaction)
      })
    meanwhile(() => make('UpdateGroup', { group: { uid: web, description: 'changed' } }))
    const made = ok(await call('CreateRepo', { parent: path('/web'), repo: { name: 'ci' } }))
    expect(uidOf(made)).toMatch(new RegExp(`^${web}/`))
    meanwhile(async () => {
      await make('UpdateGroup', { group: { uid: web, name: 'old' } })
      await make('CreateGroup', { parent: path(), group: { name: 'web' } })
    })
    expectFailure(await call('DeleteRepo', { uid: path('/web/ci') }), { code: 10, reason: 'PATH_CHANGED' })
    expect(uidOf(ok(await call('GetRepo', { uid: path('/old/ci') })))).toBe(uidOf(made))
    // The record is deleted and made again: the path tells more than the missing uid.
    const next = uidOf(ok(await call('GetGroup', { uid: path('/web') })))
    meanwhile(async () => {
      await make('DeleteGroup', { uid: next }).catch(() => undefined)
      await make('CreateGroup', { parent: path(), group: { name: 'web' } })
    })
    expectFailure(await call('CreateRepo', { parent: path('/web'), repo: { name: 'ci' } }), { code: 10, reason: 'PATH_CHANGED' })
  })

  // docs/spec/resources.md#paths
  test('an error names the position of a path in its list', async () => {
    const { group, call, path } = await makeTree()
    const bindings = ['a'.repeat(40), path('/web')].map((identityUid) => ({ roleBinding: { identityUid, roleUid: roleUid('viewer') } }))
    expectFailure(await call('BatchCreateRoleBindings', { parent: group, requests: bindings }), {
      code: 3,
      fields: ['requests[1].role_binding.identity_uid'],
    })
  })

  // docs/spec/conventions.md#idempotency-keys
  test('a repeated create answers the first record, and never makes a second where the path leads now', async () => {
    const { group, web, call, make, path } = await makeTree()
    const create = () => call('CreateRepo', { parent: path('/web'), repo: { name: 'ci' } }, { idempotencyKey: 'once' })
    const first = uidOf(ok(await create()))
    expect(uidOf(ok(await create()))).toBe(first)
    await make('UpdateGroup', { group: { uid: web, name: 'old' } })
    expectFailure(await create(), { code: 5 })
    await make('CreateGroup', { parent: group, group: { name: 'web' } })
    expectFailure(await create(), { code: 10, reason: 'PATH_CHANGED' })
    expectFailure(await call('GetRepo', { uid: path('/web/ci') }), { code: 5 })
  })

  // docs/spec/iam.md#role-binding-batches
  test('a full batch can have paths', async () => {
    const { group, call, make, path } = await makeTree()
    const roles = Array.from({ length: 25 }, (_, at) => `role-${at}`)
    for (const name of roles) await make('CreateRole', { parent: group, role: { name, capabilities: ['CAP_IAM_GROUPS_LIST'] } })
    const names = ['web', ...Array.from({ length: 10 }, (_, at) => `level-${at}`)]
    for (const [at, name] of names.entries()) if (at > 0) await make('CreateGroup', { parent: path(['', ...names.slice(0, at)].join('/')), group: { name } })
    const requests = roles.map((name, at) => ({ roleBinding: { identityUid: at.toString(16).padStart(40, 'b'), roleUid: path(`/${name}`) } }))
    const batch = { parent: path(['', ...names].join('/')), requests }
    const reply = await call('BatchCreateRoleBindings', batch, { idempotencyKey: 'all' })
    expect(itemsOf(ok(reply), 'roleBindings')).toHaveLength(25)
  })

  // docs/spec/version-1.md
  test('version 1 has no paths', async () => {
    const { call, path } = await makeTree()
    const listed = ok(await call('Groups/List', { id: path('/web') }))
    expect(listed['items'] ?? []).toEqual([])
    ok(await call('Groups/Delete', { id: path('/web') }))
    ok(await call('GetGroup', { uid: path('/web') }))
    expectFailure(await call('Groups/Update', { id: path('/web'), name: 'changed' }), { code: 5 })
  })

  spec.only('rest', () => {
    // docs/spec/resources.md#paths
    test('slashes and colons of a path may be escaped, and a repo may be named like a part of a route', async () => {
      const { web, token, make, path } = await makeTree()
      const get = async (text: string): Promise<JsonObject> => {
        const url = `http://127.0.0.1:${spec.server.config.api.port}/registry/v2/repos/${text}`
        const answer = await fetch(url, { headers: { authorization: `Bearer ${token}` } })
        return (await answer.json()) as JsonObject
      }
      const repo = await make('CreateRepo', { parent: web, repo: { name: 'ci' } })
      const text = path('/web/ci')
      for (const form of [text, encodeURIComponent(text), text.replaceAll('/', '%2f')]) expect(await get(form)).toMatchObject({ uid: repo })
      for (const name of ['readme', 'a b']) {
        const uid = await make('CreateRepo', { parent: web, repo: { name } })
        expect(await get(encodeURIComponent(path(`/web/${name}`)))).toMatchObject({ uid })
      }
    })
  })
})
