import type { JWTPayload } from 'jose'
import { describe, expect, test } from 'vitest'
import { trustedUid } from '../../src/base/uid.ts'
import type { Uid } from '../../src/base/uid.ts'
import type { ProviderFacts } from '../../src/auth/oidc/trust-domain.ts'
import { decodeToken } from '../../src/auth/access-tokens/decoded-token.ts'
import { personUid } from '../../src/auth/oidc/issuer-name.ts'
import { failure, sign, signal } from './parts.ts'
import { baseUrl, ground, mismatch, root, uid } from './exchange-ground.ts'

describe('a person who signs in through an identity provider', () => {
  const otherRoot = trustedUid('d'.repeat(40))

  /** Alice, registered at the configured issuer. Providers of two organisations name the same issuer, each with its own client. */
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

  test("a person with a token for an organisation's client has access to that organisation alone, whichever client obtained the token", async () => {
    const { token, ask, authenticator } = await withProviders()
    const { principal, token: access } = await ask(await token({ aud: 'theirs' }))
    expect(principal.restrictions).toEqual({ trustedGroups: [otherRoot] })
    expect((await authenticator.authenticate({ authorization: access }, signal)).restrictions).toEqual({ trustedGroups: [otherRoot] })
    expect((await authenticator.authenticate({ authorization: await token({ aud: 'theirs' }) }, signal)).restrictions).toEqual({ trustedGroups: [otherRoot] })
  })

  test('a person with a token for the platform, of an issuer that the platform trusts, has access everywhere', async () => {
    const { token, ask } = await withProviders()
    expect((await ask(await token())).principal.restrictions).toEqual({})
  })

  test('a person who signs in and names a provider has access to its organisation alone', async () => {
    const { token, ask, mine } = await withProviders()
    expect((await ask(await token(), { identityProvider: mine.uid })).principal.restrictions).toEqual({ trustedGroups: [root] })
  })

  test('a person who signs in gets the same answer for a missing provider, another client and another issuer', async () => {
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

  test('a person who signs in by a provider is not an operator, even if another sign-in makes the person one', async () => {
    const { token, ask, people, local } = await withProviders()
    people.add(personUid(local.issuer, 'root-operator'))
    expect((await ask(await token({ sub: 'root-operator' }))).principal.operator).toBe(true)
    expect((await ask(await token({ sub: 'root-operator', aud: 'theirs' }))).principal.operator).toBe(false)
    expect(await failure(ask(await token({ sub: 'unknown', aud: 'theirs' })))).toMatch(/^7: .*register/)
  })

  test('a person who names their own uid as the identity is still checked against provider and directory', async () => {
    const { token, ask, authenticator, people, identities, providers, foreign } = await ground({ allowForeign: true })
    const alice = personUid(foreign.issuer, 'alice')
    people.add(alice)
    // The record of a person.
    identities.set(alice, { kind: 'claimMatch', match: { issuer: foreign.issuer, subject: 'alice', claims: {}, claimPatterns: {} } })
    const mint = (aud = baseUrl): Promise<string> => token({ iss: foreign.issuer, aud })
    expect(await failure(ask(await mint(), { identity: alice }))).toMatch(/^7: verifying token: the issuer is unknown: /)
    providers.push({ uid: trustedUid(`${root}/${'e'.repeat(16)}`), group: root, issuer: foreign.issuer, clientId: 'mine', groupsClaim: 'groups' })
    expect((await ask(await mint(), { identity: alice })).principal.restrictions).toEqual({ trustedGroups: [root] })
    expect((await authenticator.authenticate({ authorization: await mint(), identity: alice }, signal)).restrictions).toEqual({ trustedGroups: [root] })
    // A token of one person never signs in another, whatever the other's record contains.
    const other = personUid(foreign.issuer, 'other')
    identities.set(other, { kind: 'claimMatch', match: { issuer: foreign.issuer, subjectPattern: '.*', claims: {}, claimPatterns: {} } })
    expect(await failure(ask(await mint(), { identity: other }))).toBe(mismatch)
  })

  test('a person of an issuer that only organisations name has access to all of these organisations, and no others', async () => {
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
  test("mapped groups give roles only in the session of an exchange, not to the provider's token as a credential", async () => {
    const { token, ask, authenticator, mine } = await withProviders()
    const external = await token({ aud: 'mine', groups: ['dev'] })
    expect((await ask(external, { identityProvider: mine.uid })).restrictions.roles).toEqual([{ group: root, role: uid }])
    expect((await authenticator.authenticate({ authorization: `Bearer ${external}` }, signal)).restrictions).toEqual({ trustedGroups: [root] })
  })

  test('mapped groups give roles, with an event in the organisation, only through the provider that the person names', async () => {
    const { token, ask, mine, theirs, providers } = await withProviders()
    const copy = { ...theirs, clientId: 'mine' }
    providers.splice(1, 1, copy)
    const external = await token({ aud: 'mine', groups: ['dev'] })
    const nameless = await ask(external)
    expect([nameless.restrictions, nameless.principal.mapped]).toEqual([{ trustedGroups: [root, otherRoot] }, undefined])
    const named = await ask(external, { identityProvider: mine.uid })
    expect(named.principal.mapped).toEqual({ provider: mine.uid, roles: [{ group: root, role: uid, externalGroup: 'dev' }] })
  })

  describe('whose issuer and client very many organisations name', () => {
    const groupAt = (index: number): Uid => trustedUid(index.toString(16).padStart(40, '0'))
    /** A group at the maximum depth. */
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

    test('a person has access to organisations where they have a binding; others can not displace these by creating more', async () => {
      const { alice, ask, authenticator, bound, mint } = await withMany(51)
      bound.set(alice, [groupAt(7), trustedUid(`${groupAt(9)}/${'f'.repeat(16)}`), otherRoot])
      expect((await ask(await mint())).restrictions).toEqual({ trustedGroups: [groupAt(7), groupAt(9)] })
      expect((await authenticator.authenticate({ authorization: `Bearer ${await mint()}` }, signal)).restrictions).toEqual({
        trustedGroups: [groupAt(7), groupAt(9)],
      })
    })

    test('a person without bindings has access to no organisation of their issuer, and to all if all fit into a token', async () => {
      const [many, few] = [await withMany(51), await withMany(50)]
      expect((await many.ask(await many.mint())).restrictions).toEqual({ trustedGroups: [] })
      expect((await few.ask(await few.mint())).restrictions.trustedGroups).toHaveLength(50)
    })

    test('a person has access to organisations where they have a binding if the others are too deep for a token', async () => {
      const { alice, ask, authenticator, bound, mint } = await withMany(50, deepAt)
      bound.set(alice, [deepAt(7)])
      const { token: access, restrictions } = await ask(await mint())
      expect(restrictions).toEqual({ trustedGroups: [deepAt(7)] })
      expect((await authenticator.authenticate({ authorization: access }, signal)).restrictions).toEqual({ trustedGroups: [deepAt(7)] })
    })

    test('a person with records at too many providers must name one, and a named one works', async () => {
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
      // A person who registers can't name a provider.
      const registering = decodeToken(await sign(key, claims({ iss: foreign.issuer, aud: 'shared' })))
      expect((await signIn.verifyPerson(registering, {}, signal)).via).toHaveLength(51)
      expect((await signIn.verifyPerson(registering, named, signal)).via).toHaveLength(1)
    })
  })

  test.each<[string, JWTPayload, boolean]>([
    ['a list of groups', { groups: ['ops', 'dev'] }, true],
    ['one group as a string', { groups: 'dev' }, true],
    ['groups without a mapping', { groups: ['ops'] }, false],
    ['no groups claim', {}, false],
    ['values that are not strings', { groups: [{ dev: true }, 7] }, false],
  ])('a person has the roles that are mapped to the groups of the token: %s', async (_name, more, isMapped) => {
    const { token, ask, authenticator, mine } = await withProviders()
    const { token: access } = await ask(await token({ aud: 'mine', ...more }), { identityProvider: mine.uid })
    const { restrictions } = await authenticator.authenticate({ authorization: access }, signal)
    expect(restrictions.roles).toEqual(isMapped ? [{ group: root, role: uid }] : undefined)
  })
})
