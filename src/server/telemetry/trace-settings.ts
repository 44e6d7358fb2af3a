import type { Environment } from '../../config/environment.ts'

/** How traces are sampled: a root sampler, and whether a caller can exclude its requests from traces. */
export interface Sampling {
  /** The part of traces that is recorded, from 0 to 1. */
  readonly ratio: number
  /** True if a request whose `traceparent` says that its trace is not recorded has no spans. */
  readonly obeysNotSampled: boolean
}

/** The settings of tracing that the exporter and the resource do not read themselves. */
export interface TraceSettings {
  readonly sampling: Sampling
  /** Limits of the queue of spans: `OTEL_BSP_*`. Undefined values have the defaults of OpenTelemetry. */
  readonly queue: {
    readonly maxQueueSize?: number
    readonly maxExportBatchSize?: number
    readonly scheduledDelayMillis?: number
    readonly exportTimeoutMillis?: number
  }
}

/** The samplers of `OTEL_TRACES_SAMPLER`. */
const samplers = {
  always_on: () => ({ ratio: 1, obeysNotSampled: false }),
  always_off: () => ({ ratio: 0, obeysNotSampled: false }),
  traceidratio: (ratio) => ({ ratio, obeysNotSampled: false }),
  parentbased_always_on: () => ({ ratio: 1, obeysNotSampled: true }),
  parentbased_always_off: () => ({ ratio: 0, obeysNotSampled: true }),
  parentbased_traceidratio: (ratio) => ({ ratio, obeysNotSampled: true }),
} satisfies Readonly<Record<string, (argument: number) => Sampling>>
const defaultSampler = 'parentbased_always_on'

const queueVariables = {
  maxQueueSize: 'OTEL_BSP_MAX_QUEUE_SIZE',
  maxExportBatchSize: 'OTEL_BSP_MAX_EXPORT_BATCH_SIZE',
  scheduledDelayMillis: 'OTEL_BSP_SCHEDULE_DELAY',
  exportTimeoutMillis: 'OTEL_BSP_EXPORT_TIMEOUT',
} as const satisfies Record<keyof TraceSettings['queue'], string>

const endpointVariables = ['OTEL_EXPORTER_OTLP_TRACES_ENDPOINT', 'OTEL_EXPORTER_OTLP_ENDPOINT']
const protocolVariables = ['OTEL_EXPORTER_OTLP_TRACES_PROTOCOL', 'OTEL_EXPORTER_OTLP_PROTOCOL']

/** The first of these variables that is not empty. */
function firstOf(env: Environment, names: readonly string[]): { readonly name: string; readonly value: string } | undefined {
  for (const name of names) {
    const value = env[name]?.trim() ?? ''
    if (value !== '') return { name, value }
  }
  return undefined
}

function samplingOf(env: Environment, warn: (line: string) => void): Sampling {
  const name = firstOf(env, ['OTEL_TRACES_SAMPLER'])?.value ?? defaultSampler
  const given = firstOf(env, ['OTEL_TRACES_SAMPLER_ARG'])?.value ?? '1'
  const ratio = /^[0-9.]+$/.test(given) ? Number(given) : NaN
  const isRatio = ratio >= 0 && ratio <= 1
  if (!isRatio) warn(`OTEL_TRACES_SAMPLER_ARG: must be a number from 0 to 1; 1 is used`)
  const sampler = Object.entries(samplers).find(([known]) => known === name)?.[1]
  if (sampler === undefined) warn(`OTEL_TRACES_SAMPLER: must be one of ${Object.keys(samplers).join(', ')}; ${defaultSampler} is used`)
  return (sampler ?? samplers[defaultSampler])(isRatio ? ratio : 1)
}

function queueOf(env: Environment, warn: (line: string) => void): TraceSettings['queue'] {
  const found: Partial<Record<keyof TraceSettings['queue'], number>> = {}
  for (const [option, variable] of Object.entries(queueVariables) as [keyof typeof queueVariables, string][]) {
    const given = firstOf(env, [variable])?.value
    if (given === undefined) continue
    if (/^[1-9]\d{0,8}$/.test(given)) found[option] = Number(given)
    else warn(`${variable}: must be a whole number above 0; its default is used`)
  }
  return found
}

/**
 * Reads the standard variables of OpenTelemetry. Returns undefined if tracing is off: without an endpoint, if it is disabled, or if a variable asks for
 * something that is not supported. `warn` gets one line for each variable that is not used as given. A variable that is meant for other programs never
 * keeps this one from starting.
 */
export function readTraceSettings(env: Environment, warn: (line: string) => void): TraceSettings | undefined {
  const endpoint = firstOf(env, endpointVariables)
  if (endpoint === undefined || env['OTEL_SDK_DISABLED']?.trim().toLowerCase() === 'true') return undefined
  const exporter = firstOf(env, ['OTEL_TRACES_EXPORTER'])?.value ?? 'otlp'
  if (exporter === 'none') return undefined
  const off = (problem: string): undefined => void warn(`${problem}; tracing is off`)
  if (exporter !== 'otlp') return off('OTEL_TRACES_EXPORTER: must be otlp or none')
  const protocol = firstOf(env, protocolVariables)
  if (protocol !== undefined && protocol.value !== 'http/protobuf') return off(`${protocol.name}: must be http/protobuf, which collectors accept on port 4318`)
  if (!/^https?:\/\/[^/]/.test(endpoint.value) || !URL.canParse(endpoint.value)) return off(`${endpoint.name}: must be an http or https URL`)
  return { sampling: samplingOf(env, warn), queue: queueOf(env, warn) }
}
