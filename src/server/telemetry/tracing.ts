import { setTimeout as delay } from 'node:timers/promises'
import type { Attributes, Context, Counter, Link, Meter, MeterProvider, Span as RecordedSpan, SpanContext, SpanKind } from '@opentelemetry/api'
import type { SpanExporter } from '@opentelemetry/sdk-trace'
import { errorText } from '../../base/error-text.ts'
import type { Log } from '../../base/log.ts'
import { fractionOf, type Random } from '../../base/runtime.ts'
import { noSpan, type Span, type SpanAttributes, type SpanCounts, type SpanStart, type Tracing } from '../../base/tracing.ts'
import type { Environment } from '../../config/environment.ts'
import { version } from '../version.ts'
import { readTraceSettings, type Sampling, type TraceSettings } from './trace-settings.ts'

/** The longest time to send the last spans when the process ends, in milliseconds. */
const flushMs = 3_000
/** The shortest time between two log lines about a collector that does not accept spans, in milliseconds. */
const quietMs = 5 * 60_000
/** The longest text of an attribute, in characters. With the size of the queue, this limits the memory of spans. */
const maxTextLength = 256

/** Tracing of a process. */
export interface RunningTracing extends Tracing {
  /** Sends the spans that wait, for at most three seconds. Never rejects. */
  close(): Promise<void>
}

/** Dependencies of tracing. */
export interface TracingOptions {
  readonly env: Environment
  readonly log: Log
  readonly random: Random
  /** The role of the process. */
  readonly role: string
}

/** The packages of OpenTelemetry. They are loaded only if tracing is on, because that takes a few hundred milliseconds. */
export async function loadPackages() {
  const [api, sdk, { OTLPTraceExporter }, { AsyncLocalStorageContextManager }, resources] = await Promise.all([
    import('@opentelemetry/api'),
    import('@opentelemetry/sdk-trace'),
    import('@opentelemetry/exporter-trace-otlp-proto'),
    import('@opentelemetry/context-async-hooks'),
    import('@opentelemetry/resources'),
  ])
  return { api, sdk, OTLPTraceExporter, AsyncLocalStorageContextManager, resources }
}

type Packages = Awaited<ReturnType<typeof loadPackages>>

const traceparentPattern = /^(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})$/

/** The flag of `traceparent` that says that the caller records its trace. */
const sampledFlag = 1

/** The span that a header `traceparent` names; undefined if there is none, or if it is malformed. Drops `tracestate` and baggage, which strangers write. */
function remoteSpan(traceparent: string | undefined): SpanContext | undefined {
  const [, traceId, spanId, flags] = traceparentPattern.exec(traceparent ?? '') ?? []
  if (traceId === undefined || spanId === undefined || flags === undefined) return undefined
  return { traceId, spanId, traceFlags: Number.parseInt(flags, 16), isRemote: true }
}

/**
 * Decides at the start of a request or job whether its trace is recorded. No header of a caller can make this process record more than its ratio. The decision
 * is random, and does not depend on the trace id. What is not recorded costs only this decision.
 */
function isRecorded(caller: SpanContext | undefined, { ratio, obeysNotSampled }: Sampling, random: Random): boolean {
  const isSampled = caller === undefined || (caller.traceFlags & sampledFlag) !== 0
  return (isSampled || !obeysNotSampled) && fractionOf(random) < ratio
}

/** Wraps an exporter: logs that the collector does not accept spans, at most once in five minutes, and logs when it does again. */
function withLog(exporter: SpanExporter, log: Log): SpanExporter {
  let lost = 0
  let quietUntilMs = -Infinity
  return {
    export(spans, done) {
      exporter.export(spans, (result) => {
        if (result.code === 0) {
          if (lost > 0) log.info('the collector accepts traces again', { lostSpans: lost })
          lost = 0
        } else {
          lost += spans.length
          if (performance.now() >= quietUntilMs) {
            quietUntilMs = performance.now() + quietMs
            log.warn('the collector does not accept traces', { lostSpans: lost, error: errorText(result.error).slice(0, maxTextLength) })
          }
        }
        done(result)
      })
    },
    shutdown: () => exporter.shutdown(),
    ...(exporter.forceFlush && { forceFlush: () => exporter.forceFlush?.() ?? Promise.resolve() }),
  }
}

/** The counter of the SDK of spans that left its queue, or did not get into it. */
const processed = 'otel.sdk.processor.span.processed'

/** Counts what becomes of spans, from what the SDK tells about itself. Keeps no other of its metrics. */
class SpanCounter implements MeterProvider {
  readonly #noop: Meter
  readonly #counts = { sent: 0, refused: 0, dropped: 0 }

  /** `noop` is a meter that does nothing. */
  constructor(noop: Meter) {
    this.#noop = noop
  }

  get counts(): SpanCounts {
    return this.#counts
  }

  getMeter(): Meter {
    const add = (count: number, attributes?: Attributes): void => {
      const error = attributes?.['error.type']
      this.#counts[error === undefined ? 'sent' : error === 'queue_full' ? 'dropped' : 'refused'] += count
    }
    const createCounter = (name: string): Counter => (name === processed ? { add } : this.#noop.createCounter(name))
    // The other members of a meter are methods of its prototype.
    return Object.assign(Object.create(this.#noop) as Meter, { createCounter })
  }
}

/** The attribute `error.type`: the kind, reason or name of an error. Never its message, which may contain anything. */
function errorTypeOf(error: unknown): string {
  if (!(error instanceof Error)) return 'unknown'
  for (const key of ['kind', 'reason', 'code'] as const) {
    const value: unknown = key in error ? (error as Error & Partial<Record<typeof key, unknown>>)[key] : undefined // any error may have it
    if (typeof value === 'string' && /^[\w-]{1,64}$/.test(value)) return value
  }
  return error.name
}

/** Attributes without those that are undefined. */
function definedOf(attributes: SpanAttributes = {}): Record<string, string | number | boolean> {
  const defined: Record<string, string | number | boolean> = {}
  for (const [name, value] of Object.entries(attributes)) if (value !== undefined) defined[name] = value
  return defined
}

class OtelTracing implements RunningTracing {
  readonly #packages: Packages
  readonly #sampling: Sampling
  readonly #random: Random
  readonly #provider: InstanceType<Packages['sdk']['TracerProvider']>
  readonly #tracer: ReturnType<InstanceType<Packages['sdk']['TracerProvider']>['getTracer']>
  readonly #contexts: InstanceType<Packages['AsyncLocalStorageContextManager']>
  readonly #spanCounter: SpanCounter
  readonly #kinds: Readonly<Record<SpanStart['kind'], SpanKind>>

  constructor(packages: Packages, settings: TraceSettings, { log, random, role }: Omit<TracingOptions, 'env'>) {
    const { api, sdk, OTLPTraceExporter, AsyncLocalStorageContextManager, resources } = packages
    const { CLIENT, INTERNAL, SERVER } = api.SpanKind
    this.#packages = packages
    this.#sampling = settings.sampling
    this.#random = random
    this.#kinds = { request: SERVER, job: INTERNAL, client: CLIENT, part: INTERNAL }
    this.#spanCounter = new SpanCounter(api.createNoopMeter())
    const queue = { ...settings.queue, selfObsMeterProvider: this.#spanCounter }
    // No part is registered globally: tracing reaches the code only as `Tracing`.
    this.#contexts = new AsyncLocalStorageContextManager().enable()
    const own = { 'service.name': 'taproot', 'service.version': version(), 'taproot.role': role }
    const detectors = [resources.serviceInstanceIdDetector, resources.hostDetector, resources.resourceAttributesEnvDetector, resources.serviceNameEnvDetector]
    this.#provider = new sdk.TracerProvider({
      sampler: new sdk.AlwaysOnSampler(),
      resource: resources.defaultResource().merge(resources.resourceFromAttributes(own)).merge(resources.detectResources({ detectors })),
      spanLimits: { attributeValueLengthLimit: maxTextLength },
      spanProcessors: [new sdk.BatchSpanProcessor({ ...queue, exporter: withLog(new OTLPTraceExporter(), log) })],
    })
    this.#tracer = this.#provider.getTracer('taproot', version())
  }

  span<T>(start: SpanStart, work: (span: Span) => Promise<T>): Promise<T> {
    const { kind, traceparent } = start
    if (kind === 'request' || kind === 'job') return this.#trace(start, remoteSpan(traceparent), work)
    if (this.#active() === undefined) return work(noSpan)
    return this.#recorded({ start, context: this.#contexts.active(), links: [] }, work)
  }

  annotate(attributes: SpanAttributes): void {
    this.#active()?.setAttributes(definedOf(attributes))
  }

  traceparent(): string | undefined {
    const span = this.#active()?.spanContext()
    return span && `00-${span.traceId}-${span.spanId}-01`
  }

  counts(): SpanCounts {
    return this.#spanCounter.counts
  }

  async close(): Promise<void> {
    const ended = new AbortController()
    const sent = this.#provider.shutdown().catch(() => undefined) // withLog logged it
    await Promise.race([sent, delay(flushMs, undefined, { signal: ended.signal }).catch(() => undefined)])
    ended.abort()
    this.#contexts.disable()
  }

  /** The span of the current work; undefined if it has none, or if it is not recorded. */
  #active(): RecordedSpan | undefined {
    const span = this.#packages.api.trace.getSpan(this.#contexts.active())
    return span?.isRecording() === true ? span : undefined
  }

  /** Begins a trace, or this process's part of it. */
  #trace<T>(start: SpanStart, caller: SpanContext | undefined, work: (span: Span) => Promise<T>): Promise<T> {
    const { ROOT_CONTEXT, trace } = this.#packages.api
    const isJob = start.kind === 'job'
    if (!isRecorded(isJob ? undefined : caller, this.#sampling, this.#random)) {
      // Usually no work is active here: then nothing has to keep it away.
      return this.#active() === undefined ? work(noSpan) : this.#contexts.with(ROOT_CONTEXT, () => work(noSpan))
    }
    if (caller === undefined) return this.#recorded({ start, context: ROOT_CONTEXT, links: [] }, work)
    if (isJob) return this.#recorded({ start, context: ROOT_CONTEXT, links: [{ context: caller }] }, work)
    return this.#recorded({ start, context: trace.setSpanContext(ROOT_CONTEXT, caller), links: [] }, work)
  }

  #recorded<T>({ start, context, links }: { start: SpanStart; context: Context; links: Link[] }, work: (span: Span) => Promise<T>): Promise<T> {
    const { trace } = this.#packages.api
    const span = this.#tracer.startSpan(start.name, { kind: this.#kinds[start.kind], attributes: definedOf(start.attributes), links }, context)
    return this.#contexts.with(trace.setSpan(context, span), () => this.#ended(span, work))
  }

  /** Runs the work of a span, and ends the span. */
  async #ended<T>(span: RecordedSpan, work: (span: Span) => Promise<T>): Promise<T> {
    const fail = (type: string): void => void span.setStatus({ code: this.#packages.api.SpanStatusCode.ERROR }).setAttribute('error.type', type)
    try {
      return await work({
        set: (attributes) => void span.setAttributes(definedOf(attributes)),
        rename: (name) => void span.updateName(name),
        fail,
      })
    } catch (error) {
      fail(errorTypeOf(error))
      throw error
    } finally {
      span.end()
    }
  }
}

/** Starts tracing if the environment configures it; undefined otherwise. It never rejects because of the collector, which may start later. */
export async function openTracing({ env, log, ...options }: TracingOptions): Promise<RunningTracing | undefined> {
  const settings = readTraceSettings(env, (line) => log.warn(line))
  if (settings === undefined) return undefined
  const tracing = new OtelTracing(await loadPackages(), settings, { log, ...options })
  log.info('tracing', { ratio: settings.sampling.ratio })
  return tracing
}
