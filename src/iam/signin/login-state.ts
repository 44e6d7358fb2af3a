import { createHash, timingSafeEqual } from 'node:crypto'
import type { Clock } from '../../base/runtime.ts'
import { isUid, type Uid } from '../../base/uid.ts'
import type { LoginChecks } from '../../auth/oidc/oidc-client.ts'
import { SealingError, type Keyring } from '../../auth/keys/sealing.ts'

/** Where the tokens of a sign-in go: to an address for this browser, or to a device. */
export type LoginEnd =
  | { readonly kind: 'redirect'; readonly redirect: string }
  /** Public key of the device. */
  | { readonly kind: 'headless'; readonly code: string }
  /** The code that the device shows (RFC 8628). */
  | { readonly kind: 'device'; readonly userCode: string }

/** The sign-in that a browser requests. */
export interface RequestedLogin {
  readonly end: LoginEnd
  /** Uid of the identity to assume; empty if the person signs in as themselves. */
  readonly identity: string
  readonly audiences: readonly string[]
  readonly scopes: readonly string[]
  readonly refresh: boolean
  readonly invite: string
  /** True if an unknown person is registered. */
  readonly register: boolean
}

/** A browser sign-in with a chosen provider, before the browser is redirected there. */
export interface ChosenLogin {
  readonly requested: RequestedLogin
  readonly provider: Uid
}

/** A browser sign-in while the person is at the identity provider. */
export interface PendingLogin extends ChosenLogin {
  /** The issuer and client to which the browser was redirected. */
  readonly issuer: string
  readonly clientId: string
  readonly checks: LoginChecks
}

/** State of a sign-in by its next step: the person confirms it, or the provider redirects the browser back. */
export interface LoginSteps {
  readonly confirm: ChosenLogin
  readonly provider: PendingLogin
}

/** Time limit of each step, in milliseconds. */
export const loginLifeMs = 10 * 60_000

/** Encrypted values of a step. */
interface Seal {
  readonly expireMs: number
  /** SHA-256 of the browser's cookie value. */
  readonly browser: string
}

function digestOf(browser: string): string {
  return createHash('sha256').update(browser).digest('base64url')
}

function contextOf(step: keyof LoginSteps): string {
  return `login-${step}`
}

/**
 * Encrypts the state of a sign-in, so that any replica can continue it. The result is the `state` of an authorization request, or a form
 * field. It is valid only with the cookie value `browser`.
 */
export function sealLogin<Step extends keyof LoginSteps>(
  keyring: Keyring,
  clock: Clock,
  login: { step: Step; pending: LoginSteps[Step]; browser: string },
): string {
  const sealed: LoginSteps[Step] & Seal = { ...login.pending, browser: digestOf(login.browser), expireMs: clock.now() + loginLifeMs }
  return Buffer.from(keyring.seal(Buffer.from(JSON.stringify(sealed)), contextOf(login.step))).toString('base64url')
}

/** Decrypts the result of sealLogin for this step; undefined if it is invalid, expired, or from another browser. */
export function openLogin<Step extends keyof LoginSteps>(
  keyring: Keyring,
  clock: Clock,
  login: { step: Step; sealed: string; browser: string | undefined },
): LoginSteps[Step] | undefined {
  const pending = unsealed(keyring, login.step, login.sealed)
  if (pending === undefined || login.browser === undefined || clock.now() >= pending.expireMs || !isUid(pending.provider)) return undefined
  const [expected, actual] = [Buffer.from(pending.browser), Buffer.from(digestOf(login.browser))]
  return expected.length === actual.length && timingSafeEqual(expected, actual) ? pending : undefined
}

function unsealed<Step extends keyof LoginSteps>(keyring: Keyring, step: Step, sealed: string): (LoginSteps[Step] & Seal) | undefined {
  try {
    // a cast: only sealLogin encrypts values in this context
    return JSON.parse(Buffer.from(keyring.open(Buffer.from(sealed, 'base64url'), contextOf(step))).toString('utf8')) as LoginSteps[Step] & Seal
  } catch (error) {
    if (error instanceof SealingError) return undefined
    throw error
  }
}
