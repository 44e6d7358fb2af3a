import { createHash, timingSafeEqual } from 'node:crypto'
import type { Clock } from '../../base/runtime.ts'
import { isUid, type Uid } from '../../base/uid.ts'
import type { LoginChecks } from '../../auth/oidc/oidc-client.ts'
import { SealingError, type Keyring } from '../../auth/keys/sealing.ts'

/** Where the tokens of a sign-in go: to who waits at an address for this browser, or to a device that is not the browser's. */
export type LoginEnd =
  | { readonly kind: 'redirect'; readonly redirect: string }
  /** The public key that the device made. */
  | { readonly kind: 'headless'; readonly code: string }
  /** The code that the device shows (RFC 8628). */
  | { readonly kind: 'device'; readonly userCode: string }

/** What a person who signs in by a browser wants. */
export interface RequestedLogin {
  readonly end: LoginEnd
  /** The identity to assume; empty for the person. */
  readonly identity: string
  readonly audiences: readonly string[]
  readonly scopes: readonly string[]
  readonly refresh: boolean
  readonly invite: string
  /** Whether who is not known yet becomes so. */
  readonly register: boolean
}

/** A sign-in by a browser that is to begin. */
export interface ChosenLogin {
  readonly requested: RequestedLogin
  readonly provider: Uid
}

/** A sign-in by a browser, kept while the person is at their provider. */
export interface PendingLogin extends ChosenLogin {
  /** The issuer and the client that the browser was sent to. */
  readonly issuer: string
  readonly clientId: string
  readonly checks: LoginChecks
}

/** What a sign-in waits for: that the person says that it is theirs, or that the provider sends the browser back. */
export interface LoginSteps {
  readonly confirm: ChosenLogin
  readonly provider: PendingLogin
}

/** How long each step may take, in milliseconds. */
export const loginLifeMs = 10 * 60_000

/** What is added to a step while it is sealed. */
interface Seal {
  readonly expireMs: number
  /** SHA-256 of what the browser's cookie holds. */
  readonly browser: string
}

function digestOf(browser: string): string {
  return createHash('sha256').update(browser).digest('base64url')
}

function contextOf(step: keyof LoginSteps): string {
  return `login-${step}`
}

/** All of a login, sealed, so that any replica can go on with it: the `state` of an authorization request, or a field of our own form. Good only in the browser that holds `browser`. */
export function sealLogin<Step extends keyof LoginSteps>(
  keyring: Keyring,
  clock: Clock,
  login: { step: Step; pending: LoginSteps[Step]; browser: string },
): string {
  const sealed: LoginSteps[Step] & Seal = { ...login.pending, browser: digestOf(login.browser), expireMs: clock.now() + loginLifeMs }
  return Buffer.from(keyring.seal(Buffer.from(JSON.stringify(sealed)), contextOf(login.step))).toString('base64url')
}

/** Opens what sealLogin made of this step; undefined where it is not ours, too old, or begun in another browser. */
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
    // Only sealLogin seals in this context.
    return JSON.parse(Buffer.from(keyring.open(Buffer.from(sealed, 'base64url'), contextOf(step))).toString('utf8')) as LoginSteps[Step] & Seal
  } catch (error) {
    if (error instanceof SealingError) return undefined
    throw error
  }
}
