import { afterAll, expect, test } from 'vitest'
import { personUid } from '../../../src/auth/oidc/issuer-name.ts'
import { trustedUid } from '../../../src/base/uid.ts'
import { issueRefreshToken } from '../../../src/iam/signin/refresh-tokens.ts'
import { freshName, makePerson, roleUid } from '../../support/test-server.ts'
import { PersonWithBrowser, startLoginProvider } from '../../support/parts/sign-in/login-provider.ts'
import { signWith, startOidcProvider } from '../signin/issuers.ts'
import { expectFailure, itemsOf, specSuite, uidOf, type Spec } from '../../conformance/spec/spec-suite.ts'
import { makeDirectory, patchOf, type Directory } from './directory.ts'

/** A provider for browser sign-ins, and an issuer whose tokens the tests sign. */
const [login, minting] = [await startLoginProvider(), await startOidcProvider(['a client'])]
afterAll(async () => {
  await login.stop()
  await minting.stop()
})

/** The address at which a command would wait for its browser; no server listens there. */
const waiting = 'http://localhost:39998/callback'
const redirectUris: string[] = []

/** Creates a directory whose people sign in at a real OpenID provider. */
async function staffed(spec: Spec, oidc: Readonly<Record<string, string>> = {}): Promise<Directory> {
  const directory = await makeDirectory(spec.server, { issuer: login.issuer, clientId: 'taproot', clientSecret: 'a secret', ...oidc })
  redirectUris.push(`${spec.server.config.baseUrl}/oauth/callback/${directory.provider}`)
  login.serve([{ id: 'taproot', secret: 'a secret', redirectUris }])
  return directory
}

/** Signs a person of the directory in with a browser. Returns the query that the command would receive. */
async function signIn(spec: Spec, { provider }: Directory, name: string, query: Readonly<Record<string, string>> = {}): Promise<URLSearchParams> {
  const url = new URL('/oauth', spec.server.config.baseUrl)
  const all = { exit: 'redirect', redirect: waiting, idp_id: provider, create_refresh_token: 'true', ...query }
  for (const [key, value] of Object.entries(all)) url.searchParams.set(key, value)
  return (await new PersonWithBrowser(name).open(url.href, waiting)).url.searchParams
}

function expectRefused(answer: URLSearchParams): void {
  expect([answer.get('status_code'), answer.get('token'), answer.get('refresh_token')]).toEqual(['403', null, null])
  expect(answer.get('error')).toMatch(/directory/)
}

specSuite(
  'SCIM and signing in',
  (spec) => {
    const rolesOf = async (directory: Directory, identity: string): Promise<unknown[]> =>
      itemsOf(await spec.ok('ListRoleBindings', { identity, group: directory.group }, { token: directory.token }), 'roleBindings')
    const reads = async (directory: Directory, token: string | null): Promise<number> =>
      (await spec.call('GetGroup', { uid: directory.group }, { token: token ?? '' })).code
    const refreshed = async (token: string): Promise<string> =>
      String(((await spec.ok('ExchangeRefreshToken', {}, { token }))['refreshToken'] as { token: string }).token)
    /** Returns a token of a configured issuer for the client of the directories. */
    const minted = (subject: string, more: Readonly<Record<string, unknown>> = {}): Promise<string> =>
      signWith(minting.key(), minting.claims({ sub: subject, aud: 'taproot', ...more }))

    // docs/spec/scim.md#admission
    test('a SCIM record creates no account; the first sign-in creates it, with the default role', async () => {
      const directory = await staffed(spec)
      const name = freshName('person')
      await directory.add({ userName: `${name}@example.org`, externalId: name })
      const uid = personUid(login.issuer, name)
      const { tables } = spec.server.running.engine.cache
      expect(tables.get('Identity', uid)).toBeUndefined()
      const token = (await signIn(spec, directory, name)).get('token')
      expect(await reads(directory, token)).toBe(0)
      expect(await rolesOf(directory, uid)).toHaveLength(1)
    })

    // docs/spec/scim.md#admission
    test('with SCIM on, a person missing in the directory is refused, and nothing about them is stored', async () => {
      const directory = await staffed(spec)
      const name = freshName('stranger')
      expectRefused(await signIn(spec, directory, name))
      expect(spec.server.running.engine.cache.tables.get('Identity', personUid(login.issuer, name))).toBeUndefined()
      // A matching userName, or an externalId in another case, does not identify the person.
      await directory.add({ userName: name, externalId: name.toUpperCase() })
      expectRefused(await signIn(spec, directory, name))
    })

    // docs/spec/scim.md#deactivation
    test.each<[string, (directory: Directory, id: string) => Promise<unknown>]>([
      ['active=false', (directory, id) => directory.expecting(200, 'PATCH', `Users/${id}`, patchOf({ op: 'Replace', value: { active: 'False' } }))],
      ['active removed', (directory, id) => directory.expecting(200, 'PATCH', `Users/${id}`, patchOf({ op: 'remove', path: 'active' }))],
      [
        'another externalId',
        (directory, id) => directory.expecting(200, 'PATCH', `Users/${id}`, patchOf({ op: 'replace', path: 'externalId', value: 'else' })),
      ],
      ['PUT without externalId', (directory, id) => directory.expecting(200, 'PUT', `Users/${id}`, { body: { userName: id, active: true } })],
      ['DELETE', (directory, id) => directory.ask('DELETE', `Users/${id}`)],
    ])('a deactivated user can not sign in or refresh, and their refresh tokens end: %s', async (_name, deactivate) => {
      const directory = await staffed(spec)
      const name = freshName('person')
      const id = await directory.add({ externalId: name })
      const refresh = await refreshed((await signIn(spec, directory, name)).get('refresh_token') ?? '')
      await deactivate(directory, id)
      expectRefused(await signIn(spec, directory, name))
      expectFailure(await spec.call('ExchangeRefreshToken', {}, { token: refresh }), { code: 16, reason: 'REFRESH_TOKEN_ENDED' })
      // The family has ended, also when the person comes back.
      const back = { userName: freshName('back'), externalId: name, active: true }
      const put = await directory.ask('PUT', `Users/${id}`, { body: back })
      if (put.status === 404) await directory.add(back)
      expectFailure(await spec.call('ExchangeRefreshToken', {}, { token: refresh }), { code: 16, reason: 'REFRESH_TOKEN_ENDED' })
      expect((await signIn(spec, directory, name)).get('token')).not.toBeNull()
    })

    // docs/spec/scim.md#deactivation
    test('reactivation restores nothing: a role removed in between stays removed', async () => {
      const directory = await staffed(spec)
      const name = freshName('person')
      const id = await directory.add({ externalId: name })
      await signIn(spec, directory, name)
      const uid = personUid(login.issuer, name)
      await directory.expecting(200, 'PATCH', `Users/${id}`, patchOf({ op: 'replace', path: 'active', value: false }))
      for (const binding of await rolesOf(directory, uid))
        await spec.ok('DeleteRoleBinding', { uid: uidOf(binding as { uid: string }) }, { token: directory.token })
      await directory.expecting(200, 'PATCH', `Users/${id}`, patchOf({ op: 'replace', path: 'active', value: true }))
      expect(await reads(directory, (await signIn(spec, directory, name)).get('token'))).toBe(5)
      expect(await rolesOf(directory, uid)).toEqual([])
    })

    // docs/spec/scim.md#admission
    test('with SCIM off, all people can sign in, and SCIM records are kept without effect', async () => {
      const directory = await staffed(spec)
      const [gone, stranger] = [freshName('gone'), freshName('stranger')]
      const id = await directory.add({ externalId: gone, active: false })
      await directory.setEnabled(false)
      for (const name of [gone, stranger]) expect((await signIn(spec, directory, name)).get('token')).not.toBeNull()
      const refresh = (await signIn(spec, directory, gone)).get('refresh_token') ?? ''
      await directory.setEnabled(true)
      expect(await directory.expecting(200, 'GET', `Users/${id}`)).toMatchObject({ active: false })
      for (const name of [gone, stranger]) expectRefused(await signIn(spec, directory, name))
      expectFailure(await spec.call('ExchangeRefreshToken', {}, { token: refresh }), { code: 16, reason: 'REFRESH_TOKEN_ENDED' })
    })

    // docs/spec/identities.md#correlation-rules
    test('the correlation rule chooses the claim that is the externalId: oid in place of sub', async () => {
      const directory = await staffed(spec, { correlationRule: 'CORRELATION_RULE_OID_EQUALS_EXTERNAL_ID', issuer: minting.issuer })
      const [name, oid] = [freshName('person'), freshName('oid')]
      await directory.add({ externalId: oid })
      await directory.add({ externalId: name })
      const exchange = async (more: Readonly<Record<string, unknown>>) =>
        spec.call('Exchange', { identityProvider: directory.provider }, { token: await minted(name, more) })
      for (const more of [{}, { oid: 7 }, { oid: freshName('other') }, { oid: '' }]) expectFailure(await exchange(more), { code: 7, reason: 'NOT_PROVISIONED' })
      expect((await exchange({ oid })).code).toBe(0)
    })

    // docs/spec/scim.md#admission
    test('a refresh token stored without an externalId is matched by subject, and ends if the rule uses another claim', async () => {
      const { services } = spec.server.running.engine
      const refreshOf = async (directory: Directory, subject: string): Promise<string> => {
        const person = trustedUid((await makePerson(spec.server, { issuer: minting.issuer, subject })).uid)
        const act = { issuer: minting.issuer, subject, audience: 'taproot' }
        const claims = { act, restrictions: {}, issuedAtMs: services.clock.now() }
        const grant = { person, claims, provider: trustedUid(directory.provider), externalId: '', audiences: [spec.server.config.baseUrl] }
        return (await issueRefreshToken(services, grant, AbortSignal.timeout(60_000))).text
      }
      const name = freshName('person')
      const bySub = await staffed(spec, { issuer: minting.issuer })
      await bySub.add({ externalId: name })
      expect(await refreshed(await refreshOf(bySub, name))).not.toBe('')
      const stranger = freshName('stranger')
      expectFailure(await spec.call('ExchangeRefreshToken', {}, { token: await refreshOf(bySub, stranger) }), { code: 16, reason: 'REFRESH_TOKEN_ENDED' })
      const byOid = await staffed(spec, { correlationRule: 'CORRELATION_RULE_OID_EQUALS_EXTERNAL_ID', issuer: minting.issuer })
      await byOid.add({ externalId: name })
      expectFailure(await spec.call('ExchangeRefreshToken', {}, { token: await refreshOf(byOid, name) }), { code: 16, reason: 'REFRESH_TOKEN_ENDED' })
    })

    // docs/spec/scim.md#admission
    test('a token exchange, a registration and a bearer token check the directory too, for its own organisation only', async () => {
      const [directory, other] = [await staffed(spec, { issuer: minting.issuer }), await staffed(spec, { issuer: minting.issuer })]
      const name = freshName('person')
      const id = await directory.add({ externalId: name })
      await other.setEnabled(false)
      const at = async ({ provider }: Directory) => spec.call('Exchange', { identityProvider: provider }, { token: await minted(name) })
      const direct = async (): Promise<unknown[]> => itemsOf(await spec.ok('ListGroups', {}, { token: await minted(name) }), 'groups').map(uidOf)
      for (const one of [directory, other]) expect((await at(one)).code).toBe(0)
      expect((await direct()).toSorted()).toEqual([directory.group, other.group].toSorted())
      await directory.expecting(200, 'PATCH', `Users/${id}`, patchOf({ op: 'replace', path: 'active', value: false }))
      expectFailure(await at(directory), { code: 7, reason: 'NOT_PROVISIONED' })
      expect((await at(other)).code).toBe(0)
      expect(await direct()).toEqual([other.group])
      await other.setEnabled(true)
      expectFailure(await spec.call('ListGroups', {}, { token: await minted(name) }), { code: 7, reason: 'NOT_PROVISIONED' })
      expectFailure(await spec.call('Register', {}, { token: await minted(name) }), { code: 7, reason: 'NOT_PROVISIONED' })
    })

    test('ADR 0019 a person who signs in by a configured issuer, or a token for the platform, is not locked out by any directory', async () => {
      const directory = await staffed(spec, { issuer: minting.issuer })
      const name = freshName('person')
      await directory.add({ externalId: name, active: false })
      const uid = personUid(minting.issuer, name)
      await spec.ok('CreateRoleBinding', { parent: directory.group, roleBinding: { identityUid: uid, roleUid: roleUid('viewer') } }, { token: directory.token })
      const token = await minted(name, { aud: spec.server.config.baseUrl })
      expect((await spec.call('Register', {}, { token })).code).toBe(0)
      expect((await spec.call('Exchange', {}, { token })).code).toBe(0)
    })

    // docs/spec/scim.md#admission
    test('an identity that is signed in by name is not checked against the directory', async () => {
      const directory = await staffed(spec, { issuer: minting.issuer })
      const subject = freshName('ci')
      const identity = { name: subject, claimMatch: { issuer: minting.issuer, subject, audience: 'taproot' } }
      const uid = uidOf(await spec.ok('CreateIdentity', { parent: directory.group, identity }, { token: directory.token }))
      expect((await spec.call('Exchange', { identity: uid }, { token: await minted(subject) })).code).toBe(0)
    })

    // docs/spec/conventions.md#deletion-order
    test('the deletion of a provider deletes its SCIM users completely', async () => {
      const directory = await staffed(spec)
      const name = freshName('person')
      for (let at = 0; at < 3; at++) await directory.add({ externalId: `${name}-${at}` })
      await spec.ok('DeleteIdentityProvider', { uid: directory.provider }, { token: directory.token })
      expect((await directory.ask('GET', 'Users')).status).toBe(401)
      const { store } = spec.server.running.engine
      const left = async (): Promise<string[]> =>
        (await store.range({ prefix: '', limit: 100_000 }, AbortSignal.timeout(60_000))).entries
          .map(({ key }) => key)
          .filter((key) => key.includes('ScimUser') && key.includes(directory.provider))
      await expect.poll(left).toEqual([])
    })
  },
  {
    transports: ['rest'],
    env: { TAPROOT_SELF_SERVICE_ROOT_GROUPS: 'false', TAPROOT_ISSUERS: JSON.stringify([login, minting].map(({ issuer }) => ({ issuer, allowPrivate: true }))) },
  },
)
