import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { createInterface, type Interface } from 'node:readline'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { JsonObject } from '@bufbuild/protobuf'
import { trustedUid } from '../../src/base/uid.ts'
import { createEventSigner, eventTokenSeconds } from '../../src/events/delivery/cloud-event.ts'
import type { OutboxEvent } from '../../src/gen/taproot/store/v1/envelope_pb.ts'
import { programEnvironment } from '../support/parts/own-program.ts'
import { freshName, makeOrganisation, ok, startTestServer, type Organisation, type TestServer } from '../support/test-server.ts'
import { EventGround } from './event-ground.ts'

const program = join(import.meta.dirname, '../../docs/examples/receivers/node/receiver.mjs')

/** A sample receiver that runs as its own process. */
class Receiver {
  readonly #process: ChildProcess
  readonly #events: AsyncIterableIterator<string>
  readonly #port: number

  private constructor(process: ChildProcess, lines: Interface, port: number) {
    this.#process = process
    this.#events = lines[Symbol.asyncIterator]()
    this.#port = port
  }

  static async start(env: Readonly<Record<string, string>>): Promise<Receiver> {
    const process = spawn(globalThis.process.execPath, [program], { env: { ...programEnvironment(), ...env, PORT: '0' }, stdio: ['ignore', 'pipe', 'pipe'] })
    const [line] = (await once(createInterface(process.stderr), 'line')) as [string] // a cast of the event's arguments
    const port = Number(/port (\d+)$/.exec(line)?.[1])
    if (Number.isNaN(port)) throw new Error(`the receiver did not start: ${line}`)
    return new Receiver(process, createInterface(process.stdout), port)
  }

  /** Posts a request; resolves with its status. */
  async post({ headers, body }: { headers: Readonly<Record<string, string>>; body: Uint8Array }): Promise<number> {
    const response = await fetch(`http://127.0.0.1:${this.#port}/`, { method: 'POST', headers, body: Buffer.from(body) })
    await response.arrayBuffer()
    return response.status
  }

  /** The next event that the receiver handled. */
  async handled(): Promise<JsonObject> {
    const next = await this.#events.next()
    if (next.done === true) throw new Error('the receiver has ended')
    return JSON.parse(next.value) as JsonObject
  }

  async stop(): Promise<void> {
    this.#process.kill()
    await once(this.#process, 'exit')
  }
}

describe('the sample receiver for Node', () => {
  let server: TestServer
  let ground: EventGround
  let organisation: Organisation
  let receiver: Receiver
  let event: OutboxEvent

  beforeAll(async () => {
    server = await startTestServer()
    ground = new EventGround(server)
    organisation = await makeOrganisation(server)
    receiver = await Receiver.start({ ISSUER: server.config.baseUrl, GROUP: organisation.group })
    const [created] = await ground.stored({ type: 'api.iam.group.created.v1', subject: organisation.group })
    if (created === undefined) throw new Error('no event')
    event = created
  })
  afterAll(async () => {
    await receiver.stop()
    await server.stop()
  })

  const requestOf = async (of = event, group = organisation.group) => ground.signer.requestOf(of, trustedUid(group))

  // docs/spec/events.md#event-tokens
  test('accepts events with nothing but the URL of the issuer, and reads what they say', async () => {
    const { group, token, owner } = organisation
    const name = freshName('team')
    const made = ok(await server.rest.call('CreateGroup', { parent: group, group: { name, description: 'a "quoted" café ☃' } }, { token }))
    const subject = String(made['uid'])
    const [created] = await ground.stored({ type: 'api.iam.group.created.v1', subject })
    expect(await receiver.post(await requestOf(created))).toBe(200)
    const handled = await receiver.handled()
    expect(handled).toMatchObject({ type: 'dev.taproot.api.iam.group.created.v1', subject, group: subject })
    expect(handled['data']).toMatchObject({ actor: { subject: owner }, body: { uid: subject, name, description: 'a "quoted" café ☃' } })
  })

  const refused: readonly (readonly [what: string, status: number, request: () => Promise<Parameters<Receiver['post']>[0]>])[] = [
    [
      'a changed body',
      403,
      async () => {
        const { headers, body } = await requestOf()
        return { headers, body: Buffer.from(Buffer.from(body).toString().replace('"body":{', '"body":{"x":1,')) }
      },
    ],
    ["another group's token", 403, () => requestOf(event, 'd'.repeat(40))],
    [
      'an expired token',
      403,
      async () => {
        const { services, eventKeys } = server.running.engine
        const clock = { now: () => services.clock.now() - (eventTokenSeconds + 1) * 1000 }
        const earlier = createEventSigner({ issuer: server.config.baseUrl, keys: eventKeys, clock, random: services.random })
        return earlier.requestOf(event, trustedUid(organisation.group))
      },
    ],
    [
      'the token of another issuer',
      403,
      () => {
        const { services, eventKeys } = server.running.engine
        return createEventSigner({ ...services, issuer: 'https://other.example', keys: eventKeys }).requestOf(event, trustedUid(organisation.group))
      },
    ],
    ['an access token', 403, async () => withToken(await requestOf(), `Bearer ${organisation.token}`)],
    ['no token', 401, async () => withToken(await requestOf(), undefined)],
    [
      'no CloudEvent',
      400,
      async () => {
        const { headers, body } = await requestOf()
        const { 'Ce-Id': _id, ...rest } = headers
        return { headers: rest, body }
      },
    ],
  ]
  test.each(refused)('refuses %s: %i', async (_what, status, request) => {
    expect(await receiver.post(await request())).toBe(status)
    expect(await receiver.post(await requestOf())).toBe(200)
    // Nothing else was handled in between.
    expect((await receiver.handled())['id']).toBe(event.id)
  })
})

function withToken({ headers, body }: { headers: Readonly<Record<string, string>>; body: Uint8Array }, token: string | undefined) {
  const { Authorization: _token, ...rest } = headers
  return { headers: token === undefined ? rest : { ...rest, Authorization: token }, body }
}
