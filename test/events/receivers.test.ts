import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { createInterface, type Interface } from 'node:readline'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { JsonObject } from '@bufbuild/protobuf'
import { trustedUid } from '../../src/base/uid.ts'
import { createEventSigner, eventTokenSeconds } from '../../src/events/delivery/cloud-event.ts'
import { dataOf, isForCustomers, uuidOf } from '../../src/events/event-attributes.ts'
import type { OutboxEvent } from '../../src/gen/taproot/store/v1/envelope_pb.ts'
import type { PartName } from '../../tools/parts.js'
import { programEnvironment } from '../support/parts/own-program.ts'
import { describeWithParts } from '../support/parts/require-part.ts'
import { freshName, makeOrganisation, ok, startTestServer, type Organisation, type TestServer } from '../support/test-server.ts'
import { EventGround } from './event-ground.ts'
import { typeRows } from './type-rows.ts'

const samples = join(import.meta.dirname, '../../docs/examples/receivers')

/** The sample receivers: the required part, and the command that runs each. */
const receivers: readonly { readonly language: string; readonly part?: PartName; command(program: string): readonly string[] }[] = [
  { language: 'Node', command: () => [process.execPath, join(samples, 'node/receiver.mjs')] },
  { language: 'Go', part: 'receiver-go', command: (program) => [program] },
  { language: 'Python', part: 'receiver-python', command: (program) => [program, join(samples, 'python/receiver.py')] },
]

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

  static async start([program = '', ...args]: readonly string[], env: Readonly<Record<string, string>>): Promise<Receiver> {
    const process = spawn(program, args, { env: { ...programEnvironment(), ...env, PORT: '0' }, stdio: ['ignore', 'pipe', 'pipe'] })
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

  /** Resolves with the next event that the receiver handled. */
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

const terms = [{ id: 'terms', label: 'Terms', url: 'https://example.com/terms' }]

let server: TestServer
let ground: EventGround
let organisation: Organisation
let event: OutboxEvent

beforeAll(async () => {
  server = await startTestServer({ keepsContent: false, env: { TAPROOT_TERMS: JSON.stringify(terms) } })
  ground = new EventGround(server)
  organisation = await makeOrganisation(server)
  const [created] = await ground.stored({ type: 'api.iam.group.created.v1', subject: organisation.group })
  if (created === undefined) throw new Error('no event')
  event = created
  await makeEveryType()
})
afterAll(() => server.stop())

/** Creates an event of each type, each in its own organisation. */
async function makeEveryType(): Promise<void> {
  for (const row of Object.values(typeRows)) {
    const own = await makeOrganisation(server)
    const call = async (rpc: string, request: JsonObject, token = own.token): Promise<JsonObject> => ok(await server.rest.call(rpc, request, { token }))
    await row({ ...own, server, call, make: async (rpc, request) => String((await call(rpc, request))['uid']) })
  }
}

for (const { language, part, command } of receivers) {
  describeWithParts(part === undefined ? [] : [part], `the sample receiver for ${language}`, (programs) => {
    checkReceiver(command(part === undefined ? '' : (programs[part] ?? '')))
  })
}

function checkReceiver(command: readonly string[]): void {
  let receiver: Receiver

  beforeAll(async () => {
    receiver = await Receiver.start(command, { ISSUER: server.config.baseUrl, GROUP: organisation.group })
  })
  afterAll(() => receiver.stop())

  const requestOf = async (of = event, group = organisation.group) => ground.signer.requestOf(of, trustedUid(group))

  // docs/spec/events.md#event-tokens
  test('accepts events with only the issuer URL configured, and reads their content', async () => {
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

  test('accepts an event of each type', async () => {
    const events = (await ground.all()).filter(isForCustomers)
    expect(new Set(events.map(({ type }) => type)).size).toBeGreaterThanOrEqual(Object.keys(typeRows).length)
    for (const one of events) {
      expect(await receiver.post(await requestOf(one)), one.type).toBe(200)
      expect(await receiver.handled()).toMatchObject({ id: uuidOf(one), type: one.type, subject: one.subject, data: dataOf(one) })
    }
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
      'a body that is not a CloudEvent',
      400,
      async () => {
        const { headers, body } = await requestOf()
        const { 'Ce-Id': _id, ...rest } = headers
        return { headers: rest, body }
      },
    ],
  ]
  test.each(refused)('refuses %s with status %i', async (_what, status, request) => {
    expect(await receiver.post(await request())).toBe(status)
    expect(await receiver.post(await requestOf())).toBe(200)
    // Nothing else was handled in between.
    expect((await receiver.handled())['id']).toBe(event.id)
  })
}

function withToken({ headers, body }: { headers: Readonly<Record<string, string>>; body: Uint8Array }, token: string | undefined) {
  const { Authorization: _token, ...rest } = headers
  return { headers: token === undefined ? rest : { ...rest, Authorization: token }, body }
}
