import type { JWTPayload } from 'jose'
import { describe, expect, test } from 'vitest'
import { trustedUid } from '../../src/base/uid.ts'
import type { Uid } from '../../src/base/uid.ts'
import type { ProviderFacts } from '../../src/auth/oidc/trust-domain.ts'
import { decodeToken } from '../../src/auth/tokens/decoded-token.ts'
import { personUid } from '../../src/auth/oidc/issuer-name.ts'
import { failure, sign, signal } from './parts.ts'
import { baseUrl, ground, mismatch, root, uid } from './exchange-ground.ts'

describe('a person whom an identity provider brings', () => {
  const otherRoot = trustedUid('d'.repeat(40))

  /** Alice, registered, at the issuer that the configuration names; providers of two organisations name it too, each with a client of its own. */
  async function withProviders() {
    const parts = await ground()
    const { local, people, providers } = parts
    people.add(personUid(local.issuer, 'alice'))
    const provider = (at: Uid, clientId: string): ProviderFacts => ({
      uid: trustedUid(`${at}/${'e'.repeat(16)}`),
      group: at,
      issuer: local.issuer,
      clientId,
      groupsClaim: 'groups',
    })
    const [mine, theirs] = [provider(root, 'mine'), provider(otherRoot, 'theirs')]
    providers.push(mine, theirs)
    return { ...parts, mine, theirs }
  }

  test('by a token for a client of an organisation is known in that organisation alone, whichever client obtained the token', async () => {
    const { token, ask, authenticator } = await withProviders()
    const { principal, token: access } = await ask(await token({ aud: 'theirs' }))
    expect(principal.restrictions).toEqual({ trustedGroups: [otherRoot] })
    expect((await authenticator.authenticate({ authorization: access }, signal)).restrictions).toEqual({ trustedGroups: [otherRoot] })
    expect((await authenticator.authenticate({ authorization: await token({ aud: 'theirs' }) }, signal)).restrictions).toEqual({ trustedGroups: [otherRoot] })
  })

  test('by a token for the platform of an issuer that the platform knows is known everywhere', async () => {
    const { token, ask } = await withProviders()
    expect((await ask(await token())).principal.restrictions).toEqual({})
  })

  test('a person who names a provider is known in its organisation alone', async () => {
    const { token, ask, mine } = await withProviders()
    expect((await ask(await token(), { identityProvider: mine.uid })).principal.restrictions).toEqual({ trustedGroups: [root] })
  })

  test('a request that names a missing provider, or one of another client or issuer, gets the same answer in each case', async () => {
    const { token, ask, mine, theirs, providers, foreign } = await withProviders()
    const elsewhere = { ...theirs, uid: trustedUid(`${otherRoot}/${'f'.repeat(16)}`), issuer: foreign.issuer, clientId: 'mine' }
    providers.push(elsewhere)
    const refusals = [theirs.uid, elsewhere.uid, uid].map(async (identityProvider) => failure(ask(await token({ aud: 'mine' }), { identityProvider })))
    for (const refusal of await Promise.all(refusals))
      expect(refusal).toBe('7: the identity provider with this uid has another issuer or client than the token')
    for (const identityProvider of ['acme', `${mine.uid}/`]) {
      expect(await failure(ask(await token({ aud: 'mine' }), { identityProvider }))).toMatch(/^3: .*identity_provider.*must be a uid/)
    }
  })

  test('is no operator, even if another sign-in makes the person one', async () => {
    const { token, ask, people, local } = await withProviders()
    people.add(personUid(local.issuer, 'root-operator'))
    expect((await ask(await token({ sub: 'root-operator' }))).principal.operator).toBe(true)
    expect((await ask(await token({ sub: 'root-operator', aud: 'theirs' }))).principal.operator).toBe(false)
    expect(await failure(ask(await token({ sub: 'unknown', aud: 'theirs' })))).toMatch(/^7: .*register/)
  })

  test('a person who names their own uid as the identity signs in as without it: provider and directory are still asked', async () => {
    const { token, ask, authenticator, people, identities, providers, foreign } = await ground({ allowForeign: true })
    const alice = personUid(foreign.issuer, 'alice')
    people.add(alice)
    // As a person is stored.
    identities.set(alice, { kind: 'claimMatch', match: { issuer: foreign.issuer, subject: 'alice', claims: {}, claimPatterns: {} } })
    const mint = (aud = baseUrl): Promise<string> => token({ iss: foreign.issuer, aud })
    expect(await failure(ask(await mint(), { identity: alice }))).toMatch(/^7: verifying token: the issuer is unknown: /)
    providers.push({ uid: trustedUid(`${root}/${'e'.repeat(16)}`), group: root, issuer: foreign.issuer, clientId: 'mine', groupsClaim: 'groups' })
    expect((await ask(await mint(), { identity: alice })).principal.restrictions).toEqual({ trustedGroups: [root] })
    expect((await authenticator.authenticate({ authorization: await mint(), identity: alice }, signal)).restrictions).toEqual({ trustedGroups: [root] })
    // A person never counts as another one, whatever that person's record says.
    const other = personUid(foreign.issuer, 'other')
    identities.set(other, { kind: 'claimMatch', match: { issuer: foreign.issuer, subjectPattern: '.*', claims: {}, claimPatterns: {} } })
    expect(await failure(ask(await mint(), { identity: other }))).toBe(mismatch)
  })

  test('of an issuer that only organisations name is known in all that name it, and only there', async () => {
    const { token, ask, people, providers, foreign, mine, theirs } = await ground({ allowForeign: true }).then((parts) => ({
      ...parts,
      mine: { uid: trustedUid(`${root}/${'e'.repeat(16)}`), group: root, issuer: parts.foreign.issuer, clientId: 'mine', groupsClaim: 'groups' },
      theirs: { uid: trustedUid(`${otherRoot}/${'e'.repeat(16)}`), group: otherRoot, issuer: parts.foreign.issuer, clientId: 'theirs', groupsClaim: 'groups' },
    }))
    people.add(personUid(foreign.issuer, 'alice'))
    const mint = (aud: string): Promise<string> => token({ iss: foreign.issuer, aud, groups: ['dev'] })
    expect(await failure(ask(await mint(baseUrl)))).toMatch(/^7: verifying token: the issuer is unknown: /)
    providers.push(mine)
    expect((await ask(await mint(baseUrl))).principal.restrictions).toEqual({ trustedGroups: [root] })
    providers.push(theirs)
    expect((await ask(await mint(baseUrl))).principal.restrictions).toEqual({ trustedGroups: [root, otherRoot] })
    expect((await ask(await mint('theirs'))).restrictions).toEqual({ trustedGroups: [otherRoot] })
  })

  // docs/spec/identities.md#mapped-sessions
  test('roles of mapped groups are of the session that an exchange begins: the token itself as a credential has none', async () => {
    const { token, ask, authenticator, mine } = await withProviders()
    const external = await token({ aud: 'mine', groups: ['dev'] })
    expect((await ask(external, { identityProvider: mine.uid })).restrictions.roles).toEqual([{ group: root, role: uid }])
    expect((await authenticator.authenticate({ authorization: `Bearer ${external}` }, signal)).restrictions).toEqual({ trustedGroups: [root] })
  })

  test('has roles of mapped groups, of which the organisation hears, by the provider that they name and by no other', async () => {
    const { token, ask, mine, theirs, providers } = await withProviders()
    const copy = { ...theirs, clientId: 'mine' }
    providers.splice(1, 1, copy)
    const external = await token({ aud: 'mine', groups: ['dev'] })
    const nameless = await ask(external)
    expect([nameless.restrictions, nameless.principal.mapped]).toEqual([{ trustedGroups: [root, otherRoot] }, undefined])
    const named = await ask(external, { identityProvider: mine.uid })
    expect(named.principal.mapped).toEqual({ provider: mine.uid, roles: [{ group: root, role: uid, externalGroup: 'dev' }] })
  })

  describe('of an issuer, and a client, that very many organisations name', () => {
    const groupAt = (index: number): Uid => trustedUid(index.toString(16).padStart(40, '0'))
    /** As deep as groups can be. */
    const deepAt = (index: number): Uid => trustedUid(`${groupAt(index)}${`/${'c'.repeat(16)}`.repeat(11)}`)

    async function withMany(count: number, groupAtIndex = groupAt) {
      const parts = await ground({ allowForeign: true })
      const { foreign, people, providers, token } = parts
      const alice = personUid(foreign.issuer, 'alice')
      people.add(alice)
      for (let index = 0; index < count; index++) {
        const group = groupAtIndex(index)
        providers.push({ uid: trustedUid(`${group}/${'e'.repeat(16)}`), group, issuer: foreign.issuer, clientId: 'shared', groupsClaim: 'groups' })
      }
      const mint = (groups: readonly string[] = []): Promise<string> => token({ iss: foreign.issuer, aud: 'shared', groups })
      return { ...parts, alice, mint }
    }

    test('is known in those that they have something in, or below: others cannot keep them out by creating more', async () => {
      const { alice, ask, authenticator, bound, mint } = await withMany(51)
      bound.set(alice, [groupAt(7), trustedUid(`${groupAt(9)}/${'f'.repeat(16)}`), otherRoot])
      expect((await ask(await mint())).restrictions).toEqual({ trustedGroups: [groupAt(7), groupAt(9)] })
      expect((await authenticator.authenticate({ authorization: `Bearer ${await mint()}` }, signal)).restrictions).toEqual({
        trustedGroups: [groupAt(7), groupAt(9)],
      })
    })

    test('is known nowhere where they have nothing, and in all of them where those fit into a token', async () => {
      const [many, few] = [await withMany(51), await withMany(50)]
      expect((await many.ask(await many.mint())).restrictions).toEqual({ trustedGroups: [] })
      expect((await few.ask(await few.mint())).restrictions.trustedGroups).toHaveLength(50)
    })

    test('is known in those that they have something in where the others lie so deep that no token has room for them all', async () => {
      const { alice, ask, authenticator, bound, mint } = await withMany(50, deepAt)
      bound.set(alice, [deepAt(7)])
      const { token: access, restrictions } = await ask(await mint())
      expect(restrictions).toEqual({ trustedGroups: [deepAt(7)] })
      expect((await authenticator.authenticate({ authorization: access }, signal)).restrictions).toEqual({ trustedGroups: [deepAt(7)] })
    })

    test('a person with records at too many providers is asked to name one; a named one works', async () => {
      const { alice, ask, bound, mint, providers, signIn, foreign, claims, key } = await withMany(51)
      const [first] = providers
      const named = { identityProvider: first?.uid ?? '' }
      expect((await ask(await mint(['dev']), named)).restrictions).toEqual({ trustedGroups: [groupAt(0)], roles: [{ group: groupAt(0), role: uid }] })
      bound.set(
        alice,
        providers.map(({ group }) => group),
      )
      expect(await failure(ask(await mint()))).toMatch(/^9: .*set `identity_provider`/)
      expect((await ask(await mint(), named)).restrictions).toEqual({ trustedGroups: [groupAt(0)] })
      // Who registers can't name one.
      const registering = decodeToken(await sign(key, claims({ iss: foreign.issuer, aud: 'shared' })))
      expect((await signIn.verifyPerson(registering, {}, signal)).via).toHaveLength(51)
      expect((await signIn.verifyPerson(registering, named, signal)).via).toHaveLength(1)
    })
  })

  test.each<[string, JWTPayload, boolean]>([
    ['a list of groups', { groups: ['ops', 'dev'] }, true],
    ['one group as text', { groups: 'dev' }, true],
    ['other groups', { groups: ['ops'] }, false],
    ['no such claim', {}, false],
    ['what is no text', { groups: [{ dev: true }, 7] }, false],
  ])('has the roles that the groups of the token are mapped to: %s', async (_name, more, isMapped) => {
    const { token, ask, authenticator, mine } = await withProviders()
    const { token: access } = await ask(await token({ aud: 'mine', ...more }), { identityProvider: mine.uid })
    const { restrictions } = await authenticator.authenticate({ authorization: access }, signal)
    expect(restrictions.roles).toEqual(isMapped ? [{ group: root, role: uid }] : undefined)
  })
})
