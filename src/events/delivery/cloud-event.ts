import { hash } from 'node:crypto'
import { signEs256 } from '../../auth/keys/es256.ts'
import { RecentMap } from '../../base/recent-map.ts'
import { randomHex, type Clock, type Random } from '../../base/runtime.ts'
import type { Uid } from '../../base/uid.ts'
import type { OutboxEvent } from '../../gen/taproot/store/v1/envelope_pb.ts'
import { attributesOf, customerAudience, dataOf, isForCustomers, uuidOf } from '../event-attributes.ts'
import type { EventKeys } from './event-keys.ts'
import type { EventRequest } from './sink-client.ts'
import { standardSignature } from './standard-webhooks.ts'

/**
 * Builds the requests that deliver events: CloudEvents 1.0 over HTTP in binary mode (docs/spec/events.md#requests). All methods reject for
 * an internal event, and for an event whose payload cannot be decoded.
 */
export interface EventSigner {
  /**
   * Returns the request for the subscriptions of `group`, with a token that is valid for at least half an hour. Each event is signed only
   * once for each group.
   */
  requestOf(event: OutboxEvent, group: Uid): Promise<EventRequest>
  /**
   * Returns the request with signatures by shared secrets instead of a token. The signatures contain the current time, so call it for each
   * attempt.
   */
  standardRequestOf(event: OutboxEvent, secrets: readonly string[]): Promise<EventRequest>
}

/** Dependencies of an event signer. */
export interface EventSignerOptions {
  /** `iss` of the tokens: the platform's base URL. */
  readonly issuer: string
  readonly keys: Pick<EventKeys, 'current'>
  readonly clock: Clock
  readonly random: Random
}

/** How long the token of an event is valid, in seconds (docs/spec/events.md#event-tokens). */
export const eventTokenSeconds = 3600
/** How long a token is reused, in milliseconds. */
const reuseMs = (eventTokenSeconds * 1000) / 2
/** Maximum size of the caches of bodies and of signed requests, in bytes each, which other subscriptions and attempts reuse. */
const keptBytes = 8 * 1024 * 1024

/** The part of a request that is the same for all groups. */
interface UnsignedEvent {
  readonly headers: Readonly<Record<string, string>>
  readonly body: Uint8Array
  /** `sha256:` and the digest in hex. */
  readonly digest: string
}

interface SignedRequest {
  readonly request: EventRequest
  readonly issuedAtMs: number
}

/** Attributes with a standard HTTP header of the same name. */
const plainHeaders: ReadonlySet<string> = new Set(['traceparent'])

/** Characters that headers carry as they are, except `"` and `%`. */
const plainValue = /^[\x21\x23\x24\x26-\x7e]*$/

/** Returns an attribute's value as HTTP headers carry it: percent-encoded as the CloudEvents HTTP binding requires. */
function headerValue(value: string): string {
  if (plainValue.test(value)) return value
  return value
    .toWellFormed()
    .replaceAll(/[^\x21-\x7e]|["%]/gu, (character) =>
      [...Buffer.from(character)].map((byte) => `%${byte.toString(16).toUpperCase().padStart(2, '0')}`).join(''),
    )
}

/** Names what is the same for all subscriptions. The same event may exist with and without an e-mail address. */
function nameOf({ id, actorClaims }: OutboxEvent): string {
  return `${id} ${actorClaims['email'] ?? ''}`
}

/** Returns the approximate memory that a request takes, in bytes. */
function bytesOf({ body }: Pick<EventRequest, 'body'>): number {
  return body.length + 2048
}

function headerName(attribute: string): string {
  return plainHeaders.has(attribute) ? attribute : `Ce-${attribute.charAt(0).toUpperCase()}${attribute.slice(1)}`
}

function unsignedOf(event: OutboxEvent): UnsignedEvent {
  if (!isForCustomers(event)) throw new TypeError(`event ${event.id} is internal`)
  const attributes = Object.entries(attributesOf(event)).map(([name, value]) => [headerName(name), headerValue(value)] as const)
  const body = Buffer.from(JSON.stringify(dataOf(event)))
  return {
    headers: { ...Object.fromEntries(attributes), 'Content-Type': 'application/json' },
    body,
    digest: `sha256:${hash('sha256', body, 'hex')}`,
  }
}

/** Creates an EventSigner. */
export function createEventSigner({ issuer, keys, clock, random }: EventSignerOptions): EventSigner {
  const unsigned = new RecentMap<string, UnsignedEvent>(keptBytes, bytesOf)
  const signed = new RecentMap<string, SignedRequest>(keptBytes, ({ request }) => bytesOf(request))

  function known(event: OutboxEvent, name: string): UnsignedEvent {
    const found = unsigned.get(name)
    if (found !== undefined) return found
    const made = unsignedOf(event)
    unsigned.set(name, made)
    return made
  }

  function sign(digest: string, group: Uid, issuedAtMs: number): string {
    const iat = Math.floor(issuedAtMs / 1000)
    const { header, privateKey } = keys.current()
    const claims = {
      iss: issuer,
      aud: customerAudience,
      sub: `webhook:${group}`,
      webhook: { digest },
      iat,
      exp: iat + eventTokenSeconds,
      jti: randomHex(random, 16),
    }
    return signEs256(header, claims, privateKey)
  }

  return {
    async requestOf(event, group) {
      const name = nameOf(event)
      const nowMs = clock.now()
      const found = signed.get(`${name} ${group}`)
      const age = found === undefined ? Infinity : nowMs - found.issuedAtMs
      if (found !== undefined && age >= 0 && age < reuseMs) return found.request
      const { headers, body, digest } = known(event, name)
      const request = { headers: { ...headers, Authorization: `Bearer ${sign(digest, group, nowMs)}` }, body }
      signed.set(`${name} ${group}`, { request, issuedAtMs: nowMs })
      return request
    },
    async standardRequestOf(event, secrets) {
      const { headers, body } = known(event, nameOf(event))
      return { headers: { ...headers, ...standardSignature({ id: uuidOf(event), body, nowMs: clock.now() }, secrets) }, body }
    },
  }
}
