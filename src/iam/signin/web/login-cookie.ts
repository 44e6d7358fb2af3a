import { createHash } from 'node:crypto'
import { loginLifeMs, sealLogin, type LoginSteps } from '../login-state.ts'
import { randomHex } from '../../../base/runtime.ts'
import type { Services } from '../../../engine/services.ts'
import type { RawRequest } from '../../../transport/http/raw-route.ts'

/** What of a cookie depends on the step that it is for. */
const sameSite = {
  // Sent only by our own page.
  confirm: 'Strict',
  // The identity provider sends the browser.
  provider: 'Lax',
} as const satisfies Record<keyof LoginSteps, string>

/**
 * The header that keeps what a sealed login is bound to in the browser; an empty value removes it. Under https no other host, nor anybody on the way, can plant such a
 * cookie (`__Host-`, RFC 6265bis 4.1.3.2): else a login that somebody else began could be ended in this browser.
 */
function cookieHeader(of: { step: keyof LoginSteps; baseUrl: string; sealed: string; value: string }): string {
  const isSecure = of.baseUrl.startsWith('https:')
  const life = of.value === '' ? 0 : loginLifeMs / 1000
  return `${cookieName(of.sealed, isSecure)}=${of.value}; Path=/; Max-Age=${life}; HttpOnly; SameSite=${sameSite[of.step]}${isSecure ? '; Secure' : ''}`
}

/** Each login has a cookie of its own: one browser may have several under way. */
function cookieName(sealed: string, isSecure: boolean): string {
  return `${isSecure ? '__Host-' : ''}taproot_login_${createHash('sha256').update(sealed).digest('hex').slice(0, 16)}`
}

/** Seals a login for a browser: the text that comes back, and the header that binds it to this browser. */
export function bindLogin<Step extends keyof LoginSteps>(
  { keyring, clock, random }: Services,
  baseUrl: string,
  login: { step: Step; pending: LoginSteps[Step] },
): { sealed: string; cookie: string } {
  const browser = randomHex(random, 32)
  const sealed = sealLogin(keyring, clock, { ...login, browser })
  return { sealed, cookie: cookieHeader({ step: login.step, baseUrl, sealed, value: browser }) }
}

/** What the browser keeps for the sealed login. */
export function browserOf(request: RawRequest, baseUrl: string, sealed: string): string | undefined {
  const expected = cookieName(sealed, baseUrl.startsWith('https:'))
  const pairs = (request.header('cookie') ?? '').split(';').map((pair) => pair.trim().split('='))
  return pairs.find(([name]) => name === expected)?.[1]
}

/** The header that removes what the browser keeps for the sealed login. */
export function forgetLogin(step: keyof LoginSteps, baseUrl: string, sealed: string): string {
  return cookieHeader({ step, baseUrl, sealed, value: '' })
}
