import { randomBytes } from 'node:crypto'
import { createLocalJWKSet, decodeJwt, jwtVerify, SignJWT } from 'jose'
import { describe, expect, test } from 'vitest'
import { equals, setOf } from '../../src/base/capability.ts'
import { trustedUid } from '../../src/base/uid.ts'
import { decodeToken } from '../../src/auth/access-tokens/decoded-token.ts'
import { actorClaims } from '../../src/auth/access-tokens/principal.ts'
import { jwksDocument } from '../../src/auth/oidc/discovery-document.ts'
import { createPlatformTokens } from '../../src/auth/access-tokens/platform-token.ts'
import type { AccessGrant } from '../../src/auth/access-tokens/platform-token.ts'
import { profileIn } from '../../src/auth/access-tokens/principal.ts'
import { createKeyring } from '../../src/auth/keys/sealing.ts'
import { createSignatureChecks } from '../../src/auth/access-tokens/signature-checks.ts'
import { createSigningKeys, signingKeySchedule } from '../../src/auth/keys/signing-keys.ts'
import { failure, freshStore, random, signal, testClock, testKey, sign } from './parts.ts'

const issuer = 'http://localhost:8080'
const accept = { use: 'access', audiences: [issuer, `${issuer}/`] } as const
const group = trustedUid('a'.repeat(40))
const identityUid = trustedUid(`${group}/${'b'.repeat(16)}`)
const act = { issuer: 'https://token.example', subject: 'alice', audience: issuer }
const grant: AccessGrant = { identityUid, audiences: [issuer], act, restrictions: {} }

async function ground() {
  const store = await freshStore()
  const keyring = await createKeyring({ store, keyEncryptionKey: randomBytes(32), random }, signal)
  const clock = testClock(Date.UTC(2026, 0, 15, 12, 0, 0, 700))
  const keys = await createSigningKeys({ store, keyring, clock }, signal)
  let checked = 0
  const checks = createSignatureChecks({ clock, onCheck: () => (checked += 1) })
  const made = createPlatformTokens({ issuer, keys, checks, clock, random })
  const verify = async (text: string) => made.verify(decodeToken(text), accept, signal)
  return { clock, keys, tokens: { mint: made.mint, check: made.check, verify }, checkCount: () => checked }
}

describe('an access token', () => {
  test('an access token is valid at every endpoint or at none: output-only fields are removed first', async () => {
    const { tokens } = await ground()
    const long = (index: number, count: number) => trustedUid(`${index.toString(16).padStart(40, '0')}${`/${'c'.repeat(16)}`.repeat(count)}`)
    const uids = (count: number) => Array.from({ length: count }, (_, index) => long(index, 11))
    const held = new Map(Array.from({ length: 50 }, (_, index) => [long(index, 0), setOf(['groups.list'])]))
    const small = { scopes: uids(10) }
    expect(decodeJwt((await tokens.mint({ ...grant, restrictions: small, held })).token)).toHaveProperty('cap')
    const large = { scopes: uids(17), trustedGroups: uids(17) }
    const { token } = await tokens.mint({ ...grant, restrictions: large, held })
    expect((await tokens.verify(token)).restrictions).toEqual(large)
    expect(decodeJwt(token)).not.toHaveProperty('cap')
    for (const count of [18, 22, 24, 25, 26, 30]) {
      const tooLarge = { scopes: uids(count), trustedGroups: uids(count) }
      const minted = await tokens.mint({ ...grant, restrictions: tooLarge }).then(
        async ({ token: text }) => (await tokens.verify(text)).restrictions,
        ({ code, reason }: { code: number; reason: string }) => [code, reason],
      )
      expect([tooLarge, [9, 'TOKEN_TOO_LARGE']]).toContainEqual(minted)
    }
    const roles = uids(50).map((group) => ({ group, role: group }))
    await expect(tokens.mint({ ...grant, restrictions: { roles } })).rejects.toMatchObject({ code: 9, reason: 'TOKEN_TOO_LARGE' })
    expect(() => tokens.check({ ...grant, restrictions: { roles } })).toThrow(expect.objectContaining({ code: 9 }) as Error)
  })

  test('an access token has the claims that clients read', async () => {
    const { tokens, keys, clock } = await ground()
    const { token, expiresAtMs } = await tokens.mint({
      ...grant,
      act: { ...act, email: 'a@b.c', emailVerified: true },
      held: new Map([[group, setOf(['groups.list'])]]),
    })
    const { payload, protectedHeader } = await jwtVerify(token, createLocalJWKSet({ keys: [...jwksDocument(keys.keySet()).keys] }), {
      currentDate: new Date(clock.now()),
    })
    expect(protectedHeader).toEqual({ alg: 'RS256', kid: keys.current().kid, typ: 'JWT' })
    const seconds = Math.floor(clock.now() / 1000)
    expect(payload).toMatchObject({
      iss: issuer,
      sub: identityUid,
      aud: issuer,
      iat: seconds,
      exp: seconds + 3600,
      use: 'access',
      act: { aud: issuer, iss: 'https://token.example', sub: 'alice' },
      cap: { [group]: 'AAAAAAAAADIAAAAAAAAACA==' },
      email: 'a@b.c',
      email_verified: true,
    })
    expect(payload.jti).toMatch(/^[0-9a-f]{32}$/)
    expect(payload).not.toHaveProperty('scp')
    expect(payload).not.toHaveProperty('cpn')
    expect(expiresAtMs).toBe((seconds + 3600) * 1000)
  })

  test("an access token contains the issuer's description of a person if it is short, and returns it when verified", async () => {
    const { tokens } = await ground()
    const profile = { name: 'Alice B.', picture: 'https://pictures.example/alice', given_name: 'Alice', family_name: 'B.' }
    const { token } = await tokens.mint({ ...grant, act: { ...act, email: 'a@b.c', profile } })
    expect(decodeJwt(token)['upstream']).toEqual({ email: 'a@b.c', ...profile })
    expect((await tokens.verify(token)).act).toEqual({ ...act, email: 'a@b.c', profile })
    expect(profileIn({ name: 'n'.repeat(257), picture: 7, given_name: '', email: 'a@b.c' })).toEqual({})
    const plain = await tokens.mint(grant)
    expect(decodeJwt(plain.token)).not.toHaveProperty('upstream')
    expect((await tokens.verify(plain.token)).act).toEqual(act)
  })

  // docs/spec/events.md#actors
  test('an access token names the AWS account of its caller, and events show account and ARN', async () => {
    const { tokens } = await ground()
    const aws = { ...act, subject: 'arn:aws:iam::123456789012:user/Alice', awsAccount: '123456789012' }
    const { token } = await tokens.mint({ ...grant, act: aws })
    expect(decodeJwt(token)['act']).toEqual({ aud: issuer, iss: act.issuer, sub: aws.subject, 'aws-acct': '123456789012' })
    const read = (await tokens.verify(token)).act
    expect(read).toEqual(aws)
    const claims = { iss: act.issuer, sub: aws.subject, aud: issuer }
    expect(actorClaims(read)).toEqual({ ...claims, 'aws-acct': '123456789012', 'aws-arn': aws.subject })
    expect(actorClaims({ ...act, email: 'a@b.c' })).toEqual({ iss: act.issuer, sub: act.subject, aud: issuer, email: 'a@b.c' })
  })

  test('an access token has the requested claims and no others', async () => {
    const { tokens, clock } = await ground()
    const restrictions = { scopes: [group], capabilities: setOf(['groups.list', 'identity.list']) }
    const { token } = await tokens.mint({ ...grant, audiences: [issuer, 'registry.example'], restrictions })
    const claims = await tokens.verify(token)
    expect(claims).toMatchObject({ identityUid, audiences: [issuer, 'registry.example'], act, issuedAtMs: clock.now() })
    expect(claims.restrictions.scopes).toEqual([group])
    expect(claims.restrictions.capabilities !== undefined && equals(claims.restrictions.capabilities, restrictions.capabilities)).toBe(true)
    expect((await tokens.verify((await tokens.mint(grant)).token)).restrictions).toEqual({})
  })

  test('an access token that was narrowed to no capability grants none', async () => {
    const { tokens } = await ground()
    const { token } = await tokens.mint({ ...grant, restrictions: { capabilities: setOf([]) } })
    expect((await tokens.verify(token)).restrictions.capabilities).toEqual(setOf([]))
  })

  test('an access token is never issued before the creation of its identity, in milliseconds', async () => {
    const { tokens, clock } = await ground()
    const notBeforeMs = clock.now() + 150
    expect((await tokens.verify((await tokens.mint({ ...grant, notBeforeMs })).token)).issuedAtMs).toBe(notBeforeMs)
  })

  test('an access token omits capabilities of an identity with more than fifty groups', async () => {
    const { tokens } = await ground()
    const held = new Map(
      Array.from({ length: 51 }, (_value, index) => [trustedUid(`${group}/${index.toString(16).padStart(16, '0')}`), setOf(['groups.list'])]),
    )
    expect(decodeJwt((await tokens.mint({ ...grant, held })).token)).not.toHaveProperty('cap')
  })

  test('an access token omits capabilities longer than 4,096 characters', async () => {
    const { tokens } = await ground()
    const cap = async (depth: number): Promise<unknown> => {
      const held = new Map(
        Array.from({ length: 8 }, (_value, index) => [
          trustedUid(`${group}${`/${index.toString(16).padStart(16, '0')}`.repeat(depth)}`),
          setOf(['groups.list']),
        ]),
      )
      return decodeJwt((await tokens.mint({ ...grant, held })).token)['cap']
    }
    // The length of the uids, 24 characters of capabilities each, and JSON punctuation: 8 x (40 + 17 x depth + 24 + 6) + 1.
    expect(JSON.stringify(await cap(25))).toHaveLength(3961)
    expect(await cap(26)).toBeUndefined()
  })

  test('an access token for another audience is valid, but refused at this endpoint', async () => {
    const { tokens } = await ground()
    const { token } = await tokens.mint({ ...grant, audiences: ['registry.example'] })
    expect(await failure(tokens.verify(token))).toBe('7: the token is for another audience')
  })

  test('an access token is verified a thousand times with one signature check', async () => {
    const { tokens, checkCount } = await ground()
    const { token } = await tokens.mint(grant)
    await Promise.all(Array.from({ length: 1000 }, () => tokens.verify(token)))
    await tokens.verify(token)
    expect(checkCount()).toBe(1)
  })

  test('an access token expires after an hour plus a minute of leeway', async () => {
    const { tokens, clock } = await ground()
    const { token } = await tokens.mint(grant)
    clock.advance(3_659_000)
    await tokens.verify(token)
    clock.advance(1000)
    expect(await failure(tokens.verify(token))).toBe('expired')
  })

  test('an access token signed at the last moment of a key is verified until the token expires', async () => {
    const { tokens, clock, keys } = await ground()
    clock.advance(signingKeySchedule.rotateEveryMs - signingKeySchedule.publishAheadMs)
    await keys.maintain(signal)
    clock.advance(signingKeySchedule.publishAheadMs - 1)
    const { token } = await tokens.mint(grant)
    clock.advance(3_600_000)
    await keys.maintain(signal)
    expect(keys.current().kid).not.toBe(JSON.parse(Buffer.from(token.split('.')[0] ?? '', 'base64url').toString()).kid)
    await tokens.verify(token)
    clock.advance(signingKeySchedule.retainMs)
    await keys.maintain(signal)
    expect(await failure(tokens.verify(token))).toBe('unknown_key')
  })

  test('an access token for another use, key, issuer or algorithm is refused', async () => {
    const { tokens, keys, clock } = await ground()
    const { kid, privateKey } = keys.current()
    const good = decodeJwt((await tokens.mint(grant)).token)
    const remade = async (changes: Record<string, unknown>, header: Record<string, unknown> = {}): Promise<string> => {
      const token = await new SignJWT({ ...good, ...changes }).setProtectedHeader({ alg: 'RS256', kid, ...header }).sign(privateKey)
      return await failure(tokens.verify(token))
    }
    expect(await remade({})).toBe('no failure')
    expect(await remade({ use: 'refresh' })).toBe('unreadable')
    expect(await remade({ use: undefined })).toBe('unreadable')
    expect(await remade({ iss: `${issuer}/` })).toBe('unknown_issuer')
    expect(await remade({ sub: 'alice' })).toBe('unreadable')
    expect(await remade({ act: undefined })).toBe('unreadable')
    expect(await remade({ scp: 'x' })).toBe('unreadable')
    expect(await remade({ cpn: 5 })).toBe('unreadable')
    expect(await remade({ iat_ms: undefined })).toBe('unreadable')
    expect(await remade({}, { kid: 'other' })).toBe('unknown_key')
    expect(await remade({}, { kid: undefined })).toBe('unknown_key')
    const foreign = await testKey('RS256', kid)
    expect(await failure(tokens.verify(await sign(foreign, good)))).toBe('signature')
    expect(await failure(tokens.verify(await sign(await testKey('ES256', kid), good)))).toBe('algorithm')
    expect(clock.now()).toBeGreaterThan(0)
  })
})
