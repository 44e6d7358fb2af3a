import type { JsonObject } from '@bufbuild/protobuf'
import { decodeJwt } from 'jose'
import { expect, test } from 'vitest'
import { personUid } from '../../../../src/auth/oidc/issuer-name.ts'
import type { Actor } from '../../../../src/auth/access-tokens/principal.ts'
import type { TokenRestrictions } from '../../../../src/auth/access-tokens/token-restrictions.ts'
import { encodeCapabilities, setOf } from '../../../../src/base/capability.ts'
import { trustedUid } from '../../../../src/base/uid.ts'
import { issueRefreshToken, refreshPrefix } from '../../../../src/iam/signin/refresh-tokens.ts'
import { StoreError } from '../../../../src/store/store.ts'
import type { Reply } from '../../../support/api-clients.ts'
import { failNext, misleading } from '../../../support/fail-next.ts'
import { freshName, makeOrganisation, roleUid, type Organisation } from '../../../support/test-server.ts'
import { expectFailure, itemsOf, specSuite, uidOf, type Spec } from '../spec-suite.ts'

const signal = (): AbortSignal => AbortSignal.timeout(60_000)

/** A person with an account at the development issuer. */
class TestPerson {
  readonly #spec: Spec
  readonly subject = freshName('foreign-name')

  constructor(spec: Spec) {
    this.#spec = spec
  }

  get uid(): string {
    return personUid(this.#spec.server.devIssuer.issuer, this.subject)
  }

  /** A token of the issuer for the platform. */
  token(claims: JsonObject = {}): Promise<string> {
    const { devIssuer, config } = this.#spec.server
    return devIssuer.mintDevToken({ subject: this.subject, audience: config.baseUrl, claims })
  }

  async register(request: JsonObject = {}, claims: JsonObject = {}): Promise<Reply> {
    return this.#spec.call('Register', request, { token: await this.token(claims) })
  }

  /** Binds a role before, or after, they came. */
  async bind(org: Organisation, role = 'viewer'): Promise<void> {
    await this.#spec.ok('CreateRoleBinding', { parent: org.group, roleBinding: { identityUid: this.uid, roleUid: roleUid(role) } }, { token: org.token })
  }

  /** Registered, with a role in an organisation, and the token that an exchange gave. */
  async signedIn(org: Organisation, role?: string): Promise<string> {
    await this.bind(org, role)
    await this.#spec.ok('Register', {}, { token: await this.token() })
    return String((await this.#spec.ok('Exchange', {}, { token: await this.token() }))['token'])
  }
}

const env = { TAPROOT_SELF_SERVICE_ROOT_GROUPS: 'false' }

specSuite(
  'people',
  (spec) => {
    // docs/spec/identities.md#registration
    test('an unregistered person is asked to register; without an invite or binding it is code 7 NOT_INVITED, and nothing is stored', async () => {
      const person = new TestPerson(spec)
      expectFailure(await spec.call('Exchange', {}, { token: await person.token() }), { code: 7 })
      expectFailure(await person.register(), { code: 7, reason: 'NOT_INVITED' })
      expect(spec.server.running.engine.cache.tables.get('Identity', person.uid)).toBeUndefined()
    })

    // docs/spec/identities.md#registration
    test('a person with an earlier role binding registers, and has the role at once', async () => {
      const org = await makeOrganisation(spec.server)
      const person = new TestPerson(spec)
      await person.bind(org)
      const answer = await person.register({}, { email: 'Some.Body@example.org', email_verified: true, name: 'Some Body' })
      expect(answer.body).toEqual({ identity: person.uid, group: '' })
      const { token } = await spec.ok('Exchange', {}, { token: await person.token() })
      expect(await spec.ok('GetGroup', { uid: org.group }, { token: String(token) })).toMatchObject({ uid: org.group })
      const operator = await spec.server.operatorToken()
      expect(await spec.ok('GetIdentity', { uid: person.uid }, { token: operator })).toMatchObject({
        name: 'some body',
        email: 'Some.Body@example.org',
        claimMatch: { issuer: spec.server.devIssuer.issuer, subject: person.subject },
      })
      // Twice is as good as once.
      expect((await person.register()).body).toEqual({ identity: person.uid, group: '' })
    })

    // docs/spec/tokens.md#who-am-i
    test("the token of a person, and Validate, show the issuer's description of the person", async () => {
      const org = await makeOrganisation(spec.server)
      const person = new TestPerson(spec)
      const claims = { name: 'Some Body', picture: 'https://pictures.example/some', given_name: 'Some', email: 'some@example.org', email_verified: true }
      await person.bind(org)
      expect((await person.register({}, claims)).code).toBe(0)
      const { token } = await spec.ok('Exchange', {}, { token: await person.token(claims) })
      const { email_verified: _verified, ...upstream } = claims
      expect(decodeJwt(String(token))['upstream']).toEqual(upstream)
      const profile = { name: 'Some Body', picture: 'https://pictures.example/some', givenName: 'Some' }
      for (const bearer of [String(token), await person.token(claims)])
        expect(await spec.ok('Auth/Validate', {}, { token: bearer })).toMatchObject({ email: 'some@example.org', emailVerified: true, profile })
    })

    // docs/spec/identities.md#records-of-people
    test('an e-mail address that the issuer did not verify is stored as unverified', async () => {
      const org = await makeOrganisation(spec.server)
      const person = new TestPerson(spec)
      await person.bind(org)
      expect((await person.register({}, { email: 'some@example.org' })).code).toBe(0)
      const read = await spec.ok('GetIdentity', { uid: person.uid }, { token: await spec.server.operatorToken() })
      expect(read).toMatchObject({ emailUnverified: 'some@example.org' })
      expect(read['email'] ?? '').toBe('')
    })

    // docs/spec/identities.md#registration
    test('a registration with a uid other than that of the token is refused; a dry run registers no person', async () => {
      const org = await makeOrganisation(spec.server)
      const [person, another] = [new TestPerson(spec), new TestPerson(spec)]
      await person.bind(org)
      expectFailure(await person.register({ identityId: another.uid }), { code: 3, fields: ['identity_id'] })
      expect((await spec.call('Register', { identityId: person.uid }, { token: await person.token(), validateOnly: true })).code).toBe(0)
      expect(spec.server.running.engine.cache.tables.get('Identity', person.uid)).toBeUndefined()
      expect((await person.register({ identityId: person.uid })).code).toBe(0)
    })

    // docs/spec/identities.md#registration
    test.each<[string, (spec: Spec) => Promise<string | undefined> | undefined, number]>([
      ['no token', () => undefined, 16],
      ['a token of another audience', (at) => at.server.devIssuer.mintDevToken({ subject: 'x', audience: 'https://elsewhere.example' }), 7],
      ['a token of this server', (at) => at.server.operatorToken(), 7],
    ])('register by %s is refused', async (_what, tokenOf, code) => {
      expectFailure(await spec.call('Register', {}, { token: await tokenOf(spec) }), { code })
    })

    // docs/spec/identities.md#registration
    test('a person can delete their own identity: bindings and tokens are gone, and the uid can register again', async () => {
      const org = await makeOrganisation(spec.server)
      const person = new TestPerson(spec)
      const token = await person.signedIn(org)
      expectFailure(await spec.call('Auth/Delete', { id: org.owner }, { token }), { code: 5 })
      expectFailure(await spec.call('Auth/Delete', { id: org.owner }, { token: org.token }), { code: 5 })
      expect((await spec.call('Auth/Delete', { id: person.uid }, { token, validateOnly: true })).code).toBe(0)
      expect((await spec.call('Auth/Delete', { id: person.uid }, { token })).code).toBe(0)
      expectFailure(await spec.call('GetGroup', { uid: org.group }, { token }), { code: 16 })
      expect(itemsOf(await spec.ok('ListRoleBindings', { identity: person.uid }, { token: org.token }), 'roleBindings')).toEqual([])
      const again = await person.signedIn(org)
      expect(await spec.ok('GetGroup', { uid: org.group }, { token: again })).toMatchObject({ uid: org.group })
      expectFailure(await spec.call('GetGroup', { uid: org.group }, { token }), { code: 16 })
    })

    // docs/spec/iam.md#last-owner
    test('the only owner of one of several organisations can not delete their identity', async () => {
      const [first, second] = [await makeOrganisation(spec.server), await makeOrganisation(spec.server)]
      const person = new TestPerson(spec)
      const token = await person.signedIn(first, 'owner')
      await person.bind(second, 'owner')
      const held = { uidp: { childrenOf: second.group }, identity: second.owner }
      const others = itemsOf(await spec.ok('ListRoleBindings', held, { token }), 'roleBindings')
      for (const other of others) await spec.ok('DeleteRoleBinding', { uid: uidOf(other) }, { token })
      expectFailure(await spec.call('Auth/Delete', { id: person.uid }, { token }), { code: 9, reason: 'LAST_OWNER', violations: ['LAST_OWNER'] })
      await spec.ok('GetGroup', { uid: first.group }, { token })
    })

    // docs/spec/tokens.md#narrowing
    test('a narrowed token can not delete its person', async () => {
      const org = await makeOrganisation(spec.server)
      const person = new TestPerson(spec)
      await person.signedIn(org)
      const restricted = await spec.ok('Exchange', { cap: ['groups.list'] }, { token: await person.token() })
      expectFailure(await spec.call('Auth/Delete', { id: person.uid }, { token: String(restricted['token']) }), { code: 7 })
    })
  },
  { env },
)

/** A refresh token of a new family, as a browser login gives it. */
async function refreshToken(
  spec: Spec,
  person: string,
  of: { restrictions?: TokenRestrictions; audiences?: readonly string[]; act?: Partial<Actor> } = {},
): Promise<string> {
  const { services } = spec.server.running.engine
  const { restrictions = {}, audiences = [spec.server.config.baseUrl] } = of
  const act = { issuer: spec.server.devIssuer.issuer, subject: 'foreign-name', audience: spec.server.config.baseUrl, ...of.act }
  const claims = { act, restrictions, issuedAtMs: services.clock.now() }
  return (await issueRefreshToken(services, { person: trustedUid(person), claims, provider: undefined, externalId: '', audiences }, signal())).text
}

interface Pair {
  readonly access: string
  readonly refresh: string
}

async function refreshed(spec: Spec, token: string, request: JsonObject = {}): Promise<Pair> {
  const answer = await spec.ok('ExchangeRefreshToken', request, { token })
  const of = (key: string): string => String((answer[key] as JsonObject)['token'])
  return { access: of('token'), refresh: of('refreshToken') }
}

const hourMs = 3_600_000

specSuite(
  'refresh tokens',
  (spec) => {
    const start = async (of: Parameters<typeof refreshToken>[2] = {}): Promise<{ org: Organisation; person: string; token: string }> => {
      const org = await makeOrganisation(spec.server)
      const person = new TestPerson(spec)
      await person.signedIn(org)
      return { org, person: person.uid, token: await refreshToken(spec, person.uid, of) }
    }
    const families = async (person: string): Promise<number> =>
      (await spec.server.running.engine.store.range({ prefix: `${refreshPrefix}${person}/`, limit: 10 }, signal())).entries.length

    // docs/spec/tokens.md#refresh-tokens
    test('refresh tokens give an access token and a successor, which is base64 of JSON with exp', async () => {
      const { org, person, token } = await start()
      const first = await refreshed(spec, token)
      expect(await spec.ok('GetGroup', { uid: org.group }, { token: first.access })).toMatchObject({ uid: org.group })
      expect(decodeJwt(first.access).sub).toBe(person)
      expect(JSON.parse(Buffer.from(first.refresh, 'base64').toString())).toMatchObject({ exp: expect.any(Number) as number })
      const second = await refreshed(spec, first.refresh)
      expect(second.refresh).not.toBe(first.refresh)
      expect(await families(person)).toBe(1)
    })

    // docs/spec/tokens.md#refresh-tokens
    test('refresh tokens are refused on a second use, which ends all their successors', async () => {
      const { person, token } = await start()
      const first = await refreshed(spec, token)
      const second = await refreshed(spec, first.refresh)
      expectFailure(await spec.call('ExchangeRefreshToken', {}, { token }), { code: 16, reason: 'REFRESH_TOKEN_ENDED' })
      expectFailure(await spec.call('ExchangeRefreshToken', {}, { token: second.refresh }), { code: 16, reason: 'REFRESH_TOKEN_ENDED' })
      expect(await families(person)).toBe(0)
    })

    // docs/spec/tokens.md#refresh-tokens
    test.each(misleading)('refresh tokens used in a transaction %s give a working successor', async (_what, fault) => {
      const { token, person } = await start()
      failNext(spec.server, fault, refreshPrefix)
      const { refresh } = await refreshed(spec, token)
      await refreshed(spec, refresh)
      expect(await families(person)).toBe(1)
    })

    test('refresh tokens are refused by a full store, and work once it has room', async () => {
      const { token } = await start()
      failNext(spec.server, () => Promise.reject(new StoreError('exhausted', 'no room')), refreshPrefix)
      expectFailure(await spec.call('ExchangeRefreshToken', {}, { token }), { code: 8, reason: 'STORE_FULL' })
      await refreshed(spec, token)
    })

    test.each(misleading)('refresh tokens created in a transaction %s work', async (_what, fault) => {
      const { person } = await start()
      failNext(spec.server, fault, refreshPrefix)
      await refreshed(spec, await refreshToken(spec, person))
    })

    test('refresh tokens are refused as malformed if they are other text', async () => {
      const { code, message } = await spec.call('ExchangeRefreshToken', {}, { token: 'no-token-at-all' })
      expect([code, message]).toEqual([16, 'verifying token: this is not a refresh token'])
    })

    // docs/spec/tokens.md#refresh-tokens
    test('refresh tokens used many times at once succeed at most once, and nothing works afterwards', async () => {
      const { token, person } = await start()
      const answers = await Promise.all(Array.from({ length: 8 }, () => spec.call('ExchangeRefreshToken', {}, { token })))
      const good = answers.filter(({ code }) => code === 0)
      expect(good.length).toBeLessThanOrEqual(1)
      for (const { body } of good) {
        const next = String((body['refreshToken'] as JsonObject)['token'])
        expectFailure(await spec.call('ExchangeRefreshToken', {}, { token: next }), { code: 16, reason: 'REFRESH_TOKEN_ENDED' })
      }
      expect(await families(person)).toBe(0)
    })

    // docs/spec/tokens.md#refresh-bounds
    test('refresh tokens narrow the access token by the requested restrictions, and never widen it', async () => {
      const { org, token } = await start({ restrictions: { capabilities: setOf(['groups.list', 'repo.list']) } })
      const { access, refresh } = await refreshed(spec, token, { cap: ['repo.list', 'roles.list'] })
      expectFailure(await spec.call('GetGroup', { uid: org.group }, { token: access }), { code: 7 })
      expect(decodeJwt(access)['cpn']).toBe(encodeCapabilities(setOf(['repo.list'])))
      // The family keeps what the sign-in gave it.
      const next = await refreshed(spec, refresh)
      expect(await spec.ok('GetGroup', { uid: org.group }, { token: next.access })).toMatchObject({ uid: org.group })
    })

    // docs/spec/tokens.md#refresh-bounds
    test('refresh tokens are not used up by a request that does not fit into a token', async () => {
      const act = { subject: 's'.repeat(2000), email: `${'e'.repeat(3000)}@person.example` }
      const { token, org } = await start({ act })
      const scopes = Array.from({ length: 17 }, (_, index) => `${org.group}${`/${index.toString(16).padStart(16, '0')}`.repeat(11)}`)
      expectFailure(await spec.call('ExchangeRefreshToken', { scopes }, { token }), { code: 9, reason: 'TOKEN_TOO_LARGE' })
      expect(decodeJwt((await refreshed(spec, token, { scopes: scopes.slice(0, 5) })).access)['scp']).toHaveLength(5)
    })

    test('RFC 6749 6 refresh tokens give only audiences and groups of the sign-in', async () => {
      const { config } = spec.server
      const [first, second] = [await start(), await start({ audiences: [config.registry.host, config.baseUrl] })]
      const audienceOf = ({ access }: Pair): unknown => decodeJwt(access).aud
      const more = { aud: [config.baseUrl, config.registry.host] }
      expectFailure(await spec.call('ExchangeRefreshToken', more, { token: first.token }), { code: 7, reason: 'AUDIENCE_NOT_GRANTED' })
      const { access, refresh } = await refreshed(spec, first.token, { aud: [`${config.baseUrl}/`] })
      expect(decodeJwt(access).aud).toBe(`${config.baseUrl}/`)
      expect(audienceOf(await refreshed(spec, refresh))).toBe(config.baseUrl)
      const both = await refreshed(spec, second.token)
      expect(audienceOf(both)).toEqual([config.registry.host, config.baseUrl])
      const one = await refreshed(spec, both.refresh, { aud: [config.registry.host] })
      expect(audienceOf(one)).toBe(config.registry.host)
      expect(audienceOf(await refreshed(spec, one.refresh))).toEqual([config.registry.host, config.baseUrl])

      const { org } = first
      const team = uidOf(await spec.ok('CreateGroup', { parent: org.group, group: { name: 'team' } }, { token: org.token }))
      const cut = await refreshToken(spec, first.person, { restrictions: { scopes: [trustedUid(team)] } })
      for (const scopes of [[org.group], [team, org.group], [second.org.group]])
        expectFailure(await spec.call('ExchangeRefreshToken', { scopes }, { token: cut }), { code: 7, reason: 'SCOPE_NOT_GRANTED' })
      expect(decodeJwt((await refreshed(spec, cut, { scopes: [team] })).access)['scp']).toEqual([team])
    })

    // docs/spec/tokens.md#refresh-bounds
    test('refresh tokens stored before audiences were recorded are for the default audience', async () => {
      const { token } = await start({ audiences: [] })
      const { registry, baseUrl } = spec.server.config
      expectFailure(await spec.call('ExchangeRefreshToken', { aud: [registry.host] }, { token }), { code: 7, reason: 'AUDIENCE_NOT_GRANTED' })
      expect(decodeJwt((await refreshed(spec, token)).access).aud).toBe(baseUrl)
    })

    // docs/spec/tokens.md#refresh-tokens
    test('refresh tokens are not used up by a request that can not be met', async () => {
      const { token } = await start()
      expectFailure(await spec.call('ExchangeRefreshToken', { aud: ['https://elsewhere.example'] }, { token }), { code: 3, fields: ['aud'] })
      expectFailure(await spec.call('ExchangeRefreshToken', { cap: ['groups.fly'] }, { token }), { code: 3, fields: ['cap'] })
      expectFailure(await spec.call('ExchangeRefreshToken', {}, { token, validateOnly: true }), { code: 3 })
      await refreshed(spec, token)
    })

    // docs/spec/tokens.md#refresh-tokens
    test('end with the deletion of the person, also if the person registers again', async () => {
      const org = await makeOrganisation(spec.server)
      const person = new TestPerson(spec)
      const access = await person.signedIn(org)
      const token = await refreshToken(spec, person.uid)
      expect((await spec.call('Auth/Delete', { id: person.uid }, { token: access })).code).toBe(0)
      await person.signedIn(org)
      expectFailure(await spec.call('ExchangeRefreshToken', {}, { token }), { code: 16, reason: 'REFRESH_TOKEN_ENDED' })
    })

    // docs/spec/tokens.md#refresh-tokens
    test.each([
      ['nothing', undefined],
      ['an access token', 'access'],
      ['text', 'nonsense'],
      ['base64 of something else', Buffer.from('{"exp":1}').toString('base64')],
    ])('refresh tokens are code 16 if %s is sent instead', async (_what, token) => {
      expectFailure(await spec.call('ExchangeRefreshToken', {}, { token: token === 'access' ? await spec.server.operatorToken() : token }), { code: 16 })
    })

    test('refresh tokens expire a week after their last use, or 30 days after the sign-in (tokens.refresh)', async () => {
      // A token issued during such a jump may be signed by a key that is about to go. So the keys that are due then are made before.
      const leap = async (ms: number): Promise<void> => {
        spec.clock.advance(ms)
        await spec.server.running.engine.signingKeys.maintain(signal())
      }
      const { token } = await start()
      let last = await refreshed(spec, token)
      await leap(169 * hourMs)
      expectFailure(await spec.call('ExchangeRefreshToken', {}, { token: last.refresh }), { code: 16, reason: 'REFRESH_TOKEN_ENDED' })
      last = { access: '', refresh: (await start()).token }
      for (let day = 0; day < 5; day++) {
        last = await refreshed(spec, last.refresh)
        await leap(143 * hourMs)
      }
      last = await refreshed(spec, last.refresh)
      await leap(6 * hourMs)
      expectFailure(await spec.call('ExchangeRefreshToken', {}, { token: last.refresh }), { code: 16, reason: 'REFRESH_TOKEN_ENDED' })
    })
  },
  { env },
)
