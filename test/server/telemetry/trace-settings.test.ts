import { expect, test } from 'vitest'
import { readTraceSettings, type TraceSettings } from '../../../src/server/telemetry/trace-settings.ts'

const url = 'http://collector:4318'

/** Reads variables, with the names of those that a warning begins with. */
function read(env: Readonly<Record<string, string>>): { readonly settings: TraceSettings | undefined; readonly warned: readonly string[] } {
  const lines: string[] = []
  const settings = readTraceSettings(env, (line) => lines.push(line))
  return { settings, warned: lines.map((line) => line.slice(0, line.indexOf(':'))) }
}

test('an endpoint turns tracing on, with the defaults of OpenTelemetry', () => {
  const defaults = { settings: { sampling: { ratio: 1, obeysNotSampled: true }, queue: {} }, warned: [] }
  expect(read({ OTEL_EXPORTER_OTLP_ENDPOINT: url })).toEqual(defaults)
  expect(read({ OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: `${url}/v1/traces`, OTEL_EXPORTER_OTLP_PROTOCOL: 'http/protobuf' })).toEqual(defaults)
})

test.each([
  ['without an endpoint', {}],
  ['with an empty endpoint', { OTEL_EXPORTER_OTLP_ENDPOINT: ' ' }],
  ['if the SDK is disabled', { OTEL_EXPORTER_OTLP_ENDPOINT: url, OTEL_SDK_DISABLED: 'true' }],
  ['without an exporter of traces', { OTEL_EXPORTER_OTLP_ENDPOINT: url, OTEL_TRACES_EXPORTER: 'none' }],
])('tracing is off %s', (_when, env) => expect(read(env)).toEqual({ settings: undefined, warned: [] }))

test.each([
  ['OTEL_TRACES_EXPORTER', 'zipkin'],
  ['OTEL_EXPORTER_OTLP_PROTOCOL', 'grpc'],
  ['OTEL_EXPORTER_OTLP_TRACES_PROTOCOL', 'http/json'],
  ['OTEL_EXPORTER_OTLP_TRACES_ENDPOINT', 'collector:4318'],
  ['OTEL_EXPORTER_OTLP_ENDPOINT', 'http://'],
])('tracing is off with a warning if %s is %s', (name, value) => {
  expect(read({ OTEL_EXPORTER_OTLP_ENDPOINT: url, [name]: value })).toEqual({ settings: undefined, warned: [name] })
})

test.each([
  ['always_on', undefined, { ratio: 1, obeysNotSampled: false }, []],
  ['always_off', undefined, { ratio: 0, obeysNotSampled: false }, []],
  ['traceidratio', '0.25', { ratio: 0.25, obeysNotSampled: false }, []],
  ['parentbased_always_off', undefined, { ratio: 0, obeysNotSampled: true }, []],
  ['parentbased_traceidratio', '0', { ratio: 0, obeysNotSampled: true }, []],
  ['parentbased_traceidratio', '2', { ratio: 1, obeysNotSampled: true }, ['OTEL_TRACES_SAMPLER_ARG']],
  ['parentbased_traceidratio', 'half', { ratio: 1, obeysNotSampled: true }, ['OTEL_TRACES_SAMPLER_ARG']],
  ['jaeger_remote', undefined, { ratio: 1, obeysNotSampled: true }, ['OTEL_TRACES_SAMPLER']],
  ['toString', undefined, { ratio: 1, obeysNotSampled: true }, ['OTEL_TRACES_SAMPLER']],
])('the sampler %s with the argument %s', (sampler, argument, sampling, warned) => {
  const env = { OTEL_EXPORTER_OTLP_ENDPOINT: url, OTEL_TRACES_SAMPLER: sampler, ...(argument && { OTEL_TRACES_SAMPLER_ARG: argument }) }
  expect(read(env)).toEqual({ settings: { sampling, queue: {} }, warned })
})

test('the limits of the queue are numbers above 0', () => {
  const env = { OTEL_EXPORTER_OTLP_ENDPOINT: url, OTEL_BSP_MAX_QUEUE_SIZE: '100', OTEL_BSP_EXPORT_TIMEOUT: '0', OTEL_BSP_SCHEDULE_DELAY: 'soon' }
  expect(read(env)).toMatchObject({ settings: { queue: { maxQueueSize: 100 } }, warned: ['OTEL_BSP_SCHEDULE_DELAY', 'OTEL_BSP_EXPORT_TIMEOUT'] })
})
