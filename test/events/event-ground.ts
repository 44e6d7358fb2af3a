import { fromBinary, fromJson, toJson, type JsonObject, type JsonValue } from '@bufbuild/protobuf'
import { createRemoteJWKSet, jwtVerify } from 'jose'
import { createHash } from 'node:crypto'
import { expect } from 'vitest'
import { registry } from '../../src/base/schema/schema.ts'
import { rootOf, trustedUid } from '../../src/base/uid.ts'
import { outboxPrefix } from '../../src/engine/log/outbox-keys.ts'
import { createEventSigner, type EventSigner } from '../../src/events/delivery/cloud-event.ts'
import { OutboxEventSchema, type OutboxEvent } from '../../src/gen/taproot/store/v1/envelope_pb.ts'
import { entriesOf } from '../../src/store/pages.ts'
import { methodOf } from '../support/api-clients.ts'
import type { TestServer } from '../support/test-server.ts'

/** The fixed parts of an event. Id, time and tokens are checked for their form. */
export interface ExpectedEvent {
  /** The type without `dev.taproot.`. */
  readonly type: string
  readonly subject: string
  readonly group: string
  /** The path of the method, or a complete source. */
  readonly source: string
  /** The type without `taproot.`; absent for a null body. */
  readonly bodyType?: string
  readonly body: JsonValue
  readonly identityProvider?: string
  readonly actor: { readonly subject: string; readonly act?: JsonObject }
  readonly traceparent?: string
}

/** Returns an answer in the form of events: proto JSON without default values. */
export function asEventBody(rpc: string, answer: JsonObject): JsonObject {
  const { output } = methodOf(rpc)
  return toJson(output, fromJson(output, answer, { registry }), { registry }) as JsonObject
}

const noClaims = { aud: '', iss: '', sub: '', email: '', 'aws-acct': '', 'aws-arn': '' }

/** Returns the `act` of an event with all members in order; missing claims are empty. */
export function actOf(claims: JsonObject = {}): JsonObject {
  return { ...noClaims, ...claims }
}

/** The events in a server's outbox, as requests. */
export class EventGround {
  readonly server: TestServer
  readonly signer: EventSigner
  readonly #jwks: ReturnType<typeof createRemoteJWKSet>

  constructor(server: TestServer) {
    const { eventKeys, services } = server.running.engine
    this.server = server
    this.signer = createEventSigner({ issuer: server.config.baseUrl, keys: eventKeys, clock: services.clock, random: services.random })
    this.#jwks = createRemoteJWKSet(new URL(`http://127.0.0.1:${server.config.api.port}/.well-known/jwks.json`))
  }

  /** All stored events. */
  async all(): Promise<OutboxEvent[]> {
    const events: OutboxEvent[] = []
    const { store } = this.server.running.engine
    for await (const { value } of entriesOf(store, { prefix: outboxPrefix }, AbortSignal.timeout(30_000))) events.push(fromBinary(OutboxEventSchema, value))
    return events
  }

  /** The stored events of a type, about a subject. */
  async stored({ type, subject }: Pick<ExpectedEvent, 'type' | 'subject'>): Promise<OutboxEvent[]> {
    return (await this.all()).filter((event) => event.type === `dev.taproot.${type}` && event.subject === subject)
  }

  /** Checks headers, token and body of the request that carries the only event of this type and subject. */
  async expectEvent(expected: ExpectedEvent): Promise<void> {
    const [event, ...others] = await this.stored(expected)
    expect(others).toEqual([])
    if (event === undefined) throw new Error(`no event of type ${expected.type} about ${expected.subject}`)
    await this.expectRequest(event, expected)
  }

  /** Checks headers, token and body of the request that carries an event. */
  async expectRequest(event: OutboxEvent, expected: ExpectedEvent): Promise<void> {
    const { baseUrl } = this.server.config
    const { actor, bodyType, identityProvider, source, traceparent } = expected
    const group = expected.group === '/' || expected.group === '' ? trustedUid('0'.repeat(40)) : rootOf(trustedUid(expected.group))
    const { headers, body } = await this.signer.requestOf(event, group)
    const { Authorization: authorization, ...attributes } = headers
    expect(attributes).toEqual({
      'Ce-Id': expect.stringMatching(/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/) as unknown,
      'Ce-Specversion': '1.0',
      'Ce-Type': `dev.taproot.${expected.type}`,
      'Ce-Source': source.startsWith('/') ? `${baseUrl}${source}` : source,
      'Ce-Subject': expected.subject,
      'Ce-Time': new Date(Number(event.timeMs)).toISOString(),
      'Ce-Group': expected.group,
      'Ce-Audience': 'customer',
      ...(bodyType === undefined ? {} : { 'Ce-Bodytype': `taproot.${bodyType}` }),
      ...(identityProvider === undefined ? {} : { 'Ce-Identityprovider': identityProvider }),
      ...(actor.subject === '' ? {} : { 'Ce-Actor': actor.subject }),
      ...(traceparent === undefined ? {} : { traceparent }),
      'Content-Type': 'application/json',
    })
    const data = { actor: { subject: actor.subject, act: actor.act ?? actOf() }, body: expected.body }
    expect(Buffer.from(body).toString()).toBe(JSON.stringify(data))
    await this.#expectToken(authorization ?? '', { group, body })
  }

  async #expectToken(authorization: string, { group, body }: { group: string; body: Uint8Array }): Promise<void> {
    const nowMs = this.server.running.engine.services.clock.now()
    const { payload, protectedHeader } = await jwtVerify(authorization.replace(/^Bearer /, ''), this.#jwks, { currentDate: new Date(nowMs) })
    expect(protectedHeader).toEqual({ alg: 'ES256', typ: 'JWT', kid: this.server.running.engine.eventKeys.current().kid })
    const { iat = 0 } = payload
    expect(payload).toEqual({
      iss: this.server.config.baseUrl,
      aud: 'customer',
      sub: `webhook:${group}`,
      webhook: { digest: `sha256:${createHash('sha256').update(body).digest('hex')}` },
      iat: expect.any(Number) as unknown,
      exp: iat + 3600,
      jti: expect.stringMatching(/^[0-9a-f]{32}$/) as unknown,
    })
  }
}
