import { createHmac } from 'node:crypto'
import type { Random } from '../../base/runtime.ts'

/** The message to sign with a Standard Webhooks signature. */
export interface SignedWebhook {
  readonly id: string
  readonly body: Uint8Array
  readonly nowMs: number
}

const secretPrefix = 'whsec_'
const secretBytes = { least: 24, most: 64, made: 32 } as const

/** Returns a new secret in its text form: `whsec_` and base64. */
export function createWebhookSecret(random: Random): string {
  return `${secretPrefix}${Buffer.from(random.bytes(secretBytes.made)).toString('base64')}`
}

/** Returns the bytes of a secret; undefined unless the text is `whsec_` and the base64 of 24 to 64 bytes. */
export function parseWebhookSecret(text: string): Uint8Array | undefined {
  const encoded = text.startsWith(secretPrefix) ? text.slice(secretPrefix.length) : ''
  const bytes = Buffer.from(encoded, 'base64')
  const isWhole = bytes.toString('base64') === encoded && bytes.length >= secretBytes.least && bytes.length <= secretBytes.most
  return isWhole ? bytes : undefined
}

/**
 * Returns the headers of the Standard Webhooks specification, with one signature for each secret, in order
 * (docs/spec/events.md#standard-webhooks). Throws TypeError if there is no secret, or if one is invalid.
 */
export function standardSignature({ id, body, nowMs }: SignedWebhook, secrets: readonly string[]): Readonly<Record<string, string>> {
  if (secrets.length === 0) throw new TypeError('a webhook needs a secret')
  const timestamp = String(Math.floor(nowMs / 1000))
  const signatures = secrets.map((secret) => {
    const key = parseWebhookSecret(secret)
    if (key === undefined) throw new TypeError('a webhook secret is invalid')
    return `v1,${createHmac('sha256', key).update(`${id}.${timestamp}.`).update(body).digest('base64')}`
  })
  return { 'webhook-id': id, 'webhook-timestamp': timestamp, 'webhook-signature': signatures.join(' ') }
}
