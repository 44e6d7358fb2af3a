import { create, toBinary, toJson, type MessageInitShape } from '@bufbuild/protobuf'
import { HTTP } from 'cloudevents'
import fc from 'fast-check'
import { Webhook } from 'standardwebhooks'
import { describe, expect, test } from 'vitest'
import { createKeyring } from '../../src/auth/keys/sealing.ts'
import type { Random } from '../../src/base/runtime.ts'
import { trustedUid } from '../../src/base/uid.ts'
import { createEventKeys } from '../../src/events/delivery/event-keys.ts'
import { createEventSigner, eventTokenSeconds } from '../../src/events/delivery/cloud-event.ts'
import { createWebhookSecret, parseWebhookSecret } from '../../src/events/delivery/standard-webhooks.ts'
import { isForCustomers, structuredOf } from '../../src/events/event-attributes.ts'
import { eventOf as feedEventOf } from '../../src/events/records/event-form.ts'
import { EventSchema } from '../../src/gen/taproot/events/v2/events_pb.ts'
import { DeleteGroupRequestSchema } from '../../src/gen/taproot/iam/v2/groups_pb.ts'
import { OutboxEventSchema, type OutboxEvent } from '../../src/gen/taproot/store/v1/envelope_pb.ts'
import { freshStore, random, signal, testClock } from '../auth/parts.ts'
import { freshName } from '../support/test-server.ts'

const group = trustedUid('a'.repeat(40))
const uid = `${group}/${'b'.repeat(16)}`

function eventOf(change: MessageInitShape<typeof OutboxEventSchema> = {}): OutboxEvent {
  return create(OutboxEventSchema, {
    id: '7bf8dc42-1c4d-4b5a-9d0e-3f2a1b0c9d8e',
    type: 'dev.taproot.api.iam.group.deleted.v1',
    source: 'https://platform.example/iam/v2/groups',
    subject: uid,
    group,
    timeMs: 1_784_000_000_123n,
    bodyType: DeleteGroupRequestSchema.typeName,
    body: toBinary(DeleteGroupRequestSchema, create(DeleteGroupRequestSchema, { uid })),
    actorSubject: `${group}/${'c'.repeat(16)}`,
    actorClaims: { iss: 'https://issuer.example', sub: 'ci', aud: 'platform' },
    ...change,
  })
}

async function signerOf() {
  const store = await freshStore()
  const clock = testClock()
  const keyring = await createKeyring({ store, keyEncryptionKey: Buffer.alloc(32, 7), random }, signal)
  const keys = await createEventKeys({ store, keyring, clock }, signal)
  return { clock, signer: createEventSigner({ issuer: 'https://platform.example', keys, clock, random }) }
}

// docs/spec/events.md#requests
describe('the request for an event', () => {
  test('the request for an event has headers that no character breaks, and that a receiver decodes to the same text', async () => {
    const { signer } = await signerOf()
    const subject = 'a b"c%20é☃😀\u007f~!'
    const { headers, body } = await signer.requestOf(eventOf({ subject, bodyType: '', body: new Uint8Array() }), group)
    expect(headers['Ce-Subject']).toBe('a%20b%22c%2520%C3%A9%E2%98%83%F0%9F%98%80%7F~!')
    const event = HTTP.toEvent({ headers: lowerCase(headers), body: Buffer.from(body).toString() })
    expect(Array.isArray(event)).toBe(false)
    expect(decodeURIComponent(headers['Ce-Subject'] ?? '')).toBe(subject)
  })

  test('the request for an event encodes every text reversibly', async () => {
    const { signer } = await signerOf()
    await fc.assert(
      fc.asyncProperty(fc.string({ unit: 'binary', minLength: 1 }), async (subject) => {
        const { headers } = await signer.requestOf(eventOf({ id: freshName('id'), subject }), group)
        expect(headers['Ce-Subject']).toMatch(/^[\x21\x23-\x7e]+$/)
        expect(decodeURIComponent(headers['Ce-Subject'] ?? '')).toBe(subject.toWellFormed())
      }),
      { numRuns: 300 },
    )
  })

  test('the request for an event leaves out attributes that are empty', async () => {
    const { signer } = await signerOf()
    const { headers } = await signer.requestOf(eventOf({ subject: '', actorSubject: '', bodyType: '', body: new Uint8Array() }), group)
    for (const name of ['Ce-Subject', 'Ce-Actor', 'Ce-Bodytype', 'Ce-Identityprovider', 'traceparent']) expect(headers).not.toHaveProperty(name)
  })

  test('the request for an event stored by an earlier version has a uuid, always the same', async () => {
    const { signer } = await signerOf()
    const event = eventOf({ id: '0123456789abcdef0123456789abcdef' })
    expect((await signer.requestOf(event, group)).headers['Ce-Id']).toBe('01234567-89ab-4def-8123-456789abcdef')
    expect(structuredOf(event)['id']).toBe('01234567-89ab-4def-8123-456789abcdef')
  })

  // docs/spec/events.md#event-bodies
  test('the request for an event has a body with fixed bytes', async () => {
    const { signer } = await signerOf()
    const { body } = await signer.requestOf(eventOf(), group)
    const act = '{"aud":"platform","iss":"https://issuer.example","sub":"ci","email":"","aws-acct":"","aws-arn":""}'
    expect(Buffer.from(body).toString()).toBe(`{"actor":{"subject":"${group}/cccccccccccccccc","act":${act}},"body":{"uid":"${uid}"}}`)
  })

  test('the request for an event shows only the documented claims of the actor', async () => {
    const { signer } = await signerOf()
    const { body } = await signer.requestOf(eventOf({ actorClaims: { iss: 'kubernetes', token: 'secret' } }), group)
    const { actor } = JSON.parse(Buffer.from(body).toString()) as { actor: { act: unknown } }
    expect(actor.act).toEqual({ aud: '', iss: 'kubernetes', sub: '', email: '', 'aws-acct': '', 'aws-arn': '' })
  })
})

// docs/spec/events.md#event-tokens
describe('the token of an event', () => {
  test('the token of an event is created once for an event and a group, and again when it is half expired', async () => {
    const { signer, clock } = await signerOf()
    const token = async (of: OutboxEvent, at = group): Promise<string> => (await signer.requestOf(of, at)).headers['Authorization'] ?? ''
    const first = await token(eventOf())
    expect(await token(eventOf())).toBe(first)
    expect(await token(eventOf(), trustedUid('d'.repeat(40)))).not.toBe(first)
    expect(await token(eventOf({ id: 'e9c1b7e4-0000-4000-8000-000000000000' }))).not.toBe(first)
    clock.advance(eventTokenSeconds * 500)
    const second = await token(eventOf())
    expect(second).not.toBe(first)
    clock.advance(-eventTokenSeconds * 500 - 1)
    expect(await token(eventOf())).not.toBe(second)
  })

  test('the token of an event differs between groups, which share the bytes of the body', async () => {
    const { signer } = await signerOf()
    const one = await signer.requestOf(eventOf(), group)
    const two = await signer.requestOf(eventOf(), trustedUid('d'.repeat(40)))
    expect(two.body).toBe(one.body)
  })
})

// docs/spec/events.md#internal-events
describe('an internal event', () => {
  const internal = eventOf({ type: 'dev.taproot.api.iam.identity.metadata.updated.v1', internal: true, group: '' })

  test('an internal event is not delivered to customers', () => {
    expect([isForCustomers(internal), isForCustomers(eventOf())]).toEqual([false, true])
  })

  test('an internal event is never turned into a request', async () => {
    const { signer } = await signerOf()
    await expect(signer.requestOf(internal, group)).rejects.toThrow('internal')
    await expect(signer.standardRequestOf(internal, [createWebhookSecret(random)])).rejects.toThrow('internal')
  })
})

// docs/spec/events.md#requests
test('structured mode has the same attributes and data as binary mode', async () => {
  const { signer } = await signerOf()
  const event = eventOf({ traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01' })
  const { headers, body } = await signer.requestOf(event, group)
  const { data, datacontenttype, ...attributes } = structuredOf(event)
  expect(data).toEqual(JSON.parse(Buffer.from(body).toString()))
  expect(datacontenttype).toBe(headers['Content-Type'])
  const sent = lowerCase(headers)
  for (const [name, value] of Object.entries(attributes)) expect(decodeURIComponent(sent[name === 'traceparent' ? name : `ce-${name}`] ?? '')).toBe(value)
})

// docs/spec/events.md#feed
test('the feed has the same attributes and data as a request, without the trace context', () => {
  const event = eventOf({ id: '0123456789abcdef0123456789abcdef', traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01' })
  const { traceparent: _trace, ...structured } = structuredOf(event)
  expect(toJson(EventSchema, feedEventOf(event))).toEqual(structured)
})

function lowerCase(headers: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]))
}

// docs/spec/events.md#standard-webhooks
describe('a request signed with shared secrets', () => {
  /** The library takes the time from the machine. */
  async function signedNow(secrets: readonly string[]) {
    const { signer, clock } = await signerOf()
    clock.advance(Date.now() - clock.now())
    return { ...(await signer.standardRequestOf(eventOf(), secrets)), clock, signer }
  }

  test('a request signed with shared secrets is verified by each of these secrets, and by no other', async () => {
    const [old, current, other] = [createWebhookSecret(random), createWebhookSecret(random), createWebhookSecret(random)]
    const { headers, body } = await signedNow([current, old])
    const text = Buffer.from(body).toString()
    for (const secret of [old, current]) expect(new Webhook(secret).verify(text, { ...headers })).toEqual(JSON.parse(text))
    expect(() => new Webhook(other).verify(text, { ...headers })).toThrow()
    expect(() => new Webhook(current).verify(`${text} `, { ...headers })).toThrow()
    expect(headers['webhook-signature']?.split(' ')).toHaveLength(2)
  })

  test('a request signed with shared secrets has the attributes of the event, no token, and the event id as message id', async () => {
    const { headers, signer } = await signedNow([createWebhookSecret(random)])
    const { Authorization: token, ...attributes } = (await signer.requestOf(eventOf(), group)).headers
    expect(token).toMatch(/^Bearer /)
    expect(headers).toMatchObject(attributes)
    expect(headers).not.toHaveProperty('Authorization')
    expect(headers['webhook-id']).toBe(headers['Ce-Id'])
  })

  test('a request signed with shared secrets is signed again for each attempt', async () => {
    const { headers, clock, signer } = await signedNow([createWebhookSecret(random)])
    clock.advance(60_000)
    const later = await signer.standardRequestOf(eventOf(), [createWebhookSecret(random)])
    expect(Number(later.headers['webhook-timestamp']) - Number(headers['webhook-timestamp'])).toBe(60)
    expect(later.headers['webhook-id']).toBe(headers['webhook-id'])
  })

  test('a request signed with shared secrets needs at least one secret', async () => {
    const { signer } = await signerOf()
    await expect(signer.standardRequestOf(eventOf(), [])).rejects.toThrow('a secret')
    await expect(signer.standardRequestOf(eventOf(), ['whsec_'])).rejects.toThrow('invalid')
  })

  const ofLength = (length: number): string => `whsec_${Buffer.alloc(length, 5).toString('base64')}`
  const texts: readonly (readonly [what: string, text: string, bytes: number | undefined])[] = [
    ['24 bytes (accepted)', ofLength(24), 24],
    ['64 bytes (accepted)', ofLength(64), 64],
    ['23 bytes (refused)', ofLength(23), undefined],
    ['65 bytes (refused)', ofLength(65), undefined],
    ['no prefix (refused)', ofLength(32).slice(6), undefined],
    ['another alphabet (refused)', `whsec_${Buffer.alloc(32, 0xff).toString('base64url')}`, undefined],
    ['a new line (refused)', `${ofLength(32)}\n`, undefined],
    ['no text (refused)', '', undefined],
  ]
  test.each(texts)('a shared secret with %s', (_, text, bytes) => {
    expect(parseWebhookSecret(text)?.length).toBe(bytes)
  })

  test('a new secret is 32 random bytes', () => {
    const fixed: Random = { bytes: (count) => new Uint8Array(count).fill(9) }
    expect(createWebhookSecret(fixed)).toBe(`whsec_${Buffer.alloc(32, 9).toString('base64')}`)
  })
})
