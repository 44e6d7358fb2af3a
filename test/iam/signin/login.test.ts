import { fromBinary, toJson } from '@bufbuild/protobuf'
import { afterAll, expect, test } from 'vitest'
import { MappedSessionSchema } from '../../../src/gen/taproot/auth/v1/auth_pb.ts'
import { OutboxEventSchema } from '../../../src/gen/taproot/store/v1/envelope_pb.ts'
import { outboxPrefix } from '../../../src/engine/log/outbox-keys.ts'
import { decodeJwt } from 'jose'
import { personUid } from '../../../src/auth/oidc/issuer-name.ts'
import { PersonWithBrowser, startLoginProvider, type Arrival, type PersonClaims } from '../../support/parts/sign-in/login-provider.ts'
import { freshName, makeOrganisation, roleUid, type Organisation } from '../../support/test-server.ts'
import { itemsOf, specSuite, uidOf, type Spec } from '../../conformance/spec/spec-suite.ts'

const providers = [await startLoginProvider(), await startLoginProvider({ pkceRequired: true })] as const
const [plain, strict] = providers
afterAll(async () => {
  for (const provider of providers) await provider.stop()
})

/** The address at which a command would wait for its browser; no server listens there. */
const waiting = 'http://localhost:39999/callback'

/** Signs in with a browser: opens /oauth with this query and continues until the redirect to the command. */
async function login(spec: Spec, person: PersonWithBrowser | string, query: Readonly<Record<string, string>>): Promise<Arrival> {
  const url = new URL('/oauth', spec.server.config.baseUrl)
  const all = { exit: 'redirect', redirect: `${waiting}?token=true&error=true`, ...query }
  for (const [name, value] of Object.entries(all)) url.searchParams.set(name, value)
  const browser = typeof person === 'string' ? new PersonWithBrowser(person) : person
  return browser.open(url.href, waiting)
}

function answerOf({ url }: Arrival, name: string): string {
  return url.searchParams.get(name) ?? ''
}

specSuite(
  'browser login',
  (spec) => {
    /** The callback of each provider's client differs, so that answers can not be mixed up. */
    const redirectUris: string[] = []
    const callbackOf = (provider: string): string => `${spec.server.config.baseUrl}/oauth/callback/${provider}`

    /** Creates an organisation whose people sign in at a provider, with the default role `viewer`. */
    async function withProvider(more: object = {}, oidc: object = {}): Promise<Organisation & { provider: string }> {
      const org = await makeOrganisation(spec.server)
      const configuration = { issuer: plain.issuer, clientId: 'taproot', clientSecret: 'a secret', ...oidc }
      const identityProvider = { name: freshName('login'), defaultRole: roleUid('viewer'), oidc: configuration, ...more }
      const provider = uidOf(await spec.ok('CreateIdentityProvider', { parent: org.group, identityProvider }, { token: org.token }))
      redirectUris.push(callbackOf(provider))
      plain.serve([{ id: 'taproot', secret: 'a secret', redirectUris }])
      strict.serve([{ id: 'taproot', redirectUris }])
      return { ...org, provider }
    }

    const rolesOf = async (org: Organisation, identity: string): Promise<unknown[]> =>
      itemsOf(await spec.ok('ListRoleBindings', { identity, group: org.group }, { token: org.token }), 'roleBindings').map(
        (binding) => (binding['role'] as { name: string }).name,
      )

    // docs/spec/identities.md#default-roles
    test('a new person returns to the client with a token, and has the default role in that organisation', async () => {
      const org = await withProvider()
      const other = await withProvider()
      const name = freshName('person')
      plain.people.set(name, { email: 'new@person.example', email_verified: true, name: 'New Person' })
      const arrival = await login(spec, name, { idp_id: org.provider })
      expect(answerOf(arrival, 'error')).toBe('')
      const token = answerOf(arrival, 'token')
      const uid = personUid(plain.issuer, name)
      expect(decodeJwt(token)).toMatchObject({ sub: uid, act: { iss: plain.issuer, sub: name, aud: 'taproot' } })
      expect(await spec.ok('GetGroup', { uid: org.group }, { token })).toMatchObject({ uid: org.group })
      expect((await spec.call('GetGroup', { uid: other.group }, { token })).code).toBe(5)
      expect(await rolesOf(org, uid)).toEqual(['viewer'])
    })

    // docs/spec/identities.md#default-roles
    test('the default role is granted once: a person who lost it does not get it again by a sign-in', async () => {
      const org = await withProvider()
      const name = freshName('person')
      await login(spec, name, { idp_id: org.provider })
      const uid = personUid(plain.issuer, name)
      for (const binding of itemsOf(await spec.ok('ListRoleBindings', { identity: uid }, { token: org.token }), 'roleBindings')) {
        await spec.ok('DeleteRoleBinding', { uid: uidOf(binding) }, { token: org.token })
      }
      const token = answerOf(await login(spec, name, { idp_id: org.provider }), 'token')
      expect((await spec.call('GetGroup', { uid: org.group }, { token })).code).toBe(5)
      expect(await rolesOf(org, uid)).toEqual([])
    })

    // docs/spec/identities.md#trust-domain
    test("a sign-in by a tenant's provider gives access to that tenant only, whatever the person holds elsewhere", async () => {
      const [org, other] = [await withProvider(), await withProvider()]
      const name = freshName('person')
      const [mine, theirs] = [await login(spec, name, { idp_id: org.provider }), await login(spec, name, { idp_id: other.provider })]
      const groups = async (arrival: Arrival): Promise<unknown[]> =>
        itemsOf(await spec.ok('ListGroups', {}, { token: answerOf(arrival, 'token') }), 'groups').map(uidOf)
      expect(await groups(mine)).toEqual([org.group])
      expect(await groups(theirs)).toEqual([other.group])
    })

    // docs/spec/identities.md#mapped-sessions
    test('mapped groups of the provider give roles for this session only, and no refresh token', async () => {
      const org = await withProvider({}, { groupsClaim: 'groups' })
      const mapping = { externalGroupId: 'admins', roleUid: roleUid('editor'), scope: org.group }
      await spec.ok('CreateExternalGroupRoleMapping', { parent: org.provider, externalGroupRoleMapping: mapping }, { token: org.token })
      const name = freshName('person')
      plain.people.set(name, { groups: ['staff', 'admins'] })
      const arrival = await login(spec, name, { idp_id: org.provider, create_refresh_token: 'true' })
      const token = answerOf(arrival, 'token')
      const mayCreateRepos = async (bearer: string): Promise<number> =>
        (await spec.call('CreateRepo', { parent: org.group, repo: { name: 'by-a-session' } }, { token: bearer, validateOnly: true })).code
      expect(await mayCreateRepos(token)).toBe(0)
      expect(await rolesOf(org, personUid(plain.issuer, name))).toEqual(['viewer'])
      expect(answerOf(arrival, 'refresh_token')).toBe('')
      plain.people.set(name, { groups: ['staff'] })
      const later = answerOf(await login(spec, name, { idp_id: org.provider }), 'token')
      expect(await mayCreateRepos(later)).toBe(7)
      const { entries } = await spec.server.running.engine.store.range({ prefix: outboxPrefix, limit: 1000 }, AbortSignal.timeout(60_000))
      const events = entries
        .map(({ value }) => fromBinary(OutboxEventSchema, value))
        .filter(({ subject, type }) => subject === org.provider && type.includes('session'))
      expect(events.map(({ type, group, actorSubject, internal }) => [type, group, actorSubject, internal])).toEqual([
        ['dev.taproot.api.auth.session.mapped.v1', org.group, personUid(plain.issuer, name), false],
      ])
      expect(events.map(({ body }) => toJson(MappedSessionSchema, fromBinary(MappedSessionSchema, body)))).toEqual([
        {
          identity: personUid(plain.issuer, name),
          identityProvider: org.provider,
          roles: [{ externalGroup: 'admins', role: roleUid('editor'), scope: org.group }],
        },
      ])
    })

    // docs/spec/tokens.md#refresh-tokens
    test('a refresh token is returned on request, and ends with the deletion of the provider', async () => {
      const org = await withProvider()
      const name = freshName('person')
      plain.people.set(name, { name: 'A Person' })
      const asked = answerOf(await login(spec, name, { idp_id: org.provider, create_refresh_token: 'true' }), 'refresh_token')
      expect(answerOf(await login(spec, name, { idp_id: org.provider }), 'refresh_token')).toBe('')
      const pair = await spec.ok('ExchangeRefreshToken', {}, { token: asked })
      const [access, next] = [pair['token'], pair['refreshToken']].map((part) => String((part as { token: string }).token))
      expect(itemsOf(await spec.ok('ListGroups', {}, { token: access ?? '' }), 'groups').map(uidOf)).toEqual([org.group])
      expect(decodeJwt(access ?? '')).toMatchObject({ aud: spec.server.config.baseUrl, upstream: { name: 'A Person' } })
      await spec.ok('DeleteIdentityProvider', { uid: org.provider }, { token: org.token })
      expect((await spec.call('ExchangeRefreshToken', {}, { token: next ?? '' })).code).toBe(16)
    })

    // docs/spec/identities.md#identity-providers
    test('the provider is asked for the scope openid and the additional scopes, each once', async () => {
      const scopesOf = async (additionalScopes: readonly string[]): Promise<string | null> => {
        const { provider } = await withProvider({}, { additionalScopes })
        const url = new URL('/oauth', spec.server.config.baseUrl)
        for (const [name, value] of Object.entries({ redirect: waiting, idp_id: provider })) url.searchParams.set(name, value)
        const { url: asked } = await new PersonWithBrowser('unknown').open(url.href, `${plain.issuer}/`)
        return asked.searchParams.get('scope')
      }
      expect(await scopesOf([])).toBe('openid')
      expect(await scopesOf(['email', 'openid', 'groups'])).toBe('openid email groups')
    })

    test('RFC 7636 a public client uses PKCE, also with a provider that requires it', async () => {
      const org = await withProvider({}, { issuer: strict.issuer, clientSecret: '', pkceEnabled: true })
      expect(answerOf(await login(spec, freshName('person'), { idp_id: org.provider }), 'token')).not.toBe('')
    })

    // docs/spec/tokens.md#browser-sign-in
    test('the name of a verified organisation stands for its provider; orgcheck answers whether it does', async () => {
      const org = await withProvider()
      const name = `${freshName('acme')}.example`
      const orgcheck = async (asked: string): Promise<unknown> => (await fetch(`${spec.server.config.baseUrl}/orgcheck?name=${asked}`)).json()
      const operator = await spec.server.operatorToken()
      await spec.ok('UpdateGroup', { group: { uid: org.group, name } }, { token: operator })
      expect(await orgcheck(name)).toBe(false)
      await spec.ok('UpdateGroup', { group: { uid: org.group, verified: true, kind: 'ORG_KIND_CUSTOMER' } }, { token: operator })
      expect(await orgcheck(name)).toBe(true)
      expect(answerOf(await login(spec, freshName('person'), { idp_id: name }), 'token')).not.toBe('')
      expect(await orgcheck('unknown')).toBe(false)
    })

    // docs/spec/iam.md#invite-redemption
    test('an invite is redeemed during the sign-in', async () => {
      const org = await withProvider()
      const invite = await spec.ok('CreateGroupInvite', { parent: org.group, groupInvite: { roleUid: roleUid('editor'), ttl: '60s' } }, { token: org.token })
      const name = freshName('person')
      expect(answerOf(await login(spec, name, { idp_id: org.provider, invite: String(invite['code']) }), 'error')).toBe('')
      expect((await rolesOf(org, personUid(plain.issuer, name))).sort()).toEqual(['editor', 'viewer'])
    })

    test.each<[string, Readonly<Record<string, string>>]>([
      ['audience', { audience: 'https://elsewhere.example' }],
      ['scope', { scope: 'openid' }],
    ])('a sign-in with an impossible value of %s is refused at the start, and the invite stays valid', async (field, requestedValue) => {
      const org = await withProvider()
      const groupInvite = { roleUid: roleUid('editor'), ttl: '60s', singleUse: true }
      const invite = String((await spec.ok('CreateGroupInvite', { parent: org.group, groupInvite }, { token: org.token }))['code'])
      const name = freshName('person')
      const refused = await login(spec, name, { idp_id: org.provider, invite, ...requestedValue })
      expect([answerOf(refused, 'status_code'), answerOf(refused, 'error')]).toEqual(['400', expect.stringMatching(`^Invalid argument: ${field}: `)])
      expect(spec.server.running.engine.cache.tables.get('Identity', personUid(plain.issuer, name))).toBeUndefined()
      expect(answerOf(await login(spec, name, { idp_id: org.provider, invite }), 'error')).toBe('')
    })

    // docs/spec/iam.md#invite-redemption
    test("an invite for an e-mail address accepts the word of the organisation's own provider, not of a foreign one", async () => {
      const [org, other] = [await withProvider(), await withProvider()]
      const groupInvite = { roleUid: roleUid('editor'), ttl: '60s', email: 'ceo@acme.example' }
      const code = String((await spec.ok('CreateGroupInvite', { parent: org.group, groupInvite }, { token: org.token }))['code'])
      const statusOf = async (provider: string, claims: PersonClaims): Promise<string> => {
        const name = freshName('person')
        plain.people.set(name, claims)
        return answerOf(await login(spec, name, { idp_id: provider, invite: code }), 'status_code')
      }
      const ceo = { email: 'CEO@acme.example', email_verified: true }
      expect(await statusOf(other.provider, ceo)).toBe('404')
      expect(await statusOf(org.provider, { ...ceo, email_verified: false })).toBe('403')
      expect(await statusOf(org.provider, { ...ceo, email: 'cto@acme.example' })).toBe('403')
      expect(await statusOf(org.provider, ceo)).toBe('')
    })

    // docs/spec/tokens.md#browser-sign-in
    test.each<[string, Readonly<Record<string, string>>, string]>([
      ['an unknown provider', { idp_id: `${'a'.repeat(40)}/${'b'.repeat(16)}` }, '404'],
      ['an unknown organisation', { idp_id: 'unknown' }, '404'],
      ['no provider', {}, '400'],
      ['a client id', { client_id: 'auth0' }, '400'],
      ['another exit', { idp_id: 'unknown', exit: 'popup' }, '400'],
    ])('with %s the browser returns with an error and its status', async (_what, query, status) => {
      const arrival = await login(spec, 'unknown', query)
      expect([answerOf(arrival, 'token'), answerOf(arrival, 'status_code')]).toEqual(['', status])
      expect(answerOf(arrival, 'error')).not.toBe('')
    })

    // docs/spec/tokens.md#browser-sign-in
    test('a person without an invite returns with an error if they may not register', async () => {
      const org = await withProvider()
      const arrival = await login(spec, freshName('person'), { idp_id: org.provider, skip_registration: 'true' })
      expect(answerOf(arrival, 'status_code')).toBe('403')
    })

    test.each(['https://evil.example/callback', 'http://localhost.evil.example/', 'http://localhost@evil.example/', 'javascript:alert(1)', '/callback', ''])(
      'a browser is never redirected to %j: a page shows the error',
      async (redirect) => {
        const org = await withProvider()
        const { status, text, url } = await login(spec, 'unknown', { idp_id: org.provider, redirect })
        expect([status, url.pathname]).toEqual([400, '/oauth'])
        expect(text).toContain('Sign in')
      },
    )

    test('a redirect to an address in login.redirects is allowed, with any query', async () => {
      const org = await withProvider()
      const url = new URL('/oauth', spec.server.config.baseUrl)
      for (const [name, value] of Object.entries({ redirect: 'https://app.example/signed-in?x=1', idp_id: org.provider })) url.searchParams.set(name, value)
      const arrival = await new PersonWithBrowser(freshName('person')).open(url.href, 'https://app.example/')
      expect(arrival.url.href).toMatch(/^https:\/\/app\.example\/signed-in\?x=1&token=ey/)
    })

    test('a sign-in that began in another browser, or long ago, can not be finished in this one (login CSRF)', async () => {
      const org = await withProvider()
      const url = new URL('/oauth', spec.server.config.baseUrl)
      for (const [name, value] of Object.entries({ redirect: waiting, idp_id: org.provider })) url.searchParams.set(name, value)
      const attacker = new PersonWithBrowser(freshName('attacker'))
      const back = callbackOf(org.provider)
      const { url: stolen } = await attacker.open(url.href, back)
      const victim = await new PersonWithBrowser('victim').open(stolen.href, waiting)
      expect([victim.status, victim.url.pathname]).toEqual([400, new URL(back).pathname])
      spec.clock.advance(11 * 60_000)
      expect((await attacker.open(stolen.href, waiting)).status).toBe(400)
      const forged = new URL(stolen)
      forged.searchParams.set('state', 'AAAA')
      expect((await attacker.open(forged.href, waiting)).status).toBe(400)
    })

    test('operations.md: the audit log has each sign-in, with its person or the reason of a refusal', async () => {
      const org = await withProvider()
      const linesOf = (): unknown[] =>
        spec.server.logs.filter(({ fields }) => fields['subject'] === org.provider && fields['audit'] === true).map(({ fields }) => fields)
      const name = freshName('person')
      expect(answerOf(await login(spec, name, { idp_id: org.provider, skip_registration: 'true' }), 'status_code')).toBe('403')
      expect(linesOf().at(-1)).toMatchObject({ method: 'login/browser', outcome: 'denied', code: 7 })
      await login(spec, name, { idp_id: org.provider })
      expect(linesOf().at(-1)).toMatchObject({ method: 'login/browser', outcome: 'done', identity: personUid(plain.issuer, name), claimedSubject: name })
    })

    test('RFC 9700 4.4 an answer of one provider is not accepted as that of another (mix-up)', async () => {
      const [org, evil] = [await withProvider(), await withProvider({}, { issuer: strict.issuer, clientSecret: '', pkceEnabled: true })]
      const start = (idp: string): string => {
        const url = new URL('/oauth', spec.server.config.baseUrl)
        for (const [name, value] of Object.entries({ redirect: waiting, idp_id: idp })) url.searchParams.set(name, value)
        return url.href
      }
      const victim = new PersonWithBrowser(freshName('victim'))
      // The victim starts at the evil provider, which redirects to the honest one with the state of that sign-in.
      const { url: atEvil } = await victim.open(start(evil.provider), `${strict.issuer}/`)
      const { url: atHonest } = await new PersonWithBrowser('attacker').open(start(org.provider), `${plain.issuer}/`)
      atHonest.searchParams.set('state', atEvil.searchParams.get('state') ?? '')
      const { status, url } = await victim.open(atHonest.href, waiting)
      expect([status, url.pathname]).toEqual([400, new URL(callbackOf(org.provider)).pathname])
    })

    test('a sign-in and its refresh tokens end when the provider gets another issuer or client', async () => {
      const org = await withProvider()
      const name = freshName('person')
      const refresh = answerOf(await login(spec, name, { idp_id: org.provider, create_refresh_token: 'true' }), 'refresh_token')
      const url = new URL('/oauth', spec.server.config.baseUrl)
      for (const [key, value] of Object.entries({ redirect: waiting, idp_id: org.provider })) url.searchParams.set(key, value)
      const person = new PersonWithBrowser(name)
      const { url: back } = await person.open(url.href, callbackOf(org.provider))
      const identityProvider = { uid: org.provider, oidc: { clientId: 'another', clientSecret: 'another secret' } }
      await spec.ok('UpdateIdentityProvider', { identityProvider, updateMask: 'oidc.client_id,oidc.client_secret' }, { token: org.token })
      expect(answerOf(await person.open(back.href, waiting), 'status_code')).toBe('400')
      expect((await spec.call('ExchangeRefreshToken', {}, { token: refresh })).code).toBe(16)
    })

    // docs/spec/identities.md#trust-domain
    test('a provider of a subgroup signs in for that subgroup: rights from groups above do not count', async () => {
      const org = await withProvider()
      const team = uidOf(await spec.ok('CreateGroup', { parent: org.group, group: { name: 'team' } }, { token: org.token }))
      const oidc = { issuer: plain.issuer, clientId: 'taproot', clientSecret: 'a secret' }
      const identityProvider = { name: freshName('login'), defaultRole: roleUid('viewer'), oidc }
      const provider = uidOf(await spec.ok('CreateIdentityProvider', { parent: team, identityProvider }, { token: org.token }))
      redirectUris.push(callbackOf(provider))
      plain.serve([{ id: 'taproot', secret: 'a secret', redirectUris }])
      const name = freshName('owner')
      const roleBinding = { identityUid: personUid(plain.issuer, name), roleUid: roleUid('owner') }
      await spec.ok('CreateRoleBinding', { parent: org.group, roleBinding }, { token: org.token })
      const token = answerOf(await login(spec, name, { idp_id: provider }), 'token')
      expect((await spec.call('GetGroup', { uid: org.group }, { token })).code).toBe(5)
      expect((await spec.call('GetGroup', { uid: team }, { token })).code).toBe(0)
      expect((await spec.call('DeleteGroup', { uid: team }, { token, validateOnly: true })).code).toBe(7)
    })

    test('a sign-in at an unreachable issuer shows the reason', async () => {
      const org = await withProvider({}, { issuer: 'https://10.0.0.1' })
      const url = new URL('/oauth', spec.server.config.baseUrl)
      for (const [key, value] of Object.entries({ redirect: waiting, idp_id: org.provider })) url.searchParams.set(key, value)
      const arrival = await new PersonWithBrowser('anybody').open(url.href, waiting)
      expect([answerOf(arrival, 'status_code'), answerOf(arrival, 'error')]).toEqual([
        '400',
        'the identity provider cannot be used: the host of the issuer does not exist, or has no public address',
      ])
    })

    test("the provider's answer is not shown, and no secret is logged", async () => {
      const org = await withProvider({}, { clientSecret: 'a wrong secret' })
      const arrival = await login(spec, freshName('person'), { idp_id: org.provider })
      expect([answerOf(arrival, 'status_code'), answerOf(arrival, 'error')]).toEqual(['403', 'the identity provider refused the sign-in'])
      expect(JSON.stringify(spec.server.logs)).not.toContain('a wrong secret')
    })
  },
  {
    transports: ['rest'],
    env: {
      TAPROOT_ISSUERS: JSON.stringify(providers.map(({ issuer }) => ({ issuer, allowPrivate: true }))),
      TAPROOT_LOGIN_REDIRECTS: 'https://app.example/signed-in',
      TAPROOT_SELF_SERVICE_ROOT_GROUPS: 'false',
    },
  },
)
