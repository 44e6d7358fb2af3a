import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { JsonObject } from '@bufbuild/protobuf'
import { afterAll, beforeAll, onTestFinished } from 'vitest'
import { TestClock } from '../conformance/spec/test-clock.ts'
import { freshName, ok, startTestServer, type Organisation, type TestServer } from '../support/test-server.ts'
import { sinkAuthority, startSink, type Sink } from './sink.ts'

export const groupEvents = 'dev.taproot.api.iam.group.'
export const hourMs = 3_600_000

/** Starts a sink that ends with the test. */
export async function newSink(): Promise<Sink> {
  const sink = await startSink()
  onTestFinished(() => sink.close())
  return sink
}

/** A server for the tests of a suite. Its subscriptions reach sinks on this machine, and the tests move its clock. */
export class DeliveryGround {
  readonly clock = new TestClock()
  #server: TestServer | undefined
  #folder = ''

  constructor(store: 'sqlite' | 'etcd') {
    beforeAll(async () => {
      this.#folder = await mkdtemp(join(tmpdir(), 'taproot-test-'))
      const caFile = join(this.#folder, 'sinks.pem')
      await writeFile(caFile, sinkAuthority.certificate)
      const env = { TAPROOT_EVENTS_NETWORKS: '["127.0.0.0/8","::1"]', TAPROOT_EVENTS_CA_FILE: caFile }
      this.#server = await startTestServer({ store, clock: this.clock, env })
    })
    afterAll(async () => {
      await this.#server?.stop()
      await rm(this.#folder, { recursive: true, force: true })
    })
  }

  get server(): TestServer {
    if (this.#server === undefined) throw new Error('the server runs only during tests')
    return this.#server
  }

  /** Calls as the owner of the organisation, with a fresh token: tests move the clock. */
  readonly call = async (rpc: string, request: JsonObject, { owner }: Organisation): Promise<JsonObject> =>
    ok(await this.server.rest.call(rpc, request, { token: await this.server.tokenFor(owner) }))

  readonly subscribe = async (organisation: Organisation, sink: Sink, more: JsonObject = {}): Promise<string> => {
    const request = { parent: organisation.group, subscription: { sink: sink.url, types: [groupEvents], ...more } }
    return String((await this.call('CreateSubscription', request, organisation))['uid'])
  }

  readonly newGroup = async (organisation: Organisation, parent: string): Promise<string> =>
    String((await this.call('CreateGroup', { parent, group: { name: freshName('group') } }, organisation))['uid'])

  readonly shown = (uid: string, organisation: Organisation): Promise<JsonObject> => this.call('GetSubscription', { uid }, organisation)

  /** Waits until the subscription has these fields. Its progress is written once a second. */
  readonly untilShown = async (uid: string, organisation: Organisation, isThere: (subscription: JsonObject) => boolean): Promise<JsonObject> => {
    for (;;) {
      const subscription = await this.shown(uid, organisation)
      if (isThere(subscription)) return subscription
      await new Promise((resolve) => setTimeout(resolve, 20))
    }
  }
}
