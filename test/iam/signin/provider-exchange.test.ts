import { fromBinary, type JsonObject } from '@bufbuild/protobuf'
import { decodeJwt } from 'jose'
import { afterAll, expect, test } from 'vitest'
import { personUid } from '../../../src/auth/oidc/issuer-name.ts'
import { OutboxEventSchema } from '../../../src/gen/taproot/store/v1/envelope_pb.ts'
import { outboxPrefix } from '../../../src/engine/log/outbox-keys.ts'
import { freshName, makeOrganisation, roleUid, type Organisation } from '../../support/test-server.ts'
import { expectFailure, itemsOf, specSuite, uidOf } from '../../conformance/spec/spec-suite.ts'
import { signWith, startOidcProvider } from './issuers.ts'

/** A configured issuer whose tokens the tests sign. */
const minting = await startOidcProvider(['a client'])
afterAll(() => minting.stop())

const clientId = 'taproot'

specSuite(
  "the exchange of a provider's token",
  (spec) => {
    /** Returns a token, by default for the client of the organisations. */
    const minted = (subject: string, more: Readonly<Record<string, unknown>> = {}): Promise<string> => {
      const iat = Math.floor(spec.clock.now() / 1000)
      return signWith(minting.key(), minting.claims({ sub: subject, aud: clientId, iat, exp: iat + 36_000, ...more }))
    }

    async function makeProvider({ group, token }: Pick<Organisation, 'group' | 'token'>, client = clientId): Promise<string> {
      const oidc = { issuer: minting.issuer, clientId: client, clientSecret: 'a secret', groupsClaim: 'groups' }
      const identityProvider = { name: freshName('login'), defaultRole: roleUid('viewer'), oidc }
      return uidOf(await spec.ok('CreateIdentityProvider', { parent: group, identityProvider }, { token }))
    }

    /** Creates providers of the same client, each in a subgroup. */
    async function copies({ group: parent, token }: Organisation, count: number, client: string): Promise<string[]> {
      const groups: string[] = []
      for (let index = 0; index < count; index += 1) {
        const group = uidOf(await spec.ok('CreateGroup', { parent, group: { name: freshName('team') } }, { token }))
        await makeProvider({ group, token }, client)
        groups.push(group)
      }
      return groups
    }

    async function withProvider(client = clientId): Promise<Organisation & { provider: string }> {
      const org = await makeOrganisation(spec.server)
      const provider = await makeProvider(org, client)
      const mapping = { externalGroupId: 'admins', roleUid: roleUid('editor'), scope: org.group }
      await spec.ok('CreateExternalGroupRoleMapping', { parent: provider, externalGroupRoleMapping: mapping }, { token: org.token })
      return { ...org, provider }
    }

    const exchanged = async (token: string, request: JsonObject): Promise<string> => String((await spec.ok('Exchange', request, { token }))['token'])

    const entries = async (prefix = '') => (await spec.server.running.engine.store.range({ prefix, limit: 100_000 }, AbortSignal.timeout(60_000))).entries

    /** Returns the identities in the events of sessions through the provider. */
    async function mappedSessions(provider: string): Promise<string[]> {
      const events = (await entries(outboxPrefix)).map(({ value }) => fromBinary(OutboxEventSchema, value))
      return events.filter(({ type, subject }) => type.endsWith('auth.session.mapped.v1') && subject === provider).map(({ actorSubject }) => actorSubject)
    }

    /** Returns all store entries of a person, with their revisions. */
    async function recordsOf(uid: string): Promise<[string, unknown][]> {
      return (await entries()).filter(({ key, value }) => key.includes(uid) || Buffer.from(value).includes(uid)).map(({ key, revision }) => [key, revision])
    }

    // docs/spec/identities.md#mapped-sessions
    test("the exchange of a provider's token gives roles of mapped groups to the session, with an event; the provider's token as a credential has none", async () => {
      const { group, provider } = await withProvider()
      const name = freshName('person')
      const token = await minted(name, { groups: ['admins'] })
      const session = await exchanged(token, { identityProvider: provider })
      const uid = personUid(minting.issuer, name)
      const mayCreateRepos = async (bearer: string): Promise<number> =>
        (await spec.call('CreateRepo', { parent: group, repo: { name: 'by-a-session' } }, { token: bearer, validateOnly: true })).code
      expect(await mayCreateRepos(session)).toBe(0)
      expect(decodeJwt(session)['srl']).toEqual([[group, roleUid('editor')]])
      expect(await mappedSessions(provider)).toEqual([uid])
      expect(await mayCreateRepos(token)).toBe(7)
      expect((await spec.call('GetGroup', { uid: group }, { token })).code).toBe(0)
      await exchanged(await minted(name, { groups: ['staff'] }), { identityProvider: provider })
      expect(await mappedSessions(provider)).toEqual([uid])
    })

    // docs/spec/tokens.md#who-am-i
    test("the exchange of a provider's token lets Validate return roles of mapped groups and of bindings, each once, within the token's limits", async () => {
      const { group, provider, token: owner } = await withProvider()
      const name = freshName('person')
      const token = await minted(name, { groups: ['admins'] })
      const held = async (bearer: string): Promise<unknown[]> =>
        itemsOf(await spec.ok('Validate', {}, { token: bearer }), 'capabilities').map(({ group: at, role, capabilities }) => [
          (at as { id: string }).id,
          (role as { name: string }).name,
          (capabilities as string[]).includes('repo.create'),
        ])
      const session = await exchanged(token, { identityProvider: provider })
      expect(await held(session)).toEqual([
        [group, 'viewer', false],
        [group, 'editor', true],
      ])
      expect(await held(token)).toEqual([[group, 'viewer', false]])
      const restricted = await exchanged(token, { identityProvider: provider, cap: ['groups.list'] })
      expect(await held(restricted)).toEqual([
        [group, 'viewer', false],
        [group, 'editor', false],
      ])
      // A role that is also bound appears once.
      await spec.ok(
        'CreateRoleBinding',
        { parent: group, roleBinding: { identityUid: personUid(minting.issuer, name), roleUid: roleUid('editor') } },
        { token: owner },
      )
      expect((await held(session)).map((item) => (item as string[])[1]).sort()).toEqual(['editor', 'viewer'])
    })

    // docs/spec/tokens.md#token-exchange
    test("the exchange of a provider's token as a dry run changes nothing, names no person, and returns no token", async () => {
      const { provider } = await withProvider()
      const name = freshName('person')
      const uid = personUid(minting.issuer, name)
      const token = await minted(name, { groups: ['admins'], email: 'new@person.example', email_verified: true })
      const dry = async (request: JsonObject = {}) => spec.call('Exchange', { identityProvider: provider, ...request }, { token, validateOnly: true })
      const tried = async (): Promise<void> => {
        const { code, body } = await dry()
        expect([code, body['token'] ?? '', body['refreshToken'] ?? '']).toEqual([0, '', ''])
        expectFailure(await dry({ aud: ['https://elsewhere.example'] }), { code: 3, fields: ['aud'] })
      }
      await tried()
      expect(await recordsOf(uid)).toEqual([])
      await exchanged(token, { identityProvider: provider })
      const before = await recordsOf(uid)
      expect(before).not.toEqual([])
      spec.clock.advance(2 * 3_600_000)
      await tried()
      expect((await spec.call('Exchange', {}, { token: await minted(name, { groups: ['admins'] }), validateOnly: true })).code).toBe(0)
      expect(await recordsOf(uid)).toEqual(before)
      expect(await mappedSessions(provider)).toEqual([uid])
    })

    const bindingsOf = async (identity: string): Promise<unknown[]> =>
      itemsOf(await spec.ok('ListRoleBindings', { identity }, { token: await spec.server.operatorToken() }), 'roleBindings').map(
        ({ group }) => (group as { uid: string }).uid,
      )

    const inviteTo = async ({ group, token }: Organisation): Promise<string> =>
      String((await spec.ok('CreateGroupInvite', { parent: group, groupInvite: { roleUid: roleUid('editor'), ttl: '3600s' } }, { token }))['code'])

    // docs/spec/identities.md#default-roles
    test("the exchange of a provider's token with an invite joins its organisation, and no other with a provider of the same client", async () => {
      const client = freshName('client')
      const [org, foreign] = [await withProvider(client), await makeOrganisation(spec.server)]
      await copies(foreign, 25, client)
      const name = freshName('person')
      const uid = personUid(minting.issuer, name)
      const token = await minted(name, { aud: client })
      expect(await spec.ok('Register', { code: await inviteTo(org) }, { token })).toEqual({ identity: uid, group: org.group })
      // The invite's role, and the default role of the organisation's own provider.
      expect(await bindingsOf(uid)).toEqual([org.group, org.group])
    })

    // docs/spec/identities.md#default-roles
    test("the exchange of a provider's token as a registration without a provider gives no default role if several organisations share the client; naming one does", async () => {
      const client = freshName('client')
      const [org, foreign] = [await withProvider(client), await withProvider(client)]
      const name = freshName('person')
      const uid = personUid(minting.issuer, name)
      const token = await minted(name, { aud: client })
      expect(await spec.ok('Register', {}, { token })).toEqual({ identity: uid, group: '' })
      expect(await bindingsOf(uid)).toEqual([])
      await exchanged(token, { identityProvider: org.provider })
      expect(await bindingsOf(uid)).toEqual([org.group])
      expect(foreign.group).not.toBe(org.group)
    })

    // docs/spec/identities.md#default-roles
    test("the exchange of a provider's token is not blocked by many providers of one organisation whose roles are too large to be stored at once", async () => {
      const client = freshName('client')
      const org = await makeOrganisation(spec.server)
      const few = await copies(org, 8, client)
      const [first, later] = [freshName('person'), freshName('person')]
      await spec.ok('Register', { code: await inviteTo(org) }, { token: await minted(first, { aud: spec.server.config.baseUrl }) })
      expect((await spec.ok('Register', {}, { token: await minted(first, { aud: client }) }))['group']).toBe(few.toSorted()[0])
      expect(await bindingsOf(personUid(minting.issuer, first))).toHaveLength(9)
      await copies(org, 25, client)
      expect(await spec.ok('Register', {}, { token: await minted(later, { aud: client }) })).toMatchObject({ group: '' })
    })

    // docs/spec/identities.md#mapped-sessions
    test("the exchange of a provider's token without a provider gives no roles of mapped groups, and no tenant learns the person's groups", async () => {
      const client = freshName('client')
      const [org, foreign] = [await withProvider(client), await withProvider(client)]
      const name = freshName('person')
      const token = await minted(name, { aud: client, groups: ['admins'] })
      await exchanged(token, { identityProvider: org.provider })
      // Everyone may create a binding for any person.
      const roleBinding = { identityUid: personUid(minting.issuer, name), roleUid: roleUid('viewer') }
      await spec.ok('CreateRoleBinding', { parent: foreign.group, roleBinding }, { token: foreign.token })
      const claims = decodeJwt(await exchanged(token, {}))
      expect(new Set(claims['rts'] as string[])).toEqual(new Set([org.group, foreign.group]))
      expect(claims['srl']).toBeUndefined()
      expect(await mappedSessions(foreign.provider)).toEqual([])
      expect(await mappedSessions(org.provider)).toHaveLength(1)
    })

    test("the exchange of a provider's token with an impossible value does not register the person", async () => {
      const { provider } = await withProvider()
      const name = freshName('person')
      const token = await minted(name)
      const requested: Readonly<Record<string, string>> = { aud: 'https://elsewhere.example', scopes: 'openid', cap: 'nothing.known' }
      for (const [field, requestedValue] of Object.entries(requested)) {
        const request: JsonObject = { identityProvider: provider, [field]: [requestedValue] }
        expectFailure(await spec.call('Exchange', request, { token }), { code: 3, fields: [field] })
      }
      expect(await recordsOf(personUid(minting.issuer, name))).toEqual([])
    })

    test("the exchange of a provider's token by an organisation's provider joins the person to it, even after an earlier binding by others", async () => {
      const [{ group, provider, token }, name] = [await withProvider(), freshName('person')]
      const uid = personUid(minting.issuer, name)
      await spec.ok('CreateRoleBinding', { parent: group, roleBinding: { identityUid: uid, roleUid: roleUid('editor') } }, { token })
      const forPlatform = await minted(name, { aud: spec.server.config.baseUrl })
      await spec.ok('Register', {}, { token: forPlatform })
      const listed = async (): Promise<string[]> => {
        const bearer = await exchanged(forPlatform, {})
        return itemsOf(await spec.ok('ListGroups', {}, { token: bearer }), 'groups').map(uidOf)
      }
      expect(await listed()).toEqual([])
      // A token for the platform identifies a person, but does not show that they belong to an organisation.
      await exchanged(forPlatform, { identityProvider: provider })
      expect(await listed()).toEqual([])
      await exchanged(await minted(name), { identityProvider: provider })
      expect(await listed()).toEqual([group])
    })

    test("the exchange of a provider's token joins a person again after their removal, if they signed in by the provider before", async () => {
      const [{ group, provider, token }, name] = [await withProvider(), freshName('person')]
      const uid = personUid(minting.issuer, name)
      await exchanged(await minted(name), { identityProvider: provider })
      const { roleBindings } = await spec.ok('ListRoleBindings', { identity: uid }, { token })
      await spec.ok('DeleteRoleBinding', { uid: uidOf((roleBindings as JsonObject[])[0] ?? {}) }, { token }) // a list answer
      await spec.ok('CreateRoleBinding', { parent: group, roleBinding: { identityUid: uid, roleUid: roleUid('viewer') } }, { token })
      const listed = async (bearer: string) => itemsOf(await spec.ok('ListGroups', {}, { token: bearer }), 'groups').map(uidOf)
      expect(await listed(await spec.server.tokenFor(uid))).toEqual([])
      await exchanged(await minted(name), { identityProvider: provider })
      expect(await listed(await spec.server.tokenFor(uid))).toEqual([group])
    })

    // docs/spec/identities.md#records-of-people
    test("the exchange of a provider's token updates the person's e-mail address, which is trusted from a platform issuer", async () => {
      const { provider } = await withProvider()
      const { baseUrl } = spec.server.config
      const name = freshName('person')
      const uid = personUid(minting.issuer, name)
      const read = async () => spec.ok('GetIdentity', { uid }, { token: await spec.server.operatorToken() })
      const addresses = async (): Promise<unknown[]> => {
        const { email = '', emailUnverified = '' } = await read()
        return [email, emailUnverified]
      }
      const verified = (email: string) => ({ email, email_verified: true })
      // Addresses are trusted from a platform issuer's token for the platform, not for a client of a provider.
      const known = async (more: Readonly<Record<string, unknown>>): Promise<unknown> => exchanged(await minted(name, { aud: baseUrl, ...more }), {})
      const trusted = async (more: Readonly<Record<string, unknown>>): Promise<unknown> => exchanged(await minted(name, more), { identityProvider: provider })

      await trusted(verified('first@person.example'))
      expect(await addresses()).toEqual(['', 'first@person.example'])
      await trusted(verified('second@person.example'))
      expect(await addresses()).toEqual(['', 'second@person.example'])
      const before = await read()
      await known(verified('second@person.example'))
      expect(await addresses()).toEqual(['second@person.example', ''])
      const after = await read()
      expect(after['etag']).not.toBe(before['etag'])
      expect(Date.parse(String(after['updateTime']))).toBeGreaterThan(Date.parse(String(before['updateTime'])))

      await known(verified('third@person.example'))
      expect(await addresses()).toEqual(['third@person.example', ''])
      const settled = await read()
      // A tenant's provider does not remove the address, and a token without an address changes nothing.
      await trusted(verified('mallory@person.example'))
      await trusted({ email: 'mallory@person.example' })
      await known({})
      await known(verified('third@person.example'))
      expect(await read()).toEqual(settled)
      spec.clock.advance(2 * 3_600_000)
      await known({})
      expect(await read()).toEqual({ ...settled, lastSeenTime: expect.not.stringMatching(String(settled['lastSeenTime'])) as string })
      await known({ email: 'third@person.example' })
      expect(await addresses()).toEqual(['', 'third@person.example'])
    })
  },
  { env: { TAPROOT_SELF_SERVICE_ROOT_GROUPS: 'false', TAPROOT_ISSUERS: JSON.stringify([{ issuer: minting.issuer, allowPrivate: true }]) } },
)
