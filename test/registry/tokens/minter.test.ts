import fc from 'fast-check'
import { isDeepStrictEqual } from 'node:util'
import { expect, test } from 'vitest'
import { createKeyring } from '../../../src/auth/keys/sealing.ts'
import { setOf } from '../../../src/base/capability.ts'
import { trustedUid } from '../../../src/base/uid.ts'
import type { RegistryAction } from '../../../src/registry/gate.ts'
import { createRegistryKeys } from '../../../src/registry/tokens/registry-keys.ts'
import { createRegistryMinter, type TokenGrant } from '../../../src/registry/tokens/registry-minter.ts'
import { freshStore, random, signal, testClock } from '../../auth/parts.ts'

const identityUid = trustedUid('0123456789abcdef0123456789abcdef01234567')
const act = { issuer: 'https://issuer.example', subject: 'test', audience: 'registry.example' }
const access = [{ path: 'acme/app', actions: ['pull'], place: { uid: identityUid } }] as const

async function parts() {
  const [store, clock] = [await freshStore(), testClock()]
  const keyring = await createKeyring({ store, keyEncryptionKey: Buffer.alloc(32, 7), random }, signal)
  const keys = await createRegistryKeys({ store, keyring, clock, random }, signal)
  const grant: TokenGrant & { bearer: object } = { bearer: { identityUid, act, restrictions: {}, notBeforeMs: clock.now() - 5_000 }, access }
  return { clock, keys, grant, mint: createRegistryMinter({ issuer: 'https://taproot.example', service: 'registry.example', keys, clock, random }) }
}

test('a token is returned again, with its original issue time, for less than a second', async () => {
  const { clock, grant, mint } = await parts()
  const first = mint(grant)
  clock.advance(999)
  expect(mint(grant)).toEqual(first)
  clock.advance(1)
  const second = mint(grant)
  expect(second.token).not.toBe(first.token)
  expect(second.issuedAtMs).toBe(first.issuedAtMs + 1000)
})

test('a token lives for ten minutes, or as long as the minter is asked for', async () => {
  const { keys, clock, grant, mint } = await parts()
  const long = createRegistryMinter({ issuer: 'https://taproot.example', service: 'registry.example', keys, clock, random, tokenSeconds: 3600 })
  const lives = [mint, long].map((one) => {
    const { exp, iat } = JSON.parse(Buffer.from(one(grant).token.split('.')[1] ?? '', 'base64url').toString()) as { exp: number; iat: number }
    return exp - iat
  })
  expect(lives).toEqual([600, 3600])
})

test('repeated requests do not extend that time', async () => {
  const { clock, grant, mint } = await parts()
  const tokens = new Set<string>()
  for (let asked = 0; asked < 30; asked++) {
    tokens.add(mint(grant).token)
    clock.advance(100)
  }
  expect(tokens.size).toBe(3)
})

test('a cached token is not returned again for a recreated identity, or after the clock went back', async () => {
  const { clock, grant, mint } = await parts()
  const first = mint(grant)
  clock.advance(500)
  const ofHeir = mint({ ...grant, bearer: { ...grant.bearer, notBeforeMs: clock.now() } })
  expect(ofHeir.token).not.toBe(first.token)
  expect(ofHeir.issuedAtMs).toBe(clock.now())
  clock.advance(-501)
  expect(mint(grant)).toMatchObject({ issuedAtMs: first.issuedAtMs - 1 })
})

test('a cached token is not returned again after the signing key changed', async () => {
  const [{ clock, grant, keys }, { keys: later }] = [await parts(), await parts()]
  let used = keys
  const rotating = { ...keys, current: () => used.current() }
  const mint = createRegistryMinter({ issuer: 'https://taproot.example', service: 'registry.example', keys: rotating, clock, random })
  const { token } = mint(grant)
  used = later
  expect(mint(grant).token.split('.')[0]).toBe(later.current().header)
  used = keys
  expect(mint(grant).token).toBe(token)
})

test("tokens of an identity that is newer than this clock start at the identity's time", async () => {
  const { clock, grant, mint } = await parts()
  const notBeforeMs = clock.now() + 700
  const ahead = { ...grant, bearer: { ...grant.bearer, notBeforeMs } }
  const first = mint(ahead)
  expect(first.issuedAtMs).toBe(notBeforeMs)
  clock.advance(600)
  expect(mint(ahead)).toEqual(first)
})

/** One grant for each possible field. */
const said = (() => {
  const uid = fc.constantFrom('0123456789abcdef0123456789abcdef01234567', '89abcdef0123456789abcdef0123456789abcdef').map(trustedUid)
  const word = fc.constantFrom('one', 'two')
  const maybe = <T>(value: fc.Arbitrary<T>): fc.Arbitrary<T | undefined> => fc.option(value, { nil: undefined })
  return {
    identityUid: uid,
    notBeforeMs: fc.constantFrom(0, 1),
    issuer: word,
    subject: word,
    audience: word,
    email: maybe(word),
    profile: maybe(word.map((name) => ({ name }))),
    scopes: maybe(fc.array(uid, { maxLength: 1 })),
    capabilities: maybe(fc.constantFrom(setOf(['repo.list']), setOf(['tag.list']), setOf([]))),
    trustedGroups: maybe(fc.array(uid, { maxLength: 1 })),
    roles: maybe(fc.array(fc.record({ group: uid, role: uid }, { noNullPrototype: true }), { maxLength: 1 })),
    path: fc.constantFrom('acme/app', 'acme/other'),
    actions: fc.subarray<RegistryAction>(['pull', 'push', 'delete']),
    place: fc.oneof(
      uid.map((repo) => ({ uid: repo })),
      uid.map((parent) => ({ parent })),
    ),
    isSignedIn: fc.boolean(),
    isGranted: fc.boolean(),
  }
})()

/** The defined values. */
function present<T extends object>(values: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)) as { [K in keyof T]?: Exclude<T[K], undefined> } // a cast: nothing else is left out
}

test('grants that differ in one field have different tokens; equal grants have the same', async () => {
  const { mint } = await parts()
  const words = fc.record(said, { noNullPrototype: true })
  type Said = typeof words extends fc.Arbitrary<infer T> ? T : never
  const grantOf = ({ isSignedIn, isGranted, path, actions, place, identityUid: uid, notBeforeMs, issuer, subject, audience, ...more }: Said): TokenGrant => {
    const { email, profile, ...restrictions } = more
    const actor = { issuer, subject, audience, ...present({ email, profile }) }
    return {
      bearer: isSignedIn ? { identityUid: uid, act: actor, restrictions: present(restrictions), notBeforeMs } : undefined,
      access: isGranted ? [{ path, actions, place }] : [],
    }
  }
  const names = Object.keys(said) as (keyof Said)[]
  fc.assert(
    fc.property(words, words, fc.constantFrom(...names), (one, other, name) => {
      const [first, second] = [grantOf(one), grantOf({ ...one, [name]: other[name] })]
      expect(mint(first).token === mint(second).token).toBe(isDeepStrictEqual(first, second))
    }),
    { numRuns: 3000 },
  )
})

test('the number of remembered tokens is limited', async () => {
  const { grant, mint } = await parts()
  const first = mint(grant)
  for (let asked = 0; asked < 10_000; asked++) mint({ ...grant, access: [{ path: `acme/${asked}`, actions: ['pull'], place: { uid: identityUid } }] })
  expect(mint(grant).token).not.toBe(first.token)
})
