import { decodeJwt } from 'jose'
import { afterAll, beforeEach, expect, test } from 'vitest'
import { makeMember, makeOrganisation } from '../../../support/test-server.ts'
import { startClouds } from '../../../support/parts/sign-in/clouds.ts'
import { specSuite } from '../spec-suite.ts'

const clouds = await startClouds()
afterAll(() => clouds.stop())
beforeEach(() => {
  clouds.trusts.clear()
  clouds.asked.length = 0
  clouds.broken = undefined
})

const env = {
  TAPROOT_ACCOUNT_CHECKS_AMAZON_ROLE: 'taproot-check',
  TAPROOT_ACCOUNT_CHECKS_AMAZON_ENDPOINT: clouds.amazon,
  TAPROOT_ACCOUNT_CHECKS_GOOGLE_PROVIDER: 'pool/name',
  TAPROOT_ACCOUNT_CHECKS_GOOGLE_ENDPOINT: clouds.google,
  TAPROOT_ACCOUNT_CHECKS_AZURE_CLIENT: 'check',
  TAPROOT_ACCOUNT_CHECKS_AZURE_ENDPOINT: clouds.azure,
}

const blocks = {
  amazon: { account: '123456789012' },
  google: { projectId: 'acme', projectNumber: '42' },
  azure: { tenantId: 'acme.example', clientIds: { check: 'client-1', other: 'client-2' } },
} as const

const providers = [
  { type: 'AMAZON', place: '123456789012', status: 403 },
  { type: 'GOOGLE', place: '42', status: 400 },
  { type: 'AZURE', place: 'acme.example/client-1', status: 400 },
] as const

specSuite(
  'checks of accounts at cloud providers',
  (spec) => {
    const associated = async (accounts: Partial<typeof blocks> = blocks) => {
      const organisation = await makeOrganisation(spec.server)
      const { group, token } = organisation
      await spec.ok('CreateAccountAssociation', { parent: group, accountAssociation: { name: 'accounts', ...accounts } }, { token })
      return organisation
    }
    const check = (uid: string, type: string, token: string) =>
      spec.ok('CheckAccountAssociation', { uid, providerType: `ACCOUNT_PROVIDER_TYPE_${type}` }, { token })

    // docs/spec/iam.md#account-checks
    test.each(providers)('checks of accounts at cloud providers report $type as ready if the account trusts the group', async ({ type, place }) => {
      const { group, token } = await associated()
      clouds.trusts.set(place, group)
      expect(await check(group, type, token)).toEqual({ status: 'CHECK_STATUS_READY', reason: '', message: '' })
      expect(clouds.asked.map(({ given }) => given)).toEqual([true])
    })

    // docs/spec/iam.md#account-checks
    test.each(providers)(
      'checks of accounts at cloud providers report $type as not ready, without an error, if the account trusts another issuer',
      async ({ type, place, status }) => {
        const [{ group, token }, other] = [await associated(), await associated()]
        clouds.trusts.set(place, other.group)
        expect(await check(group, type, token)).toEqual({
          status: 'CHECK_STATUS_NOT_READY',
          reason: 'error exchanging credentials',
          message: `the provider answered with status ${status}`,
        })
        expect(clouds.asked.map(({ given }) => given)).toEqual([false])
      },
    )

    // docs/spec/iam.md#account-checks
    test('checks of accounts at cloud providers report a provider as not configured without calling it if association or configuration is incomplete', async () => {
      const { group, token } = await associated({ amazon: blocks.amazon })
      const answer = { status: 'CHECK_STATUS_NOT_READY', reason: 'not configured' }
      expect(await check(group, 'GOOGLE', token)).toMatchObject(answer)
      const azure = { tenantId: 'acme.example', clientIds: { constructor: 'x', another: 'client-2' } }
      await spec.ok('UpdateAccountAssociation', { accountAssociation: { uid: group, azure } }, { token })
      expect(await check(group, 'AZURE', token)).toMatchObject(answer)
      expect(clouds.asked).toEqual([])
    })

    // docs/spec/iam.md#account-checks
    test('checks of accounts at cloud providers report a broken provider in a normal answer, without any text of the provider', async () => {
      const { group, token } = await associated()
      clouds.broken = 503
      expect(await check(group, 'AMAZON', token)).toMatchObject({ reason: 'error exchanging credentials', message: 'the provider answered with status 503' })
      clouds.broken = 302
      expect(await check(group, 'AMAZON', token)).toMatchObject({ reason: 'error exchanging credentials' })
      clouds.broken = 200
      expect(await check(group, 'AMAZON', token)).toMatchObject({ reason: 'error exchanging credentials' })
    })

    // docs/spec/iam.md#account-checks
    test('checks of accounts at cloud providers send a token for the group that lives five minutes and that every endpoint of this server refuses', async () => {
      const { group, token } = await associated()
      await check(group, 'AMAZON', token)
      const [asked] = clouds.asked
      const claims = decodeJwt(asked?.token ?? '')
      expect(claims).toMatchObject({ iss: spec.server.config.baseUrl, sub: group, aud: 'sts.amazonaws.com', use: 'account_check' })
      expect((claims.exp ?? 0) - (claims.iat ?? 0)).toBe(300)
      expect((await spec.call('ListGroups', {}, { token: asked?.token })).code).toBe(16)
      const { uid } = await makeMember(spec.server, group)
      expect((await spec.call('Exchange', { identity: uid }, { token: asked?.token })).code).toBe(7)
    })

    // docs/spec/iam.md#account-checks
    test('log the caller and the account, without token or credential', async () => {
      const { group, owner, token } = await associated()
      clouds.trusts.set('123456789012', group)
      spec.server.logs.length = 0
      await check(group, 'AMAZON', token)
      const line = { message: 'account checked', fields: { group, provider: 'amazon', outcome: 'ready', identity: owner } }
      expect(spec.server.logs).toContainEqual(expect.objectContaining(line))
      const logs = JSON.stringify(spec.server.logs)
      expect(logs).not.toContain('secret-of-the-cloud')
      expect(logs).not.toContain((clouds.asked[0]?.token ?? 'none').slice(-20))
    })
  },
  { env },
)

specSuite('checks of accounts where none is configured', (spec) => {
  // docs/spec/iam.md#account-checks
  test.each(providers)('checks of accounts where none is configured report $type as not configured', async ({ type }) => {
    const { group, token } = await makeOrganisation(spec.server)
    await spec.ok('CreateAccountAssociation', { parent: group, accountAssociation: { name: 'accounts', ...blocks } }, { token })
    const request = { uid: group, providerType: `ACCOUNT_PROVIDER_TYPE_${type}` }
    expect(await spec.ok('CheckAccountAssociation', request, { token })).toMatchObject({ status: 'CHECK_STATUS_NOT_READY', reason: 'not configured' })
  })
})
