import { expect, test } from 'vitest'
import { bindLogin, browserOf, forgetLogin } from '../../src/iam/signin/web/login-cookie.ts'
import type { WebRequest } from '../../src/transport/web/web-request.ts'
import { openLogin } from '../../src/iam/signin/login-state.ts'
import { trustedUid } from '../../src/base/uid.ts'
import { startTestServer } from '../support/test-server.ts'

const chosen = {
  provider: trustedUid('a'.repeat(40)),
  requested: { end: { kind: 'headless', code: 'code' }, identity: '', audiences: [], scopes: [], refresh: false, invite: '', register: true },
} as const

function sending(cookie: string): WebRequest {
  return { header: (name: string) => (name === 'cookie' ? cookie : undefined) } as WebRequest // a cast: nothing else is read
}

test.each([
  ['https://platform.example', /^__Host-taproot_login_[0-9a-f]{16}=[0-9a-f]{64}; Path=\/; Max-Age=600; HttpOnly; SameSite=Strict; Secure$/],
  ['http://localhost:8080', /^taproot_login_[0-9a-f]{16}=[0-9a-f]{64}; Path=\/; Max-Age=600; HttpOnly; SameSite=Strict$/],
] as const)('RFC 6265bis 4.1.3.2 another site can not set the login cookie at %s, as far as browsers support it', async (baseUrl, expected) => {
  const server = await startTestServer()
  try {
    const { services } = server.running.engine
    const { sealed, cookie } = bindLogin(services, baseUrl, { step: 'confirm', pending: chosen })
    expect(cookie).toMatch(expected)
    const pair = cookie.split(';')[0] ?? ''
    const open = (sent: string) => openLogin(services.keyring, services.clock, { step: 'confirm', sealed, browser: browserOf(sending(sent), baseUrl, sealed) })
    expect(open(`other=1; ${pair}`)).toMatchObject(chosen)
    // Under https a cookie without the prefix, which others could have set, is ignored.
    expect(open(pair.replace(/^(?:__Host-)?/, baseUrl.startsWith('https:') ? '' : '__Host-'))).toBeUndefined()
    expect(openLogin(services.keyring, services.clock, { step: 'provider', sealed, browser: browserOf(sending(pair), baseUrl, sealed) })).toBeUndefined()
    expect(forgetLogin('confirm', baseUrl, sealed)).toMatch(/=; Path=\/; Max-Age=0;/)
  } finally {
    await server.stop()
  }
})
