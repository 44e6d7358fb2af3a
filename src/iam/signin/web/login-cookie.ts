import { createHash } from 'node:crypto'
import { loginLifeMs, sealLogin, type LoginSteps } from '../login-state.ts'
import { randomHex } from '../../../base/runtime.ts'
import type { Services } from '../../../engine/services.ts'
import { cookieOf, setCookie, type WebRequest } from '../../../transport/web/web-request.ts'

/** `SameSite` attribute of the cookie, by step. */
const sameSite = {
  // The form is posted from the platform's own page.
  confirm: 'Strict',
  // The identity provider redirects the browser here from another site.
  provider: 'Lax',
} as const satisfies Record<keyof LoginSteps, string>

/**
 * Returns the `Set-Cookie` header for the encrypted state of a sign-in; an empty value removes the cookie. Under https, the prefix
 * `__Host-` (RFC 6265bis, 4.1.3.2) prevents other hosts and network attackers from setting it. Otherwise, a sign-in that an attacker
 * started could end in this browser.
 */
function cookieHeader(of: { step: keyof LoginSteps; baseUrl: string; sealed: string; value: string }): string {
  const secure = of.baseUrl.startsWith('https:')
  const maxAgeSeconds = of.value === '' ? 0 : loginLifeMs / 1000
  return setCookie({ name: cookieName(of.sealed, secure), value: of.value, maxAgeSeconds, sameSite: sameSite[of.step], secure })
}

/** Returns a cookie name that differs for each sign-in, since one browser may have several at a time. */
function cookieName(sealed: string, isSecure: boolean): string {
  return `${isSecure ? '__Host-' : ''}taproot_login_${createHash('sha256').update(sealed).digest('hex').slice(0, 16)}`
}

/** Binds a sign-in to a browser. Returns the encrypted state, and the `Set-Cookie` header of the value that must come back with it. */
export function bindLogin<Step extends keyof LoginSteps>(
  { keyring, clock, random }: Services,
  baseUrl: string,
  login: { step: Step; pending: LoginSteps[Step] },
): { sealed: string; cookie: string } {
  const browser = randomHex(random, 32)
  const sealed = sealLogin(keyring, clock, { ...login, browser })
  return { sealed, cookie: cookieHeader({ step: login.step, baseUrl, sealed, value: browser }) }
}

/** Returns the value of the sign-in's cookie. */
export function browserOf(request: WebRequest, baseUrl: string, sealed: string): string | undefined {
  return cookieOf(request, cookieName(sealed, baseUrl.startsWith('https:')))
}

/** Returns the `Set-Cookie` header that removes the sign-in's cookie. */
export function forgetLogin(step: keyof LoginSteps, baseUrl: string, sealed: string): string {
  return cookieHeader({ step, baseUrl, sealed, value: '' })
}
