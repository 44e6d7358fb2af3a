import type { JsonObject } from '@bufbuild/protobuf'
import { exportJWK, generateKeyPair, SignJWT, type CryptoKey } from 'jose'
import { expect, test } from 'vitest'
import { freshName, ok } from '../../support/test-server.ts'
import { registrySuite } from './registry-suite.ts'
import { basic, bearer } from './registry-world.ts'

registrySuite('signing in to the registry host with tokens of others', (suite) => {
  const scope = (): string => `repository:${suite.mine.path}:pull`

  /** An identity with pull rights. */
  async function puller(relationship: JsonObject): Promise<string> {
    const { world, mine } = suite
    const token = await world.server.operatorToken()
    const made = ok(await world.server.rest.call('CreateIdentity', { parent: mine.group, identity: { name: freshName('ci'), ...relationship } }, { token }))
    await world.bind(mine.group, String(made['uid']), 'registry.pull')
    return String(made['uid'])
  }

  const issuer = (): string => suite.world.server.devIssuer.issuer
  const external = (subject: string, audience: string | readonly string[] = suite.world.host): Promise<string> =>
    suite.world.server.devIssuer.mintDevToken({ subject, audience, lifeSeconds: 100_000 })

  test('a sign-in at the registry host works with a claim match: as Basic with the uid, or as Bearer with a header', async () => {
    const uid = await puller({ claimMatch: { issuer: issuer(), subject: 'job' } })
    const token = await external('job')
    const asBasic = await suite.world.requestToken([scope()], basic(uid, token))
    expect(suite.world.claimsOf(asBasic.token)).toMatchObject({ sub: uid, access: [{ name: suite.mine.path, uid: suite.mine.repo }] })
    const asBearer = await suite.world.ask({ path: `/token?scope=${scope()}`, authorization: bearer(token), headers: { 'taproot-identity': uid } })
    expect(asBearer.status).toBe(200)
    expect(await suite.world.list(suite.mine.path, basic(uid, token))).toMatchObject({ status: 200 })
    expect(await suite.world.list(suite.mine.path, bearer(asBasic.token))).toMatchObject({ status: 200 })
  })

  test("a sign-in at the registry host needs the registry host among the token's audiences, whatever the identity accepts", async () => {
    const uid = await puller({ claimMatch: { issuer: issuer(), subject: 'job', audience: 'https://else.example' } })
    expect(await suite.world.requestToken([scope()], basic(uid, await external('job', 'https://else.example')))).toMatchObject({
      status: 403,
      codes: ['DENIED'],
    })
    expect(await suite.world.requestToken([scope()], basic(uid, await external('job')))).toMatchObject({ status: 401 })
    expect(await suite.world.requestToken([scope()], basic(uid, await external('job', [suite.world.host, 'https://else.example'])))).toMatchObject({
      status: 200,
    })
  })

  test('a sign-in at the registry host is 401 in one form for a mismatching token and for a missing identity', async () => {
    const uid = await puller({ claimMatch: { issuer: issuer(), subject: 'job' } })
    const gone = await puller({ claimMatch: { issuer: issuer(), subject: 'other' } })
    await suite.world.operate('DeleteIdentity', { uid: gone })
    const token = await external('other')
    const answers = await Promise.all(
      [uid, gone, `${suite.mine.group}/0123456789abcdef`].map((user) => suite.world.requestToken([scope()], basic(user, token))),
    )
    expect(new Set(answers.map(({ status, body }) => `${status} ${body}`)).size).toBe(1)
    expect(answers[0]).toMatchObject({ status: 401, codes: ['UNAUTHORIZED'] })
    expect(answers[0]?.headers['www-authenticate']).toContain('Bearer realm=')
  })

  test('a sign-in at the registry host is 401 for a person who is not registered', async () => {
    expect(await suite.world.requestToken([scope()], bearer(await external('stranger')))).toMatchObject({ status: 401 })
  })

  async function staticKeys(): Promise<{ key: CryptoKey; uid: string; sign(changes?: JsonObject): Promise<string> }> {
    const { privateKey, publicKey } = await generateKeyPair('ES256', { extractable: true })
    const issuerKeys = JSON.stringify({ keys: [{ ...(await exportJWK(publicKey)), alg: 'ES256', use: 'sig' }] })
    const facts = { issuer: 'https://pull.example', subject: 'puller' }
    const expirationTime = new Date(suite.clock.now() + 3_600_000).toISOString()
    const uid = await puller({ staticKeys: { ...facts, issuerKeys, expirationTime, audiences: [suite.world.host] } })
    const seconds = Math.floor(suite.clock.now() / 1000)
    const claims = { iss: facts.issuer, sub: facts.subject, aud: suite.world.host, iat: seconds, exp: seconds + 100_000 }
    return { key: privateKey, uid, sign: (changes = {}) => new SignJWT({ ...claims, ...changes }).setProtectedHeader({ alg: 'ES256' }).sign(privateKey) }
  }

  test('a sign-in at the registry host works with static keys, until they expire or the identity is deleted', async () => {
    const one = await staticKeys()
    const other = await staticKeys()
    const authorization = basic(one.uid, await one.sign())
    const token = await suite.world.tokenFor(scope(), authorization)
    expect(suite.world.claimsOf(token).access).toMatchObject([{ actions: ['pull'], uid: suite.mine.repo }])
    expect(await suite.world.requestToken([scope()], basic(one.uid, await other.sign()))).toMatchObject({ status: 401 })
    expect(await suite.world.requestToken([scope()], basic(one.uid, await one.sign({ aud: 'https://else.example' })))).toMatchObject({ status: 403 })
    expect(await suite.world.requestToken([scope()], basic(one.uid, await one.sign({ sub: 'else' })))).toMatchObject({ status: 401 })
    expect(await suite.world.requestToken([scope()], basic(one.uid, await one.sign({ exp: Math.floor(suite.clock.now() / 1000) - 120 })))).toMatchObject({
      status: 401,
    })
    suite.clock.advance(3_600_000)
    await suite.renew()
    expect(await suite.world.requestToken([scope()], authorization)).toMatchObject({ status: 401 })
    const third = await staticKeys()
    const revoked = basic(third.uid, await third.sign())
    const issued = bearer(await suite.world.tokenFor(scope(), revoked))
    expect(await suite.world.list(suite.mine.path, issued)).toMatchObject({ status: 200 })
    await suite.world.operate('DeleteIdentity', { uid: third.uid })
    expect(await suite.world.list(suite.mine.path, issued)).toMatchObject({ status: 401 })
    expect(await suite.world.list(suite.mine.path, revoked)).toMatchObject({ status: 401 })
    expect(await suite.world.requestToken([scope()], revoked)).toMatchObject({ status: 401 })
  })

  test('records the time of use, once', async () => {
    const uid = await puller({ claimMatch: { issuer: issuer(), subject: 'noted' } })
    suite.clock.advance(2 * 3_600_000)
    await suite.renew()
    const before = suite.clock.now()
    const seen = async (): Promise<number> => {
      const identity = ok(await suite.world.server.rest.call('GetIdentity', { uid }, { token: await suite.world.server.operatorToken() }))
      return Date.parse(String(identity['lastSeenTime']))
    }
    await Promise.all(Array.from({ length: 20 }, async () => suite.world.requestToken([], basic(uid, await external('noted')))))
    await expect.poll(seen).toBeGreaterThanOrEqual(before)
  })
})
