import { describe, expect, test } from 'vitest'
import { personUid } from '../../../src/auth/oidc/issuer-name.ts'
import { setOf } from '../../../src/base/capability.ts'
import { trustedUid } from '../../../src/base/uid.ts'
import { suspend } from '../../support/suspend.ts'
import { freshName, ok } from '../../support/test-server.ts'
import { registrySuite } from './registry-suite.ts'
import { bearer } from './registry-world.ts'

registrySuite('rights at the registry host', (suite) => {
  const pull = (path: string): string => `repository:${path}:pull`
  const accessOf = (token: string): unknown => suite.world.claimsOf(token).access

  describe('rights at the registry host', () => {
    test("rights at the registry host of an identity of a subgroup never include the root organisation's registry, whatever its bindings", async () => {
      const subgroup = await suite.world.group(suite.mine.group, freshName('team'))
      const member = await suite.world.member(subgroup, { role: 'owner' })
      await suite.world.bindAnyway(suite.mine.group, member.uid, 'owner')
      await suite.world.repo(subgroup, 'tool')
      const name = String(ok(await suite.world.server.rest.call('GetGroup', { uid: subgroup }, { token: await suite.world.server.operatorToken() }))['name'])
      expect(await suite.world.list(`${suite.mine.name}/${name}/tool`, member.authorization)).toMatchObject({ status: 200 })
      expect(await suite.world.list(suite.mine.path, member.authorization)).toMatchObject({ status: 403 })
      const answer = await suite.world.requestToken([pull(suite.mine.path)], member.authorization)
      expect(answer.status).toBe(200)
      expect(accessOf(answer.token)).toEqual([])
      expect(await suite.world.list(suite.mine.path, bearer(answer.token))).toMatchObject({ status: 403, codes: ['DENIED'] })
    })

    test('rights at the registry host end at once with a removed binding, for issued tokens and at /token', async () => {
      const member = await suite.world.member(suite.mine.group)
      const binding = await suite.world.bind(suite.mine.group, member.uid, 'registry.pull')
      const token = bearer(await suite.world.tokenFor(pull(suite.mine.path), member.authorization))
      expect(await suite.world.list(suite.mine.path, token)).toMatchObject({ status: 200 })
      await suite.world.operate('DeleteRoleBinding', { uid: binding })
      expect(await suite.world.list(suite.mine.path, token)).toMatchObject({ status: 403, codes: ['DENIED'] })
      expect(await suite.world.list(suite.mine.path, member.authorization)).toMatchObject({ status: 403 })
      expect(accessOf(await suite.world.tokenFor(pull(suite.mine.path), member.authorization))).toEqual([])
      await suite.world.bind(suite.mine.group, member.uid, 'registry.pull')
      expect(await suite.world.list(suite.mine.path, token)).toMatchObject({ status: 200 })
    })

    test('rights at the registry host end at once with a deleted identity (401), for issued tokens and at /token', async () => {
      const member = await suite.world.member(suite.mine.group, { role: 'registry.pull' })
      const token = bearer(await suite.world.tokenFor(pull(suite.mine.path), member.authorization))
      expect(await suite.world.list(suite.mine.path, token)).toMatchObject({ status: 200 })
      await suite.world.operate('DeleteIdentity', { uid: member.uid })
      expect(await suite.world.list(suite.mine.path, token)).toMatchObject({ status: 401, codes: ['UNAUTHORIZED'] })
      expect(await suite.world.ask({ path: '/v2/', authorization: token })).toMatchObject({ status: 401 })
      expect(await suite.world.requestToken([pull(suite.mine.path)], member.authorization)).toMatchObject({ status: 401 })
    })

    test('rights at the registry host follow a renamed group to its new paths, and the next owner of the name accepts none of its tokens', async () => {
      const [oldName, newName] = [freshName('old'), freshName('new')]
      const tenant = await suite.world.tenant(oldName)
      const token = bearer(await suite.world.tokenFor(`repository:${oldName}/app:pull,push`, tenant.authorization))
      await suite.world.operate('UpdateGroup', { group: { uid: tenant.group, name: newName } })
      expect(await suite.world.list(`${oldName}/app`, token)).toMatchObject({ status: 403, codes: ['DENIED'] })
      expect(await suite.world.list(`${newName}/app`, token)).toMatchObject({ status: 403, codes: ['DENIED'] })
      expect(await suite.world.list(`${newName}/app`, tenant.authorization)).toMatchObject({ status: 200 })
      const heir = await suite.world.tenant(oldName)
      expect(await suite.world.list(`${oldName}/app`, token)).toMatchObject({ status: 403, codes: ['DENIED'] })
      expect(await suite.world.upload(`${oldName}/app`, token)).toMatchObject({ status: 403 })
      expect(accessOf(await suite.world.tokenFor(pull(`${oldName}/app`), tenant.authorization))).toEqual([])
      expect(await suite.world.list(`${oldName}/app`, heir.authorization)).toMatchObject({ status: 200 })
    })

    test('rights at the registry host of an old token do not reveal the content or existence of the next owner of a name', async () => {
      const oldName = freshName('old')
      const tenant = await suite.world.tenant(oldName)
      const tokenFor = async (path: string): Promise<string> => bearer(await suite.world.tokenFor(`repository:${path}:pull,push`, tenant.authorization))
      const [there, missing, deep] = [`${oldName}/app`, `${oldName}/other`, `${oldName}/group/other`]
      const asked = await Promise.all([there, missing, deep].map(async (path) => ({ path, token: await tokenFor(path) })))
      const answers = (): Promise<string[]> =>
        Promise.all(
          asked.map(async ({ path, token }) => {
            const { status, body } = await suite.world.list(path, token)
            return `${status} ${body}`
          }),
        )
      await suite.world.operate('UpdateGroup', { group: { uid: tenant.group, name: freshName('new') } })
      const before = await answers()
      await suite.world.tenant(oldName)
      const after = await answers()
      expect(new Set([...before, ...after]).size).toBe(1)
      expect(before[0]).toContain('DENIED')
    })

    test('rights at the registry host of a token for a deleted repo do not extend to a new repo of the same name', async () => {
      const name = freshName('reborn')
      const first = await suite.world.repo(suite.mine.group, name)
      const token = bearer(await suite.world.tokenFor(`repository:${suite.mine.name}/${name}:pull,push`, suite.mine.authorization))
      expect(await suite.world.list(`${suite.mine.name}/${name}`, token)).toMatchObject({ status: 200 })
      await suite.world.operate('DeleteRepo', { uid: first })
      expect(await suite.world.list(`${suite.mine.name}/${name}`, token)).toMatchObject({ status: 403, codes: ['DENIED'] })
      expect(await suite.world.list(`${suite.mine.name}/${name}`, suite.mine.authorization)).toMatchObject({ status: 404, codes: ['NAME_UNKNOWN'] })
      await suite.world.repo(suite.mine.group, name)
      expect(await suite.world.list(`${suite.mine.name}/${name}`, token)).toMatchObject({ status: 403, codes: ['DENIED'] })
    })

    test('rights at the registry host of a token for a repo that does not exist yet extend to the repo once it is created', async () => {
      const path = `${suite.mine.name}/${freshName('fresh')}`
      const token = bearer(await suite.world.tokenFor(`repository:${path}:pull,push`, suite.mine.authorization))
      expect(await suite.world.list(path, token)).toMatchObject({ status: 404 })
      await suite.world.repo(suite.mine.group, path.split('/')[1] ?? '')
      expect(await suite.world.list(path, token)).toMatchObject({ status: 200 })
    })

    test('rights at the registry host keep the restrictions of the exchange', async () => {
      const second = await suite.world.repo(suite.mine.group, freshName('scoped'))
      const capabilities = setOf(['repo.list', 'manifest.list', 'repo.blobs.get'])
      const pullOnly = bearer(await suite.world.accessToken(suite.mine.owner, { restrictions: { capabilities } }))
      const token = await suite.world.tokenFor(`repository:${suite.mine.path}:pull,push,delete`, pullOnly)
      expect(accessOf(token)).toMatchObject([{ actions: ['pull'] }])
      expect(await suite.world.list(suite.mine.path, bearer(token))).toMatchObject({ status: 200 })
      const elsewhere = bearer(await suite.world.accessToken(suite.mine.owner, { restrictions: { scopes: [trustedUid(second)] } }))
      expect(accessOf(await suite.world.tokenFor(pull(suite.mine.path), elsewhere))).toEqual([])
      expect(await suite.world.list(suite.mine.path, elsewhere)).toMatchObject({ status: 403 })
    })

    test('rights at the registry host of an operator include everything, also with a registry token, as long as the configuration names the operator', async () => {
      const { issuer } = suite.world.server.devIssuer
      const operator = bearer(await suite.world.accessToken(personUid(issuer, 'operator'), { actor: { issuer, subject: 'operator' } }))
      const token = await suite.world.tokenFor(`repository:${suite.theirs.path}:pull,push,delete`, operator)
      expect(accessOf(token)).toMatchObject([{ actions: ['pull', 'push', 'delete'], uid: suite.theirs.repo }])
      expect(await suite.world.upload(suite.theirs.path, bearer(token))).toMatchObject({ status: 202 })
      const claimant = await suite.world.member(suite.mine.group)
      const pretender = bearer(await suite.world.accessToken(claimant.uid, { actor: { issuer, subject: 'operator' } }))
      expect(accessOf(await suite.world.tokenFor(pull(suite.theirs.path), pretender))).toEqual([])
    })

    test('rights at the registry host in a suspended organisation are refused', async () => {
      const tenant = await suite.world.tenant()
      const token = bearer(await suite.world.tokenFor(pull(tenant.path), tenant.authorization))
      await suspend(suite.world.server, tenant.group)
      expect(await suite.world.list(tenant.path, token)).toMatchObject({ status: 403 })
      expect(accessOf(await suite.world.tokenFor(pull(tenant.path), tenant.authorization))).toEqual([])
    })

    test('rights at the registry host in a suspended organisation are refused with the reason to members only; to others it looks missing', async () => {
      const tenant = await suite.world.tenant()
      await suspend(suite.world.server, tenant.group)
      expect((await suite.world.list(tenant.path, tenant.authorization)).body).toContain('suspended')
      const paths = [tenant.path, `${tenant.name}/none`, `${tenant.name}/none/at/all`, `${freshName('never')}/app`]
      const answers = await Promise.all(paths.map((path) => suite.world.list(path, suite.mine.authorization)))
      expect(new Set(answers.map(({ status, body }) => `${status} ${body}`)).size).toBe(1)
      const tokens = await Promise.all(paths.map((path) => suite.world.requestToken([pull(path)], suite.mine.authorization)))
      expect(tokens.map(({ status, token }) => [status, accessOf(token)])).toEqual(paths.map(() => [200, []]))
    })
  })

  describe('the public organisation', () => {
    test('the public organisation allows pulls with an anonymous token', async () => {
      const token = await suite.world.tokenFor(pull(suite.free.path))
      expect(suite.world.claimsOf(token)).toMatchObject({ sub: 'anonymous', access: [{ name: suite.free.path, actions: ['pull'], uid: suite.free.repo }] })
      expect(await suite.world.list(suite.free.path, bearer(token))).toMatchObject({ status: 200 })
      expect(await suite.world.list(suite.free.path)).toMatchObject({ status: 200 })
      const stranger = await suite.world.member(suite.theirs.group)
      expect(await suite.world.list(suite.free.path, stranger.authorization)).toMatchObject({ status: 200 })
      expect(accessOf(await suite.world.tokenFor(pull(suite.free.path), stranger.authorization))).toMatchObject([{ actions: ['pull'] }])
    })

    test('the public organisation refuses pushes of an anonymous caller', async () => {
      const token = await suite.world.requestToken([`repository:${suite.free.path}:pull,push,delete`])
      expect(accessOf(token.token)).toMatchObject([{ actions: ['pull'] }])
      expect(await suite.world.upload(suite.free.path, bearer(token.token))).toMatchObject({ status: 401 })
      expect(await suite.world.upload(suite.free.path)).toMatchObject({ status: 401 })
      expect(await suite.world.requestToken([`repository:${suite.free.path}:push`])).toMatchObject({ status: 401 })
      const stranger = await suite.world.member(suite.theirs.group)
      expect(await suite.world.upload(suite.free.path, stranger.authorization)).toMatchObject({ status: 403 })
    })

    test('the public organisation is the only organisation that accepts an anonymous token', async () => {
      expect(await suite.world.requestToken([pull(suite.mine.path)])).toMatchObject({ status: 401 })
      expect(await suite.world.requestToken([pull(suite.mine.path), pull(suite.free.path)])).toMatchObject({ status: 401 })
      expect(await suite.world.requestToken([pull(`${suite.free.name}/none`)])).toMatchObject({ status: 401 })
      const token = bearer(await suite.world.tokenFor(pull(suite.free.path)))
      expect(await suite.world.list(suite.mine.path, token)).toMatchObject({ status: 403 })
    })
  })

  describe('repository paths', () => {
    test('name an organisation by its name or its uid', async () => {
      expect(await suite.world.list(`${suite.mine.group}/app`, suite.mine.authorization)).toMatchObject({ status: 200 })
      expect(accessOf(await suite.world.tokenFor(pull(`${suite.mine.group}/app`), suite.mine.authorization))).toMatchObject([
        { name: `${suite.mine.group}/app`, uid: suite.mine.repo },
      ])
    })

    test('a group whose name is the uid of another organisation gives no access to the repositories of that organisation', async () => {
      const thief = await suite.world.tenant(suite.theirs.group)
      expect(accessOf(await suite.world.tokenFor(pull(`${suite.theirs.group}/app`), thief.authorization))).toEqual([])
      expect(await suite.world.list(`${suite.theirs.group}/app`, thief.authorization)).toMatchObject({ status: 403 })
      expect(await suite.world.list(`${suite.theirs.group}/app`, suite.theirs.authorization)).toMatchObject({ status: 200 })
    })

    test('repository paths that are missing are reported as such to callers with access there, and look foreign to others', async () => {
      for (const path of [`${suite.mine.name}/none`, `${suite.mine.name}/none/at/all`]) {
        expect(await suite.world.list(path, suite.mine.authorization)).toMatchObject({ status: 404, codes: ['NAME_UNKNOWN'] })
      }
      const foreign = await Promise.all(
        [suite.theirs.path, `${suite.theirs.name}/none`, `${suite.theirs.name}/none/at/all`, 'unknown/none'].map((path) =>
          suite.world.list(path, suite.mine.authorization),
        ),
      )
      expect(new Set(foreign.map(({ status, body }) => `${status} ${body}`)).size).toBe(1)
      expect(foreign[0]).toMatchObject({ status: 403, codes: ['DENIED'] })
    })

    test('repository paths of another tenant give nothing, in every spelling', async () => {
      const [tenant, repo] = suite.theirs.path.split('/') as [string, string]
      const spellings = [
        `${suite.mine.name}/../${suite.theirs.path}`,
        `${suite.mine.name}/%2e%2e/${suite.theirs.path}`,
        `${suite.mine.name}%2f..%2f${suite.theirs.path}`,
        `./${suite.theirs.path}`,
        `/${suite.theirs.path}`,
        `${tenant}//${repo}`,
        `${tenant}/./${repo}`,
        `${tenant}%2F${repo}`,
        `${tenant.toUpperCase()}/${repo}`,
        `${suite.theirs.path}%00`,
        `${suite.theirs.path};x`,
        `${suite.theirs.path}\\..`,
        `%74${tenant.slice(1)}/${repo}`,
      ]
      const token = bearer(await suite.world.tokenFor(`repository:${suite.mine.path}:pull,push`, suite.mine.authorization))
      for (const spelling of spellings) {
        for (const authorization of [suite.mine.authorization, token]) {
          const { status } = await suite.world.list(spelling, authorization)
          expect([400, 403, 404], `${spelling}: ${status}`).toContain(status)
        }
        const asked = await suite.world.requestToken([pull(spelling)], suite.mine.authorization)
        if (asked.status !== 400) expect(accessOf(asked.token)).toEqual([])
      }
    })
  })
})
