import { createHash, timingSafeEqual } from 'node:crypto'
import type { Clock } from '../../base/runtime.ts'
import { isUid, type Uid } from '../../base/uid.ts'
import type { LoginChecks } from '../../auth/oidc/oidc-client.ts'
import { SealingError, type Keyring } from '../../auth/keys/sealing.ts'

/** Destination of the tokens: an address for this browser, or a device. */
export type LoginEnd =
  | { readonly kind: 'redirect'; readonly redirect: string }
  /** Public key of the device. */
  | { readonly kind: 'headless'; readonly code: string }
  /** The code that the device shows (RFC 8628). */
  | { readonly kind: 'device'; readonly userCode: string }

/** Request of a browser sign-in. */
export interface RequestedLogin {
  readonly end: LoginEnd
  /** Identity to assume. Empty for the person. */
  readonly identity: string
  readonly audiences: readonly string[]
  readonly scopes: readonly string[]
  readonly refresh: boolean
  readonly invite: string
  /** Whether to register an unknown person. */
  readonly register: boolean
}

/** A browser sign-in before its start. */
export interface ChosenLogin {
  readonly requested: RequestedLogin
  readonly provider: Uid
}

/** A browser sign-in while the person is at the identity provider. */
export interface PendingLogin extends ChosenLogin {
  /** Issuer and client that the browser was sent to. */
  readonly issuer: string
  readonly clientId: string
  readonly checks: LoginChecks
}

/** Next step of a sign-in: the confirmation of the person, or the redirect of the provider. */
export interface LoginSteps {
  readonly confirm: ChosenLogin
  readonly provider: PendingLogin
}

/** Time limit of each step, in milliseconds. */
export const loginLifeMs = 10 * 60_000

/** Values that are sealed with a step. */
interface Seal {
  readonly expireMs: number
  /** SHA-256 of the value of the browser's cookie. */
  readonly browser: string
}

function digestOf(browser: string): string {
  return createHash('sha256').update(browser).digest('base64url')
}

function contextOf(step: keyof LoginSteps): string {
  return `login-${step}`
}

/**
 * Seals the state of a login, so that any replica can continue it. It is the `state` of an authorization request, or a field of a form. It works only in the
 * browser with `browser`.
 */
export function sealLogin<Step extends keyof LoginSteps>(
  keyring: Keyring,
  clock: Clock,
  login: { step: Step; pending: LoginSteps[Step]; browser: string },
): string {
  const sealed: LoginSteps[Step] & Seal = { ...login.pending, browser: digestOf(login.browser), expireMs: clock.now() + loginLifeMs }
  return Buffer.from(keyring.seal(Buffer.from(JSON.stringify(sealed)), contextOf(login.step))).toString('base64url')
}

/** Opens the result of sealLogin for this step. Undefined if it is invalid, too old, or of another browser. */
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
    // Only sealLogin seals values in this context.
    return JSON.parse(Buffer.from(keyring.open(Buffer.from(sealed, 'base64url'), contextOf(step))).toString('utf8')) as LoginSteps[Step] & Seal
  } catch (error) {
    if (error instanceof SealingError) return undefined
    throw error
  }
}
