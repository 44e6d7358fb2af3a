import { decodeJwt } from 'jose'
import type { JWTPayload } from 'jose'
import { describe, expect, test } from 'vitest'
import { equals, setOf } from '../../src/base/capability.ts'
import { trustedUid } from '../../src/base/uid.ts'
import type { ExchangeInput } from '../../src/iam/signin/exchange.ts'
import type { Relationship } from '../../src/auth/oidc/external-sign-in.ts'
import { personUid } from '../../src/auth/oidc/issuer-name.ts'
import { failure, sign, signal, testKey } from './parts.ts'

import { baseUrl, ground, mismatch, registry, root, uid } from './exchange-ground.ts'

describe('an exchange that names an identity', () => {
  test('an exchange returns a token that the platform accepts as that identity', async () => {
    const { token, ask, authenticator, local, clock } = await ground()
    const answer = await ask(await token({ email: 'a@b.c', email_verified: true }), { identity: uid })
    expect(decodeJwt(answer.token)).toMatchObject({ iss: baseUrl, sub: uid, aud: baseUrl, email: 'a@b.c' })
    expect(answer.expiryMs).toBe(Math.floor(clock.now() / 1000) * 1000 + 3_600_000)
    const caller = await authenticator.authenticate({ authorization: `Bearer ${answer.token}` }, signal)
    expect(caller).toMatchObject({
      identityUid: uid,
      operator: false,
      act: { issuer: local.issuer, subject: 'alice', audience: baseUrl, email: 'a@b.c', emailVerified: true },
      restrictions: {},
    })
  })

  test('an exchange does not return an unverified e-mail address', async () => {
    const { token, ask } = await ground()
    expect(decodeJwt((await ask(await token({ email: 'a@b.c' }), { identity: uid })).token)).not.toHaveProperty('email')
  })

  test('an exchange marks an e-mail address as verified only if the configuration trusts the issuer', async () => {
    const { token, ask, foreign, local, identities, authenticator, claims } = await ground({ allowForeign: true })
    const address = { email: 'ceo@victim.example', email_verified: true }
    const said = async (text: string): Promise<unknown[]> => {
      const claimed = decodeJwt((await ask(text, { identity: uid })).token)
      const { act } = await authenticator.authenticate({ authorization: `Bearer ${text}`, identity: uid }, signal)
      return [claimed['email'], claimed['email_verified'], act.emailVerified]
    }
    expect(await said(await token(address))).toEqual(['ceo@victim.example', true, true])
    identities.set(uid, { kind: 'claimMatch', match: { issuer: foreign.issuer, subject: 'alice' } })
    expect(await said(await token({ ...address, iss: foreign.issuer }))).toEqual(['ceo@victim.example', undefined, undefined])
    // A tenant's own keys under the name of a trusted issuer.
    const own = await testKey('ES256')
    const keys = { issuer: local.issuer, subject: 'alice', issuerKeys: JSON.stringify({ keys: [own.jwk] }), audiences: [] }
    identities.set(uid, { kind: 'staticKeys', keys })
    expect(await said(await sign(own, claims(address)))).toEqual(['ceo@victim.example', undefined, undefined])
  })

  test('an exchange returns the same error for every mismatch and for unknown identities', async () => {
    const { token, ask, foreign, identities } = await ground()
    const other = trustedUid(`${root}/${'c'.repeat(16)}`)
    for (const identity of [other, 'nonsense', root]) expect(await failure(ask(await token(), { identity }))).toBe(mismatch)
    for (const changes of [{ sub: 'bob' }, { aud: 'other' }, { aud: [] }, { iss: foreign.issuer }]) {
      expect(await failure(ask(await token(changes), { identity: uid }))).toBe(mismatch)
    }
    for (const kind of ['none', 'servicePrincipal'] as const) {
      identities.set(other, { kind })
      expect(await failure(ask(await token(), { identity: other }))).toBe(mismatch)
    }
    identities.set(other, { kind: 'aws', match: { account: '123456789012', arnPattern: '.*', userIdPattern: '.*' } })
    expect(await failure(ask(await token(), { identity: other }))).toBe(mismatch)
    expect(foreign.seen).toEqual([])
  })

  test.each<[string, (seconds: number) => JWTPayload, RegExp]>([
    ['expired', (now) => ({ exp: now - 61 }), /^7: verifying token: the token has expired$/],
    ['not valid yet', (now) => ({ nbf: now + 61 }), /^7: verifying token: the token is not valid yet$/],
  ])('an exchange refuses a token that is %s', async (_name, changes, expected) => {
    const { token, ask, seconds } = await ground()
    expect(await failure(ask(await token(changes(seconds)), { identity: uid }))).toMatch(expected)
  })

  test('an exchange refuses a bad signature', async () => {
    const { ask, claims, key } = await ground()
    expect(await failure(ask(await sign(await testKey('ES256', key.kid), claims()), { identity: uid }))).toMatch(/^7: verifying token: /)
  })

  describe('returns the same error', () => {
    const unknown = trustedUid(`${root}/${'d'.repeat(16)}`)
    const differs = trustedUid(`${root}/${'e'.repeat(16)}`)

    /** Returns the answers at the exchange and as a direct call: for an identity that trusts the issuer, one that trusts another, and none. */
    async function answers(parts: Awaited<ReturnType<typeof ground>>, token: string): Promise<string[]> {
      parts.identities.set(differs, { kind: 'claimMatch', match: { issuer: 'https://other.example', subject: 'alice' } })
      const both = [uid, differs, unknown].flatMap((identity) => [
        parts.ask(token, { identity }),
        parts.authenticator.authenticate({ authorization: `Bearer ${token}`, identity }, signal),
      ])
      return await Promise.all(both.map(failure))
    }

    test.each(['named', 'static'] as const)(
      'an exchange returns the same error to forged tokens of an issuer that only tenants know (%s keys)',
      async (kind) => {
        const parts = await ground({ allowForeign: true })
        const { key, foreign, identities, claims } = parts
        const issuer = foreign.issuer
        const keys = { issuer, subject: 'alice', issuerKeys: JSON.stringify({ keys: [key.jwk] }), audiences: [] }
        identities.set(uid, kind === 'named' ? { kind: 'claimMatch', match: { issuer, subject: 'alice' } } : { kind: 'staticKeys', keys })
        expect(await failure(parts.ask(await sign(key, claims({ iss: issuer })), { identity: uid }))).toBe('no failure')
        for (const forger of [await testKey('ES256', key.kid), await testKey('ES256', 'other'), await testKey('RS256', key.kid)]) {
          expect(new Set(await answers(parts, await sign(forger, claims({ iss: issuer }))))).toEqual(new Set([mismatch]))
        }
      },
    )

    test('an exchange returns the same error to tokens of an issuer whose keys are of no use', async () => {
      const parts = await ground({ allowForeign: true })
      parts.foreign.behave = (_request, response) => response.end('nonsense') !== undefined
      parts.identities.set(uid, { kind: 'claimMatch', match: { issuer: parts.foreign.issuer, subject: 'alice' } })
      expect(new Set(await answers(parts, await parts.token({ iss: parts.foreign.issuer })))).toEqual(new Set([mismatch]))
    })

    test('an exchange returns the same error to forged tokens of a configured issuer: the token is at fault', async () => {
      const parts = await ground()
      const forged = await sign(await testKey('ES256', parts.key.kid), parts.claims())
      const said = 'verifying token: the signature is not valid'
      expect(await answers(parts, forged)).toEqual([`7: ${said}`, `16: ${said}`, `7: ${said}`, `16: ${said}`, `7: ${said}`, `16: ${said}`])
      const keys = { issuer: parts.local.issuer, subject: 'alice', issuerKeys: JSON.stringify({ keys: [(await testKey()).jwk] }), audiences: [] }
      parts.identities.set(uid, { kind: 'staticKeys', keys })
      expect(new Set(await answers(parts, forged))).toEqual(new Set([`7: ${said}`, `16: ${said}`]))
      expect((await answers(parts, await parts.token())).slice(0, 2)).toEqual([mismatch, mismatch])
    })

    test.each([{ exp: -61 }, { nbf: 61 }])('an exchange returns the same error to tokens that are expired or not yet valid (%j)', async (offsets) => {
      const parts = await ground()
      const times = Object.fromEntries(Object.entries(offsets).map(([name, offset]) => [name, parts.seconds + offset]))
      for (const iss of [parts.local.issuer, parts.foreign.issuer]) {
        const [exchanged, direct, ...others] = await answers(parts, await parts.token({ iss, ...times }))
        expect(exchanged).toMatch(/^7: verifying token: /)
        expect(others).toEqual([exchanged, direct, exchanged, direct])
      }
    })
  })

  test('an exchange contacts an issuer matched by a pattern only if the configuration names that issuer', async () => {
    const { token, ask, identities, foreign } = await ground()
    identities.set(uid, { kind: 'claimMatch', match: { issuerPattern: '.*', subjectPattern: '.*' } })
    expect(await failure(ask(await token({ iss: foreign.issuer }), { identity: uid }))).toBe(mismatch)
    expect(foreign.seen).toEqual([])
    await ask(await token(), { identity: uid })
  })

  test('an exchange returns a retryable error only if the issuer is down', async () => {
    const { token, ask, local } = await ground({ timeoutMs: 300 })
    local.behave = () => true
    expect(await failure(ask(await token(), { identity: uid }))).toMatch(/^14: verifying token: /)
  })

  test("an exchange never accepts Taproot's own token as the source token", async () => {
    const { token, ask, identities, key, claims } = await ground()
    const ours = (await ask(await token(), { identity: uid })).token
    identities.set(uid, { kind: 'claimMatch', match: { issuer: baseUrl, subject: uid } })
    expect(await failure(ask(ours, { identity: uid }))).toMatch(/^7: verifying token: /)
    identities.set(uid, {
      kind: 'staticKeys',
      keys: { issuer: `${baseUrl}/`, subject: 'alice', issuerKeys: JSON.stringify({ keys: [key.jwk] }), audiences: [] },
    })
    expect(await failure(ask(await sign(key, claims({ iss: `${baseUrl}/` })), { identity: uid }))).toMatch(/^7: verifying token: /)
  })
})

describe('an identity with static keys', () => {
  const issuer = 'https://unreachable.internal'

  async function withKeys() {
    const parts = await ground()
    const [mine, theirs] = [await testKey('ES256', 'k'), await testKey('ES256', 'k')]
    const other = trustedUid(`${root}/${'c'.repeat(16)}`)
    const relationship = (key: typeof mine, more = {}): Relationship => ({
      kind: 'staticKeys',
      keys: { issuer, subject: 'alice', issuerKeys: JSON.stringify({ keys: [key.jwk] }), audiences: [], ...more },
    })
    parts.identities.set(uid, relationship(mine))
    parts.identities.set(other, relationship(theirs))
    return { ...parts, mine, theirs, other, relationship }
  }

  test('an identity with static keys accepts its own keys and never those of another identity that names the same issuer and subject', async () => {
    const { mine, theirs, other, claims, ask } = await withKeys()
    const [byMine, byTheirs] = [await sign(mine, claims({ iss: issuer })), await sign(theirs, claims({ iss: issuer }))]
    for (const _round of [1, 2]) {
      expect(await failure(ask(byMine, { identity: uid }))).toBe('no failure')
      expect(await failure(ask(byMine, { identity: other }))).toBe(mismatch)
      expect(await failure(ask(byTheirs, { identity: other }))).toBe('no failure')
      expect(await failure(ask(byTheirs, { identity: uid }))).toBe(mismatch)
    }
  })

  test('an identity with static keys is refused after its expiration time', async () => {
    const { mine, claims, ask, identities, relationship, clock } = await withKeys()
    identities.set(uid, relationship(mine, { expirationTimeMs: clock.now() + 1000 }))
    const token = await sign(mine, claims({ iss: issuer }))
    expect(await failure(ask(token, { identity: uid }))).toBe('no failure')
    clock.advance(1000)
    expect(await failure(ask(token, { identity: uid }))).toBe(mismatch)
  })

  test('an identity with static keys with its own audience accepts only that audience', async () => {
    const { mine, claims, ask, identities, relationship } = await withKeys()
    identities.set(uid, relationship(mine, { audiences: ['mine'] }))
    expect(await failure(ask(await sign(mine, claims({ iss: issuer })), { identity: uid }))).toBe(mismatch)
    expect(await failure(ask(await sign(mine, claims({ iss: issuer, aud: 'mine' })), { identity: uid }))).toBe('no failure')
  })

  test("an identity with static keys gets no operator rights from static keys that claim the operator's issuer and subject", async () => {
    const { mine, claims, ask, identities, relationship, local, authenticator } = await withKeys()
    identities.set(uid, relationship(mine, { issuer: local.issuer, subject: 'root-operator' }))
    const forged = await sign(mine, claims({ sub: 'root-operator' }))
    const { token } = await ask(forged, { identity: uid })
    expect(await authenticator.authenticate({ authorization: token }, signal)).toMatchObject({ identityUid: uid, operator: false })
    expect(await authenticator.authenticate({ authorization: forged, identity: uid }, signal)).toMatchObject({ identityUid: uid, operator: false })
    expect(await failure(ask(forged))).toMatch(/^7: verifying token: /)
  })
})

describe('an exchange without an identity', () => {
  test('an exchange without an identity is allowed for operators', async () => {
    const { token, ask, authenticator, local, operators } = await ground()
    const answer = await ask(await token({ sub: 'root-operator' }))
    expect(answer.principal).toMatchObject({ identityUid: personUid(local.issuer, 'root-operator'), operator: true })
    expect(await authenticator.authenticate({ authorization: answer.token }, signal)).toMatchObject({ operator: true })
    operators.length = 0
    expect(await authenticator.authenticate({ authorization: answer.token }, signal)).toMatchObject({ operator: false })
  })

  test('an exchange without an identity is allowed for registered people; others get an error that asks them to register', async () => {
    const { token, ask, people, local } = await ground()
    expect(await failure(ask(await token()))).toMatch(/^7: .*register/)
    people.add(personUid(local.issuer, 'alice'))
    expect((await ask(await token())).principal).toMatchObject({ identityUid: personUid(local.issuer, 'alice'), operator: false })
  })

  test('an exchange without an identity needs the platform as audience and a known issuer', async () => {
    const { token, ask, foreign } = await ground()
    expect(await failure(ask(await token({ sub: 'root-operator', aud: 'https://other.example' })))).toBe('7: the token is for another audience')
    const unknown = await failure(ask(await token({ iss: foreign.issuer })))
    expect(unknown).toContain(`7: verifying token: the issuer is unknown: "${foreign.issuer}"; `)
    expect(unknown).toContain('`kubernetes.issuer`')
    const long = `https://issuer.example/${'a'.repeat(2000)}\n`
    expect((await failure(ask(await token({ iss: long })))).length).toBeLessThan(500)
    expect(foreign.seen).toEqual([])
  })
})

describe('requirements for the token', () => {
  test('a token request may ask for configured audiences, and the token contains them as the request spelled them', async () => {
    const { token, ask } = await ground()
    const aud = async (asked: string[]): Promise<unknown> => decodeJwt((await ask(await token(), { identity: uid, aud: asked })).token).aud
    expect(await aud([])).toBe(baseUrl)
    expect(await aud([''])).toBe(baseUrl)
    expect(await aud([`${baseUrl}/`])).toBe(`${baseUrl}/`)
    expect(await aud([registry, baseUrl, registry])).toEqual([registry, baseUrl])
    expect(await failure(aud([baseUrl, 'https://other.example']))).toMatch(/^3: Invalid argument: aud: /)
    expect(await failure(aud(['customer']))).toMatch(/^3: /)
  })

  test('a token request may narrow the token by scopes and capabilities', async () => {
    const { token, ask, authenticator } = await ground()
    const answer = await ask(await token(), { identity: uid, scopes: [root, root], cap: ['groups.list', 'repo.list'] })
    const { restrictions } = await authenticator.authenticate({ authorization: answer.token }, signal)
    expect(restrictions.scopes).toEqual([root])
    expect(restrictions.capabilities !== undefined && equals(restrictions.capabilities, setOf(['groups.list', 'repo.list']))).toBe(true)
  })

  test.each<[string, Partial<ExchangeInput>, RegExp]>([
    ['a scope that is not a uid', { scopes: ['acme'] }, /^3: Invalid argument: scopes: /],
    ['too many scopes', { scopes: Array.from({ length: 51 }, (_value, index) => index.toString(16).padStart(40, '0')) }, /^3: Invalid argument: scopes: /],
    ['an unknown capability', { cap: ['groups.list', 'groups.fly'] }, /^3: Invalid argument: cap: /],
  ])('%s is refused', async (_name, input, expected) => {
    const { token, ask } = await ground()
    expect(await failure(ask(await token(), { identity: uid, ...input }))).toMatch(expected)
  })

  test.each([undefined, '', 'Bearer', 'Bearer ', 'Bearer nonsense', 'Digest x', 'Basic ?', `Basic ${btoa('alice:x')}`])(
    'a call without a readable bearer token (%j) is code 16',
    async (authorization) => {
      const { exchange } = await ground()
      expect(await failure(exchange({ authorization, identity: uid, aud: [], scopes: [], cap: [] }, signal))).toMatch(/^16: /)
    },
  )
})

describe('a call with a bearer token', () => {
  test.each<[string, (token: string) => { authorization: string; identity?: string }]>([
    ['bearer and taproot-identity', (token) => ({ authorization: `Bearer ${token}`, identity: uid })],
    ['a bare token and taproot-identity', (token) => ({ authorization: ` ${token}\n`, identity: uid })],
    ['Basic with the uid as user', (token) => ({ authorization: `Basic ${btoa(`${uid}:${token}`)}` })],
    ['Basic and the same identity', (token) => ({ authorization: `basic ${btoa(`${uid}:${token}`)}`, identity: uid })],
  ])('that is an external token: %s', async (_name, input) => {
    const { token, authenticator, seconds } = await ground()
    expect(await authenticator.authenticate(input(await token()), signal)).toMatchObject({
      identityUid: uid,
      operator: false,
      restrictions: {},
      issuedAtMs: seconds * 1000,
      expiresAtMs: (seconds + 300) * 1000,
    })
  })

  test.each<[string, (token: string) => string]>([
    ['Bearer', (token) => `Bearer ${token}`],
    ['bearer in lower case', (token) => `bearer  ${token}`],
    ['without a scheme', (token) => token],
    ['Basic with the user _token', (token) => `Basic ${btoa(`_token:${token}`)}`],
  ])('that is an access token: %s', async (_name, authorization) => {
    const { token, ask, authenticator } = await ground()
    const access = (await ask(await token(), { identity: uid })).token
    expect(await authenticator.authenticate({ authorization: authorization(access) }, signal)).toMatchObject({ identityUid: uid })
  })

  test('a call with a bearer token is code 16 if the token is invalid, and code 7 if the valid token lacks the right', async () => {
    const { token, ask, authenticator, seconds, claims } = await ground()
    const call = async (authorization: string | undefined, identity?: string) =>
      failure(authenticator.authenticate({ authorization, ...(identity === undefined ? {} : { identity }) }, signal))
    expect(await call(undefined)).toMatch(/^16: /)
    expect(await call('Bearer x')).toMatch(/^16: /)
    expect(await call(`Bearer ${await token({ exp: seconds - 61 })}`, uid)).toMatch(/^16: /)
    expect(await call(`Bearer ${await sign(await testKey(), claims({ iss: baseUrl }))}`)).toMatch(/^16: /)
    expect(await call(`Bearer ${await token({ sub: 'bob' })}`, uid)).toBe(mismatch)
    expect(await call(`Bearer ${await token()}`)).toMatch(/^7: .*register/)
    expect(await call(`Bearer ${(await ask(await token(), { identity: uid, aud: [registry] })).token}`)).toBe('7: the token is for another audience')
    expect(await call(`Basic ${btoa(`${uid}:${await token()}`)}`, root)).toMatch(/^3: /)
    const access = (await ask(await token(), { identity: uid })).token
    expect(await call(`Basic ${btoa(`${uid}:${access}`)}`)).toMatch(/^16: /)
  })
})
