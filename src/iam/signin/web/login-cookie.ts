import { createHash } from 'node:crypto'
import { loginLifeMs, sealLogin, type LoginSteps } from '../login-state.ts'
import { randomHex } from '../../../base/runtime.ts'
import type { Services } from '../../../engine/services.ts'
import { cookieOf, setCookie, type WebRequest } from '../../../transport/web/web-request.ts'

/** `SameSite` of the cookie of each step. */
const sameSite = {
  // The platform's own page sends the form.
  confirm: 'Strict',
  // The identity provider sends the browser back.
  provider: 'Lax',
} as const satisfies Record<keyof LoginSteps, string>

/**
 * Returns the `Set-Cookie` header of a sealed sign-in; an empty value removes the cookie. Under https, `__Host-` (RFC 6265bis, 4.1.3.2) ensures that no other host
 * and no attacker on the network can set it. Otherwise a sign-in that an attacker started could end in this browser.
 */
function cookieHeader(of: { step: keyof LoginSteps; baseUrl: string; sealed: string; value: string }): string {
  const secure = of.baseUrl.startsWith('https:')
  const maxAgeSeconds = of.value === '' ? 0 : loginLifeMs / 1000
  return setCookie({ name: cookieName(of.sealed, secure), value: of.value, maxAgeSeconds, sameSite: sameSite[of.step], secure })
}

/** Returns a name that differs for each sign-in: one browser may have several at a time. */
function cookieName(sealed: string, isSecure: boolean): string {
  return `${isSecure ? '__Host-' : ''}taproot_login_${createHash('sha256').update(sealed).digest('hex').slice(0, 16)}`
}

/** Binds a sign-in to a browser: returns its sealed text, which comes back, and the `Set-Cookie` header. */
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
