import { createHash, createHmac } from 'node:crypto'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { HTTP, type CloudEvent } from 'cloudevents'
import { createRemoteJWKSet, jwtVerify } from 'jose'
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest'
import type { JsonObject } from '@bufbuild/protobuf'
import { freshName, makeOrganisation, makePerson, ok, roleUid, startTestServer, type Organisation, type TestServer } from '../support/test-server.ts'
import { sinkAuthority, startSink, type Received, type Sink } from './sink.ts'

let server: TestServer
let folder: string
let organisation: Organisation
let sink: Sink

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'taproot-test-'))
  const caFile = join(folder, 'sinks.pem')
  await writeFile(caFile, sinkAuthority.certificate)
  server = await startTestServer({ env: { TAPROOT_EVENTS_NETWORKS: '["127.0.0.0/8","::1"]', TAPROOT_EVENTS_CA_FILE: caFile } })
  organisation = await makeOrganisation(server)
  sink = await startSink()
  const subscription = { sink: sink.url, types: ['dev.taproot.api.iam.group.'] }
  ok(await server.rest.call('CreateSubscription', { parent: organisation.group, subscription }, { token: organisation.token }))
})
afterAll(async () => {
  await sink.close()
  await server.stop()
  await rm(folder, { recursive: true, force: true })
})

/** Makes a group; resolves with the request about it. */
async function delivered(token: string): Promise<Received> {
  const made = ok(await server.rest.call('CreateGroup', { parent: organisation.group, group: { name: freshName('team') } }, { token }))
  const subject = String(made['uid'])
  await sink.until(() => sink.about(subject).length > 0)
  const [received] = sink.about(subject)
  if (received === undefined) throw new Error('nothing arrived')
  return received
}

interface EventData {
  readonly actor: { readonly subject: string; readonly act: JsonObject }
  readonly body: JsonObject
}

function dataOf({ headers, body }: Received): EventData {
  const event = HTTP.toEvent({ headers: headers, body }) as CloudEvent<EventData> // a cast: it is no batch
  if (event.data === undefined) throw new Error('the event has no data')
  return event.data
}

// docs/spec/events.md#requests
test('a sink receives a CloudEvent with a token for its body and group', async () => {
  const received = await delivered(organisation.token)
  expect(dataOf(received)).toMatchObject({ actor: { subject: organisation.owner }, body: { uid: received.headers['ce-subject'] } })
  const keys = createRemoteJWKSet(new URL(`http://127.0.0.1:${server.config.api.port}/.well-known/jwks.json`))
  const { payload } = await jwtVerify(String(received.headers.authorization).replace('Bearer ', ''), keys, {
    issuer: server.config.baseUrl,
    audience: 'customer',
    subject: `webhook:${organisation.group}`,
    algorithms: ['ES256'],
  })
  expect(payload['webhook']).toEqual({ digest: `sha256:${createHash('sha256').update(received.body).digest('hex')}` })
})

// docs/spec/events.md#actors
test('the e-mail address of a person is shown once they have joined the organisation', async () => {
  const { issuer } = server.devIssuer
  const subject = freshName('person')
  const email = `${subject}@example.com`
  const person = await makePerson(server, { issuer, subject, email })
  const roleBinding = { identityUid: person.uid, roleUid: roleUid('owner') }
  ok(await server.rest.call('CreateRoleBinding', { parent: organisation.group, roleBinding }, { token: organisation.token }))
  const before = dataOf(await delivered(person.token)).actor
  expect(before).toMatchObject({ subject: person.uid, act: { sub: subject, email: '' } })
  ok(await server.rest.call('JoinGroup', { uid: organisation.group }, { token: person.token }))
  expect(dataOf(await delivered(person.token)).actor.act).toMatchObject({ email })
})

// docs/spec/events.md#standard-webhooks
test('while secrets are replaced, each event is signed by all secrets whose overlap has not ended', async () => {
  const { token } = organisation
  const call = (rpc: string, request: JsonObject): ReturnType<typeof server.rest.call> => server.rest.call(rpc, request, { token })
  const webhook = await startSink()
  onTestFinished(() => webhook.close())
  const subscription = { sink: webhook.url, types: ['dev.taproot.api.iam.group.'], signing: 'STANDARD_WEBHOOKS' }
  const { uid = '', secret = '' } = ok(await call('CreateSubscription', { parent: organisation.group, subscription }))
  /** Each secret, and how many events had arrived when it was known. */
  const secrets = [{ secret: String(secret), since: 0 }]
  for (let number = 0; number < 8; number += 1) {
    await Promise.all([delivered(token), delivered(token)])
    const rotated = ok(await call('RotateSubscriptionSecret', { uid, overlap: '3600s' }))
    secrets.push({ secret: String(rotated['secret']), since: webhook.received.length })
  }
  await delivered(token)
  await webhook.until((received) => received.length === 17)
  for (const [at, { headers, body }] of webhook.received.entries()) {
    const signed = `${headers['webhook-id']?.toString()}.${headers['webhook-timestamp']?.toString()}.${body}`
    const by = ({ secret: text }: { secret: string }): string =>
      `v1,${createHmac('sha256', Buffer.from(text.slice('whsec_'.length), 'base64'))
        .update(signed)
        .digest('base64')}`
    expect(String(headers['webhook-signature']).split(' ')).toEqual(expect.arrayContaining(secrets.filter(({ since }) => since <= at - 2).map(by)))
  }
  expect(await call('RotateSubscriptionSecret', { uid })).toMatchObject({ code: 9 })
  ok(await call('RotateSubscriptionSecret', { uid, overlap: '0s' }))
  const subject = (await delivered(token)).headers['ce-subject']?.toString() ?? ''
  await webhook.until(() => webhook.about(subject).length > 0)
  expect(webhook.about(subject)[0]?.headers['webhook-signature']).toMatch(/^v1,[^ ]+$/)
})
