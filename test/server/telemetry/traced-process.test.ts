import { execFile } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { promisify } from 'node:util'
import { expect, onTestFinished, test } from 'vitest'
import { makeDevHome, readToken, startDev } from '../../e2e/process/harness/dev-home.ts'
import { ServerProcess } from '../../support/parts/server-process.ts'
import { freePorts } from '../../support/parts/free-port.ts'
import { startRegistry } from '../../support/parts/registry.ts'
import { describeWithParts } from '../../support/parts/require-part.ts'
import { programEnvironment } from '../../support/parts/own-program.ts'
import { ok } from '../../support/test-server.ts'
import { isFullTier } from '../../support/tier.ts'
import { OciClient } from '../../registry/oci/oci-client.ts'
import { startTraceReceiver } from './trace-receiver.ts'

test('the packages of OpenTelemetry are loaded only if tracing is on', async () => {
  const source = resolve(import.meta.dirname, '../../../src/server')
  // prom-client loads the API package in any case.
  const script = `
    import { registerHooks } from 'node:module'
    const seen = new Set()
    registerHooks({ resolve: (name, context, next) => (name.startsWith('@opentelemetry/') && seen.add(name), next(name, context)) })
    await import('${source}/run.ts')
    const { openTracing } = await import('${source}/telemetry/tracing.ts')
    const { systemRandom: random } = await import('${source}/runtime.ts')
    const open = (env) => openTracing({ env, log: { info() {}, warn() {} }, random, role: 'api' })
    await open({})
    const off = [...seen]
    await open({ OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:9' })
    console.log(JSON.stringify({ off, on: [...seen] }))`
  const args = ['--disable-warning=ExperimentalWarning', '--input-type=module', '--eval', script]
  const { stdout } = await promisify(execFile)(process.execPath, args, { env: programEnvironment() })
  const { off, on } = JSON.parse(stdout) as { off: string[]; on: string[] } // a cast of what the script prints
  expect(off.filter((name) => name !== '@opentelemetry/api')).toEqual([])
  expect(on).toContain('@opentelemetry/sdk-trace')
})

test('a process that stops sends the spans that wait', async () => {
  const receiver = await startTraceReceiver()
  onTestFinished(() => receiver.stop())
  const home = await makeDevHome({ OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url, OTEL_BSP_SCHEDULE_DELAY: '3600000' })
  onTestFinished(() => home.rest.close())
  const started = await startDev(home)
  ok(await home.rest.call('ListGroups', {}, { token: await readToken(home), requestId: 'last' }))
  expect(receiver.spans).toEqual([])
  expect(await started.end('SIGTERM')).toMatchObject({ code: 0 })
  expect(receiver.spans.filter((span) => span.attributes['taproot.request_id'] === 'last')).toMatchObject([
    { name: 'GET /iam/v2/groups', resource: { 'taproot.role': 'dev' } },
  ])
})

/** The collector takes minutes to build, so only the full tier has it. */
const describeWithCollector: typeof describeWithParts = (...suite) => void (isFullTier && describeWithParts(...suite))

describeWithCollector(['collector', 'registry'], 'with a collector', ({ collector = '' }) => {
  test('a push is one trace of Taproot and of the upstream registry', async () => {
    const receiver = await startTraceReceiver()
    onTestFinished(() => receiver.stop())
    const [port = 0] = await freePorts(1)
    const config = {
      receivers: { otlp: { protocols: { http: { endpoint: `127.0.0.1:${port}` } } } },
      exporters: { otlp_http: { endpoint: receiver.url, compression: 'none' } },
      service: { telemetry: { metrics: { level: 'none' } }, pipelines: { traces: { receivers: ['otlp'], exporters: ['otlp_http'] } } },
    }
    const endpoint = `http://127.0.0.1:${port}`
    const isReady = (): Promise<boolean> =>
      fetch(endpoint).then(
        () => true,
        () => false,
      ) // any answer
    const process = new ServerProcess({ name: 'collector', command: [collector, `--config=yaml:${JSON.stringify(config)}`], isReady })
    await process.start()
    onTestFinished(() => process.kill())
    const registry = await startRegistry({ traces: endpoint })
    onTestFinished(() => registry.stop())
    const home = await makeDevHome({ OTEL_EXPORTER_OTLP_ENDPOINT: endpoint, TAPROOT_REGISTRY_UPSTREAM_URL: registry.url })
    onTestFinished(() => home.rest.close())
    const started = await startDev(home)
    const client = new OciClient(Number(home.env['TAPROOT_REGISTRY_PORT']), (await readFile(join(home.cwd, '.taproot', 'registry-token'), 'utf8')).trim())
    onTestFinished(() => client.close())
    await client.pushImage('demo/app', '1.0')
    await started.end('SIGTERM')
    const root = await receiver.span((span) => span.name === 'PUT manifest')
    await receiver.span((span) => span.traceId === root.traceId && span.resource['service.name'] !== 'taproot')
    const names = receiver.spans.filter((span) => span.traceId === root.traceId).map((span) => span.name)
    expect(names).toEqual(expect.arrayContaining(['PUT manifest', 'store transact', 'upstream putManifest', 'PUT']))
  })
})
