import type { JsonObject } from '@bufbuild/protobuf'
import { exportJWK, generateKeyPair, SignJWT } from 'jose'
import { afterAll, beforeEach, describe, expect, test } from 'vitest'
import { freshName, makeOrganisation, roleUid, type Organisation } from '../../../support/test-server.ts'
import { awsToken, startAwsSts, type AccessKey } from '../../../support/parts/sign-in/aws-sts.ts'
import { eventsOf } from '../outbox.ts'
import { expectFailure, specSuite, uidOf } from '../spec-suite.ts'

let nowMs = (): number => Date.now()
const sts = await startAwsSts(() => nowMs())
afterAll(() => sts.stop())

const account = '123456789012'
const alice: AccessKey = { id: 'AKIAALICE', secret: 'alice-secret', arn: `arn:aws:iam::${account}:user/Alice`, userId: 'AIDAALICE', account }
const aws = { awsAccount: account, arn: alice.arn, userIdPattern: 'AIDA.*' }
const exchange = 'SecurityTokenService/Exchange'
const mismatch = 'the token does not match the identity'

specSuite(
  'workload identities at the STS',
  (spec) => {
    beforeEach(() => {
      nowMs = () => spec.clock.now()
      sts.asked.length = 0
      sts.broken = undefined
      sts.keys.clear()
      sts.keys.set(alice.id, alice)
    })
    const platform = (): string => spec.server.config.baseUrl
    const signed = (identity: string, key = alice): string => awsToken(key, { audience: platform(), identity, date: new Date(spec.clock.now()) })
    const withAws = async (awsIdentity: JsonObject = aws): Promise<Organisation & { identity: string }> => {
      const organisation = await makeOrganisation(spec.server)
      const made = await spec.ok('CreateIdentity', { parent: organisation.group, identity: { name: 'aws', awsIdentity } }, { token: organisation.token })
      return { ...organisation, identity: uidOf(made) }
    }

    describe('an AWS identity at the STS', () => {
      // docs/spec/identities.md#aws-identities
      test('an AWS identity at the STS signs in with a signed request and gets a token with the rights of its identity', async () => {
        const { group, token, identity } = await withAws()
        const { token: access } = await spec.ok(exchange, { identity }, { token: signed(identity) })
        const who = await spec.ok('Validate', {}, { token: String(access) })
        expect(who['subject']).toBe(identity)
        expectFailure(await spec.call('GetGroup', { uid: group }, { token: String(access) }), { code: 5 })
        await spec.ok('DeleteIdentity', { uid: identity }, { token })
        expectFailure(await spec.call('Validate', {}, { token: String(access) }), { code: 16 })
      })

      // docs/spec/events.md#actors
      test('an AWS identity at the STS is named by account and ARN in the events of its changes', async () => {
        const { group, token, identity } = await withAws()
        await spec.ok('CreateRoleBinding', { parent: group, roleBinding: { identityUid: identity, roleUid: roleUid('owner') } }, { token })
        const { token: access } = await spec.ok(exchange, { identity }, { token: signed(identity) })
        const made = await spec.ok('CreateGroup', { parent: group, group: { name: freshName('team') } }, { token: String(access) })
        const [event] = await eventsOf(spec, uidOf(made))
        expect(event?.actorClaims).toEqual({ iss: 'https://sts.amazonaws.com', sub: alice.arn, aud: platform(), 'aws-acct': account, 'aws-arn': alice.arn })
      })

      // docs/spec/tokens.md#exchange-errors
      test('an AWS identity at the STS gets the same error for every mismatch with the identity', async () => {
        const { token, group, identity } = await withAws({ ...aws, awsAccount: '999999999999' })
        const claimMatch = { issuer: 'https://issuer.example', subject: 's' }
        const other = uidOf(await spec.ok('CreateIdentity', { parent: group, identity: { name: 'claims', claimMatch } }, { token }))
        for (const asked of [identity, other, `${group}/${'0'.repeat(16)}`, 'f'.repeat(40), 'nonsense']) {
          const reply = await spec.call(exchange, { identity: asked }, { token: signed(asked) })
          expectFailure(reply, { code: 7 })
          expect(reply.message).toBe(mismatch)
        }
      })

      // docs/spec/identities.md#aws-identities
      test('an AWS identity at the STS is compared with the current state of the identity', async () => {
        const { token, identity } = await withAws()
        await spec.ok('UpdateIdentity', { identity: { uid: identity, awsIdentity: { ...aws, arn: `${alice.arn}/other` } } }, { token })
        expectFailure(await spec.call(exchange, { identity }, { token: signed(identity) }), { code: 7 })
      })

      // docs/spec/identities.md#aws-request-checks
      test('an AWS identity at the STS gets specific errors for a malformed request', async () => {
        const { identity } = await withAws()
        const call = async (text: string, asked = identity) => spec.call(exchange, { identity: asked }, { token: text })
        const late = awsToken(alice, { audience: platform(), identity, date: new Date(spec.clock.now() - 16 * 60_000) })
        const elsewhere = awsToken(alice, { audience: 'https://elsewhere.example', identity, date: new Date(spec.clock.now()) })
        const rows: [string, string, RegExp][] = [
          [late, identity, /older than 15 minutes/],
          [elsewhere, identity, /audience/],
          [signed('f'.repeat(40)), identity, /another identity/],
          [signed(identity, { ...alice, secret: 'x' }), identity, /AWS does not accept/],
        ]
        for (const [text, asked, expected] of rows) {
          const reply = await call(text, asked)
          expectFailure(reply, { code: 7 })
          expect(reply.message).toMatch(/^verifying token: /)
          expect(reply.message).toMatch(expected)
        }
        expectFailure(await call(signed(identity), ''), { code: 3, fields: ['identity'] })
      })

      // docs/spec/identities.md#aws-identities
      test('an AWS identity at the STS is accepted by the exchange only; a JWT does not sign in an AWS identity', async () => {
        const { group, identity } = await withAws()
        expectFailure(await spec.call('GetGroup', { uid: group }, { token: signed(identity), identity }), { code: 16 })
        expectFailure(await spec.call('Auth/Register', {}, { token: signed(identity) }), { code: 16 })
        const jwt = await spec.server.devIssuer.mintDevToken({ subject: 'x', audience: platform() })
        const reply = await spec.call(exchange, { identity }, { token: jwt })
        expectFailure(reply, { code: 7 })
        expect(reply.message).toBe(mismatch)
        expect(sts.asked).toEqual([])
      })

      // docs/spec/tokens.md#exchange-errors
      test('an AWS identity at the STS that is down is code 14, so that clients retry', async () => {
        const { identity } = await withAws()
        sts.broken = { status: 500 }
        const reply = await spec.call(exchange, { identity }, { token: signed(identity) })
        expect({ code: reply.code, message: reply.message }).toEqual({ code: 14, message: 'verifying token: AWS is unreachable; try again' })
      })

      test('an AWS identity at the STS with malformed input never causes an internal error', async () => {
        const { identity } = await withAws()
        const whole = Buffer.from(signed(identity), 'base64url').toString('latin1')
        const texts = Array.from({ length: 60 }, (_, index) => {
          const cut = Math.floor((index * whole.length) / 60)
          return [whole.slice(0, cut), `${whole.slice(0, cut)}\r\n\r\n`, whole.slice(0, cut) + String.fromCharCode((index * 37) % 256) + whole.slice(cut + 1)]
        }).flat()
        const replies = await Promise.all(texts.map((text) => spec.call(exchange, { identity }, { token: Buffer.from(text, 'latin1').toString('base64') })))
        expect(replies.filter(({ code }) => ![0, 7, 16].includes(code))).toEqual([])
      })

      if (spec.transport === 'rest') {
        // docs/spec/tokens.md#token-exchange
        test('an AWS identity at the STS can use the exchange as GET with a query and as POST with a form', async () => {
          const { identity } = await withAws()
          const form = new URLSearchParams({ identity, aud: platform() })
          const url = `${platform()}/sts/exchange`
          const headers = { authorization: `Bearer ${signed(identity)}` }
          for (const response of [await fetch(`${url}?${form}`, { headers }), await fetch(url, { method: 'POST', headers, body: form })]) {
            expect(response.status).toBe(200)
            expect(Object.keys((await response.json()) as object)).toEqual(expect.arrayContaining(['token', 'expiry']))
          }
        })
      }
    })

    describe('static keys at the STS', () => {
      const issuer = 'https://no-discovery.example'
      const withKeys = async (more: JsonObject = {}) => {
        const { group, token } = await makeOrganisation(spec.server)
        const { privateKey, publicKey } = await generateKeyPair('ES256', { extractable: true })
        const issuerKeys = JSON.stringify({ keys: [{ ...(await exportJWK(publicKey)), kid: 'k', alg: 'ES256' }] })
        const staticKeys = { issuer, subject: 'job', issuerKeys, ...more }
        const identity = uidOf(await spec.ok('CreateIdentity', { parent: group, identity: { name: 'static', staticKeys } }, { token }))
        const sign = (changes: Record<string, string> = {}): Promise<string> => {
          const claims = { iss: issuer, sub: 'job', aud: platform(), ...changes }
          const exp = Math.floor(spec.clock.now() / 1000) + 300
          return new SignJWT({ ...claims, exp }).setProtectedHeader({ alg: 'ES256', kid: 'k' }).sign(privateKey)
        }
        return { identity, sign }
      }

      // docs/spec/identities.md#static-keys
      test('static keys at the STS need exact issuer and subject, and the name of the identity', async () => {
        const { identity, sign } = await withKeys()
        await spec.ok(exchange, { identity }, { token: await sign() })
        for (const changes of [{ sub: 'job2' }, { sub: 'JOB' }, { iss: `${issuer}/` }, { iss: 'https://no-discovery.example.evil' }, { aud: 'elsewhere' }]) {
          const reply = await spec.call(exchange, { identity }, { token: await sign(changes) })
          expectFailure(reply, { code: 7 })
          expect(reply.message).toBe(mismatch)
        }
        expectFailure(await spec.call(exchange, {}, { token: await sign() }), { code: 7 })
      })

      test('static keys at the STS have issuer and subject marked as claimed in the audit log, as they may sign any', async () => {
        const { identity, sign } = await withKeys()
        const { token } = await spec.ok(exchange, { identity }, { token: await sign() })
        expectFailure(await spec.call('CreateGroup', { parent: identity.slice(0, 40), group: { name: 'denied' } }, { token: String(token) }), { code: 5 })
        const line = (): object => spec.server.logs.find(({ fields }) => fields['audit'] === true && fields['identity'] === identity)?.fields ?? {}
        // The event of a concealed denial is made a little after the answer.
        await expect.poll(line).toMatchObject({ outcome: 'denied', claimedIssuer: issuer, claimedSubject: 'job' })
        expect(Object.keys(line())).not.toContain('actorIssuer')
      })

      // docs/spec/identities.md#static-keys
      test("static keys at the STS accept only the identity's own audience, if it has one", async () => {
        const { identity, sign } = await withKeys({ audiences: ['mine'] })
        await spec.ok(exchange, { identity }, { token: await sign({ aud: 'mine' }) })
        expectFailure(await spec.call(exchange, { identity }, { token: await sign() }), { code: 7 })
      })

      // docs/spec/identities.md#static-keys
      test('static keys at the STS are refused at the exchange after the expiration time, and the record stays', async () => {
        const expirationTime = new Date(spec.clock.now() + 60_000).toISOString()
        const { identity, sign } = await withKeys({ expirationTime })
        await spec.ok(exchange, { identity }, { token: await sign() })
        spec.clock.advance(60_000)
        const reply = await spec.call(exchange, { identity }, { token: await sign() })
        expectFailure(reply, { code: 7 })
        expect(reply.message).toBe(mismatch)
        const fresh = await spec.server.operatorToken()
        expect((await spec.ok('GetIdentity', { uid: identity }, { token: fresh }))['staticKeys']).toMatchObject({ expirationTime })
      })
    })
  },
  { env: { TAPROOT_AWS_ENDPOINT: sts.url } },
)
