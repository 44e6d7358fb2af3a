import { deviceGrant, oauthPaths } from '../../auth/oidc/discovery-document.ts'
import type { Clock } from '../../base/runtime.ts'
import { ClientError, textOf, type Json } from '../client/client-error.ts'
import { createPlatformClient, type PlatformClient } from '../client/platform-client.ts'
import type { SignedIn } from './browser-login.ts'

/** A sign-in in a browser of any machine (RFC 8628). */
export interface DeviceSignIn {
  readonly server: string
  /** Name of the organisation or uid of the identity provider; empty if the person types it in the browser. */
  readonly organisation: string
  readonly audiences: readonly string[]
  readonly clock: Clock
  /** Prints a line for the person. */
  readonly note: (text: string) => void
  /** Waits some milliseconds. */
  readonly wait: (ms: number) => Promise<unknown>
}

/** Reasons of answers after which the sign-in may still be finished. */
const pending = { waiting: 'AUTHORIZATION_PENDING', tooOften: 'RATE_LIMITED' } as const
/** gRPC status codes after which the same request may succeed: a timeout, too many requests, or a server that is stopping. */
const passing: ReadonlySet<number> = new Set([4, 8, 14])

/**
 * Shows a code that the person types in a browser, and waits until they have signed in. Rejects with ClientError if they refuse, or if the
 * code expires.
 */
export async function deviceLogin({ server, organisation, audiences, clock, note, wait }: DeviceSignIn): Promise<SignedIn> {
  const client = createPlatformClient({ baseUrl: server, token: undefined })
  const form = { client_id: server, audience: audiences.join(','), scope: 'openid offline_access' }
  const started = await client.call({ method: 'POST', path: oauthPaths.deviceAuthorization, form })
  const numberIn = (name: string, otherwise: number): number => (typeof started[name] === 'number' ? started[name] : otherwise)
  const code = textOf(started['user_code'])
  const link = `${server}/oauth?${new URLSearchParams({ user_code: code, idp_id: organisation }).toString()}`
  note(`Open ${textOf(started['verification_uri'])} in a browser and type the code ${code}`)
  note(`Or open ${organisation === '' ? textOf(started['verification_uri_complete']) : link} and check that it shows this code.`)
  const endMs = clock.now() + numberIn('expires_in', 600) * 1000
  let intervalMs = numberIn('interval', 5) * 1000
  while (clock.now() < endMs) {
    await wait(intervalMs)
    const tokens = await poll(client, { client_id: server, device_code: textOf(started['device_code']) })
    // RFC 8628, 3.5: add five seconds to the interval.
    if (tokens === pending.tooOften) intervalMs += 5_000
    else if (tokens !== pending.waiting) return { accessToken: textOf(tokens['access_token']), refreshToken: textOf(tokens['refresh_token']) }
  }
  throw new ClientError('the code expired: sign in again')
}

async function poll(client: PlatformClient, form: Readonly<Record<string, string>>): Promise<Json | (typeof pending)[keyof typeof pending]> {
  try {
    return await client.call({ method: 'POST', path: oauthPaths.token, form: { grant_type: deviceGrant, ...form } })
  } catch (error) {
    if (!(error instanceof ClientError)) throw error
    const reason = Object.values(pending).find((one) => one === error.reason)
    if (reason !== undefined) return reason
    // A lost connection may come back before the code expires.
    if (error.code === undefined || passing.has(error.code)) return pending.waiting
    throw error
  }
}
