import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createServer, request as httpRequest, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import type { Tracing } from '../../../src/base/tracing.ts'
import { trustedUid } from '../../../src/base/uid.ts'
import type { RunningTracing } from '../../../src/server/telemetry/tracing.ts'
import { sinkAuthority, startSink } from '../../events/sink.ts'
import { OciClient } from '../../registry/oci/oci-client.ts'
import { importDocuments, osvDocument } from '../../support/import-advisories.ts'
import { startRegistry, type DistributionRegistry } from '../../support/parts/registry.ts'
import { describeWithPart } from '../../support/parts/require-part.ts'
import { freshName, makeOrganisation, ok, startTestServer, type Organisation, type TestServer } from '../../support/test-server.ts'
import { openTracingWith } from './open-tracing.ts'
import { startTraceReceiver, type ReceivedSpan, type TraceReceiver } from './trace-receiver.ts'

const quiet = { debug() {}, info() {}, warn() {}, error() {} }
let requests = 0

/** A header `traceparent` of a caller, and its trace id. */
function callerSpan({ sampled = true } = {}): { readonly traceparent: string; readonly traceId: string; readonly spanId: string } {
  requests += 1
  const [traceId, spanId] = [requests.toString(16).padStart(32, 'a'), requests.toString(16).padStart(16, 'b')]
  return { traceparent: `00-${traceId}-${spanId}-${sampled ? '01' : '00'}`, traceId, spanId }
}

/** Starts an HTTP server that passes requests on to another, and keeps their headers. */
async function startRecorder(target: string): Promise<{ readonly url: string; readonly seen: IncomingMessage[]; stop(): Promise<void> }> {
  const seen: IncomingMessage[] = []
  const server = createServer((request, response) => {
    seen.push(request)
    const { method = '', url = '', headers } = request
    const passed = httpRequest(new URL(url, target), { method, headers }, (answer) => answer.pipe(response.writeHead(answer.statusCode ?? 0, answer.headers)))
    request.pipe(passed.on('error', () => response.destroy()))
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo // it listens on TCP
  return {
    url: `http://127.0.0.1:${port}`,
    seen,
    async stop() {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
}

describeWithPart('registry', 'tracing of a whole server', () => {
  let receiver: TraceReceiver
  let tracing: RunningTracing
  let registry: DistributionRegistry
  let recorder: Awaited<ReturnType<typeof startRecorder>>
  let server: TestServer
  let organisation: Organisation
  let client: OciClient
  let name: string
  let folder: string

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'taproot-tracing-'))
    const caFile = join(folder, 'sinks.pem')
    await writeFile(caFile, sinkAuthority.certificate)
    receiver = await startTraceReceiver()
    tracing = await openTracingWith(
      { OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url, OTEL_EXPORTER_OTLP_HEADERS: 'x-tenant=one', OTEL_SERVICE_NAME: 'mine', OTEL_BSP_SCHEDULE_DELAY: '20' },
      quiet,
    )
    registry = await startRegistry()
    recorder = await startRecorder(registry.url)
    server = await startTestServer({
      env: {
        TAPROOT_REGISTRY_UPSTREAM_URL: recorder.url,
        TAPROOT_EVENTS_NETWORKS: '["127.0.0.0/8","::1"]',
        TAPROOT_EVENTS_CA_FILE: caFile,
      },
      tracing,
    })
    organisation = await makeOrganisation(server)
    const { group, owner, token } = organisation
    name = String(ok(await server.rest.call('GetGroup', { uid: group }, { token }))['name'])
    const act = { issuer: server.devIssuer.issuer, subject: 'owner', audience: server.config.registry.host }
    const minted = await server.running.signIn.tokens.mint({ identityUid: trustedUid(owner), audiences: [server.config.registry.host], act, restrictions: {} })
    client = new OciClient(server.config.registry.port, minted.token)
  })
  afterAll(async () => {
    client.close()
    await server.stop()
    await tracing.close()
    await recorder.stop()
    await registry.stop()
    await receiver.stop()
    await rm(folder, { recursive: true })
  })

  const inTrace = (traceId: string): readonly ReceivedSpan[] => receiver.spans.filter((span) => span.traceId === traceId)

  test('a push is one trace: the request, the calls to the store and to the upstream, and the requests that the upstream gets', async () => {
    const repository = `${name}/${freshName('app')}`
    const manifest = await client.image(repository)
    const caller = callerSpan()
    const answer = await client.send('PUT', `/v2/${repository}/manifests/1.0`, {
      body: manifest.bytes,
      headers: {
        'content-type': manifest.mediaType,
        traceparent: caller.traceparent,
        baggage: 'user=secret-baggage',
        tracestate: 'vendor=1',
        'x-request-id': 'push-1',
      },
    })
    expect(answer.status).toBe(201)
    const root = await receiver.span((span) => span.traceId === caller.traceId && span.name === 'PUT manifest')
    expect(root).toMatchObject({
      kind: 'server',
      parentSpanId: caller.spanId,
      failed: false,
      attributes: {
        'http.request.method': 'PUT',
        'http.response.status_code': 201,
        'taproot.request_id': 'push-1',
        'taproot.identity_uid': organisation.owner,
        'taproot.repository': repository,
      },
      resource: { 'service.name': 'mine', 'taproot.role': 'dev' },
    })
    const spans = inTrace(caller.traceId)
    const put = spans.find((span) => span.name === 'upstream putManifest')
    expect(put?.parentSpanId).toBe(root.spanId)
    const sent = spans.find((span) => span.kind === 'client' && span.name === 'PUT')
    expect(sent).toMatchObject({ parentSpanId: put?.spanId, attributes: { 'http.response.status_code': 201, 'server.address': '127.0.0.1' } })
    expect(spans.find((span) => span.name === 'store transact')).toMatchObject({ kind: 'client', attributes: { 'db.system.name': 'sqlite' } })
    const received = recorder.seen.find(({ headers }) => headers['traceparent']?.includes(caller.traceId) && headers['content-type'] === manifest.mediaType)
    expect(received?.headers).toMatchObject({ traceparent: `00-${caller.traceId}-${sent?.spanId ?? ''}-01` })
    expect(received?.headers).not.toHaveProperty('baggage')
    expect(received?.headers).not.toHaveProperty('tracestate')
    expect(receiver.requests.at(-1)).toMatchObject({ 'x-tenant': 'one', 'content-type': 'application/x-protobuf' })
  })

  test.each(['rest', 'grpc'] as const)('a call over %s has a span with its method, the caller and the id of the request', async (transport) => {
    const { group, token } = organisation
    const requestId = freshName(transport)
    ok(await server[transport].call('CreateGroup', { parent: group, group: { name: freshName('group') } }, { token, requestId }))
    const root = await receiver.span((span) => span.kind === 'server' && span.attributes['taproot.request_id'] === requestId)
    const shared = { 'taproot.method': 'GroupsService.CreateGroup', 'taproot.identity_uid': organisation.owner }
    const own =
      transport === 'rest'
        ? { 'http.request.method': 'POST', 'http.route': '/iam/v2/groups/{parent=**}', 'http.response.status_code': 200 }
        : { 'rpc.system.name': 'grpc', 'rpc.method': 'taproot.iam.v2.GroupsService/CreateGroup', 'rpc.response.status_code': 'OK' }
    expect(root).toMatchObject({
      name: transport === 'rest' ? 'POST /iam/v2/groups/{parent=**}' : own['rpc.method'],
      parentSpanId: '',
      attributes: { ...shared, ...own },
    })
    expect(inTrace(root.traceId).map((span) => span.name)).toContain('store transact')
  })

  test('a refused call does not fail its span, and has no identity', async () => {
    const requestId = freshName('refused')
    expect((await server.rest.call('ListGroups', {}, { token: 'no-token', requestId })).code).toBe(16)
    const root = await receiver.span((span) => span.attributes['taproot.request_id'] === requestId)
    expect(root).toMatchObject({ failed: false, attributes: { 'http.response.status_code': 401 } })
    expect(root.attributes).not.toHaveProperty('taproot.identity_uid')
  })

  test('a sign-in to the registry host has a span', async () => {
    const caller = callerSpan()
    const { host } = server.config.registry
    expect((await client.send('GET', `/token?service=${host}`, { headers: { traceparent: caller.traceparent } })).status).toBe(200)
    const root = await receiver.span((span) => span.traceId === caller.traceId && span.kind === 'server')
    expect(root).toMatchObject({
      name: 'GET token',
      kind: 'server',
      attributes: { 'taproot.identity_uid': organisation.owner, 'http.response.status_code': 200 },
    })
  })

  test('the delivery of an event begins a trace, which links to the request that caused the event', async () => {
    const { group, token } = organisation
    const sink = await startSink()
    onTestFinished(() => sink.close())
    const subscription = { sink: sink.url, types: ['dev.taproot.api.iam.group.'] }
    const { uid } = ok(await server.rest.call('CreateSubscription', { parent: group, subscription }, { token }))
    const caller = callerSpan()
    const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json', traceparent: caller.traceparent }
    const body = JSON.stringify({ name: freshName('group') })
    expect((await fetch(`${server.config.baseUrl}/iam/v2/groups/${group}`, { method: 'POST', headers, body })).status).toBe(200)
    const delivery = await receiver.span((span) => span.name === 'event delivery' && span.links.includes(caller.traceId))
    expect(delivery).toMatchObject({
      kind: 'internal',
      parentSpanId: '',
      failed: false,
      attributes: { 'taproot.event_type': expect.stringContaining('iam.group.created'), 'taproot.subscription_uid': uid, 'http.response.status_code': 200 },
    })
    expect(delivery.traceId).not.toBe(caller.traceId)
  })

  test('an import of catalogues is one trace', async () => {
    await importDocuments(server, organisation.group, [osvDocument(freshName('OSV'))])
    const root = await receiver.span((span) => span.name === 'catalogue import')
    expect(root).toMatchObject({
      failed: false,
      attributes: { 'taproot.import.documents': 1, 'taproot.import.refused': 0, 'taproot.import.kinds': 'advisories vulnerabilities' },
    })
    expect(inTrace(root.traceId).map((span) => span.name)).toEqual(expect.arrayContaining(['store transact', 'upstream putManifest']))
  })

  test('a failure of the upstream fails the spans of the request', async () => {
    const repository = `${name}/${freshName('app')}`
    const manifest = await client.image(repository)
    await registry.kill()
    const caller = callerSpan()
    const headers = { 'content-type': manifest.mediaType, traceparent: caller.traceparent }
    const answer = await client.send('PUT', `/v2/${repository}/manifests/1.0`, { body: manifest.bytes, headers })
    await registry.restart()
    expect(answer.status).toBe(503)
    const root = await receiver.span((span) => span.traceId === caller.traceId && span.kind === 'server')
    expect(root).toMatchObject({ failed: true, attributes: { 'error.type': '503' } })
    expect(inTrace(caller.traceId).filter((span) => span.failed && span.name.startsWith('upstream '))).not.toEqual([])
  })

  test('the metrics of the server count the spans that the collector accepted', async () => {
    const counted = async (): Promise<string[]> => {
      const text = await (await fetch(`http://127.0.0.1:${server.config.ops.port}/metrics`)).text()
      return [...text.matchAll(/^taproot_trace_spans_total\{outcome="(\w+)"\} [1-9]/gm)].map(([, outcome = '']) => outcome)
    }
    await server.rest.call('ListGroups', {}, { token: organisation.token })
    await expect.poll(counted).toEqual(['sent'])
  })

  test('no span contains a credential', async () => {
    const bytes = receiver.bytes()
    expect(bytes.includes(organisation.owner)).toBe(true)
    for (const secret of [organisation.token, 'secret-baggage', 'Bearer', 'Basic ']) expect(bytes.includes(secret)).toBe(false)
  })
})

/** Counts how many of 400 requests with this header are recorded. */
async function recordedOf(tracing: Tracing, traceparent: () => string | undefined): Promise<number> {
  let recorded = 0
  for (let at = 0; at < 400; at++)
    await tracing.span({ kind: 'request', name: 'GET', traceparent: traceparent() }, async () => void (recorded += tracing.traceparent() === undefined ? 0 : 1))
  return recorded
}

describe('sampling', () => {
  const half = { OTEL_TRACES_SAMPLER: 'parentbased_traceidratio', OTEL_TRACES_SAMPLER_ARG: '0.5' }
  const none = { OTEL_TRACES_SAMPLER: 'parentbased_always_off' }
  let receiver: TraceReceiver

  beforeAll(async () => {
    receiver = await startTraceReceiver()
  })
  afterAll(() => receiver.stop())

  const tracingWith = async (env: Readonly<Record<string, string>> = {}): Promise<RunningTracing> => {
    const tracing = await openTracingWith({ OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url, ...env }, quiet)
    onTestFinished(() => tracing.close())
    return tracing
  }

  test('a caller can not choose that its requests are recorded: neither by the flag nor by the trace id', async () => {
    const [off, some] = [await tracingWith(none), await tracingWith(half)]
    expect(await recordedOf(off, () => callerSpan().traceparent)).toBe(0)
    // The sampler of OpenTelemetry would record each of them: the flag is set, and the id is the lowest.
    const recorded = await recordedOf(some, () => `00-${'1'.padStart(32, '0')}-${'1'.padStart(16, '0')}-01`)
    expect(recorded).toBeGreaterThan(100)
    expect(recorded).toBeLessThan(300)
  })

  test('a caller whose trace is not recorded has no spans, unless the sampler does not ask its parent', async () => {
    const { traceparent } = callerSpan({ sampled: false })
    expect(await recordedOf(await tracingWith(), () => traceparent)).toBe(0)
    expect(await recordedOf(await tracingWith({ OTEL_TRACES_SAMPLER: 'always_on' }), () => traceparent)).toBe(400)
  })

  test('work that is not recorded has no spans inside, and parts of no work have none', async () => {
    const [off, on] = [await tracingWith(none), await tracingWith()]
    const inside = (tracing: Tracing): Promise<string | undefined> => tracing.span({ kind: 'client', name: 'x' }, () => Promise.resolve(tracing.traceparent()))
    expect(await off.span({ kind: 'request', name: 'GET' }, () => inside(off))).toBeUndefined()
    expect(await inside(on)).toBeUndefined()
    expect(await on.span({ kind: 'job', name: 'job' }, () => inside(on))).toMatch(/^00-[0-9a-f]{32}-[0-9a-f]{16}-01$/)
  })
})

describe('a collector that fails', () => {
  const limits = { OTEL_BSP_MAX_QUEUE_SIZE: '10', OTEL_BSP_MAX_EXPORT_BATCH_SIZE: '5', OTEL_BSP_SCHEDULE_DELAY: '1' }

  async function start(env: Readonly<Record<string, string>> = {}) {
    const receiver = await startTraceReceiver()
    const lines: string[] = []
    const log = { ...quiet, info: (message: string) => void lines.push(message), warn: (message: string) => void lines.push(message) }
    const tracing = await openTracingWith({ OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url, ...limits, ...env }, log)
    lines.length = 0
    onTestFinished(() => receiver.stop())
    return { receiver, tracing, lines, make: (name: string) => tracing.span({ kind: 'job', name }, () => Promise.resolve()) }
  }

  test('is logged once, and logged again when it accepts spans', async () => {
    const { receiver, tracing, lines, make } = await start()
    const accept = receiver.answer
    receiver.answer = (response) => response.writeHead(400).end()
    for (let at = 1; at <= 4; at++) {
      await make('lost')
      await expect.poll(() => receiver.requests.length).toBe(at)
    }
    await expect.poll(() => tracing.counts()).toEqual({ sent: 0, refused: 4, dropped: 0 })
    receiver.answer = accept
    await expect
      .poll(async () => {
        await make('kept')
        return lines
      })
      .toEqual(['the collector does not accept traces', 'the collector accepts traces again'])
    await tracing.close()
  })

  test('delays no work, and at most the queue and one batch wait for it', async () => {
    const { receiver, tracing, make } = await start()
    const accept = receiver.answer
    const waiting: ServerResponse[] = []
    receiver.answer = (response) => void waiting.push(response)
    for (let at = 0; at < 5; at++) await make('first')
    await expect.poll(() => waiting.length).toBe(1)
    for (let at = 0; at < 1000; at++) await make('later')
    expect(receiver.spans).toHaveLength(5)
    receiver.answer = accept
    for (const response of waiting) accept(response)
    expect(tracing.counts().dropped).toBe(990)
    await tracing.close()
    expect(receiver.spans).toHaveLength(15)
    expect(tracing.counts()).toEqual({ sent: 15, refused: 0, dropped: 990 })
  })

  test('keeps the process from ending for a few seconds only', async () => {
    // Without a limit, this test would take ten minutes.
    const { receiver, tracing, make } = await start({ OTEL_EXPORTER_OTLP_TIMEOUT: '600000', OTEL_BSP_EXPORT_TIMEOUT: '600000' })
    receiver.answer = () => undefined
    await make('last')
    await tracing.close()
    expect(receiver.requests).toHaveLength(1)
  })
})
