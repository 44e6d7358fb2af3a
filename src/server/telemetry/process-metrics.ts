import { Counter, Gauge, collectDefaultMetrics, type Registry } from 'prom-client'
import { codeNames, DomainError } from '../../base/errors.ts'
import type { Clock } from '../../base/runtime.ts'
import type { SpanStart, Tracing } from '../../base/tracing.ts'
import type { RecordCache } from '../../cache/record-cache.ts'
import type { ReloadedFiles } from '../../config/files/reloaded-files.ts'
import type { TokenExchange } from '../../iam/index.ts'
import { UpstreamError, type Upstream } from '../../registry/index.ts'
import { StoreError, type Store } from '../../store/store.ts'
import { Durations, MetricsRegistry, type CountDuration } from '../../transport/hot-metrics.ts'
import type { Engine } from '../engine.ts'
import { storeFormat } from '../store-format.ts'
import { version } from '../version.ts'

/** Creates the registry of metrics, with those of the process, its files and its spans, and `taproot_build_info`. */
export function createMetrics(files: ReloadedFiles, clock: Clock, tracing: Tracing | undefined): MetricsRegistry {
  const registry = new MetricsRegistry()
  collectDefaultMetrics({ register: registry })
  files.registerMetrics(registry, clock)
  registerSpans(registry, tracing)
  const labels = { version: version(), node_version: process.version, store_format: String(storeFormat) }
  const help = '1, with the version of Taproot, the version of Node, and the newest store format that this version reads'
  new Gauge({ name: 'taproot_build_info', help, labelNames: Object.keys(labels), registers: [registry] }).set(labels, 1)
  return registry
}

/** Registers `taproot_trace_spans_total`, if there is tracing. */
function registerSpans(registry: Registry, tracing: Tracing | undefined): void {
  if (tracing === undefined) return
  const spans: Counter = new Counter({
    name: 'taproot_trace_spans_total',
    help: 'Recorded spans: accepted by the collector, not accepted by it, or dropped because the queue was full',
    labelNames: ['outcome'],
    registers: [registry],
    collect: () => {
      spans.reset()
      for (const [outcome, count] of Object.entries(tracing.counts())) spans.inc({ outcome }, count)
    },
  })
}

/** Registers `taproot_replica_live` and `taproot_records`. */
export function registerCache(registry: Registry, cache: RecordCache): void {
  const live: Gauge = new Gauge({
    name: 'taproot_replica_live',
    help: '1 while the records in memory follow the store',
    registers: [registry],
    collect: () => live.set(cache.state.kind === 'live' ? 1 : 0),
  })
  const records: Gauge = new Gauge({
    name: 'taproot_records',
    help: 'Records in memory, by kind',
    labelNames: ['kind'],
    registers: [registry],
    collect: () => {
      for (const table of cache.tables.kinds()) records.set({ kind: table.index.kind }, table.size)
    },
  })
}

type Operation = (...args: never[]) => Promise<unknown>

/** What receives the durations of calls, and the spans of calls that are part of traced work. */
interface Measures {
  readonly durations: Durations<'operation' | 'outcome'>
  readonly tracing: Tracing | undefined
  /** The start of an operation's span. */
  readonly start: (operation: string) => SpanStart
}

/** Returns these methods of `target`. Each call is measured, until its promise settles. */
function measured<T extends Record<N, Operation>, N extends string>(target: T, names: readonly N[], { durations, tracing, start }: Measures): Pick<T, N> {
  const measure = (operation: N): Operation => {
    const bound = target[operation].bind(target)
    const started = start(operation)
    const call: Operation = tracing === undefined ? bound : (...args) => tracing.span(started, () => bound(...args))
    const series: Record<string, CountDuration> = {}
    const observe = (outcome: string, startedAtMs: number): void =>
      (series[outcome] ??= durations.series({ operation, outcome }))((performance.now() - startedAtMs) / 1000)
    return async (...args) => {
      const startedAtMs = performance.now()
      try {
        const answer = await call(...args)
        observe('ok', startedAtMs)
        return answer
      } catch (error) {
        observe(error instanceof StoreError || error instanceof UpstreamError ? error.kind : 'aborted', startedAtMs)
        throw error
      }
    }
  }
  // a cast: each method has the parameters and the answer of the one that it calls
  return Object.fromEntries(names.map((name) => [name, measure(name)])) as Pick<T, N>
}

/** From an answer of the embedded store to the timeout of a call to etcd, in seconds. */
const storeBuckets = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5]

/**
 * Returns the store, with its calls measured in `taproot_store_duration_seconds`. Each read asks for the revision. The embedded store has it in memory, and a
 * measurement would cost more than that: there it is not measured.
 */
export function measuredStore(
  registry: MetricsRegistry,
  store: Store,
  { system, tracing }: { readonly system: string; readonly tracing?: Tracing | undefined },
): Store {
  const durations = new Durations<'operation' | 'outcome'>({
    name: 'taproot_store_duration_seconds',
    help: 'Time from a call to the store until its answer',
    buckets: storeBuckets,
    registry,
  })
  const start = (operation: string): SpanStart => ({
    kind: 'client',
    name: `store ${operation}`,
    attributes: { 'db.system.name': system, 'db.operation.name': operation },
  })
  const measures = { durations, tracing, start }
  return {
    ...measured(store, ['get', 'range', 'transact', 'fence'], measures),
    ...(system === 'sqlite' ? { revision: (...args: Parameters<Store['revision']>) => store.revision(...args) } : measured(store, ['revision'], measures)),
    // Streams and elections last as long as nothing happens.
    watch: (...args) => store.watch(...args),
    elect: (...args) => store.elect(...args),
    close: () => store.close(),
  }
}

/** From a file of this machine to a large upload, in seconds. */
const upstreamBuckets = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60, 300]

/** Returns the upstream, if there is one, with its calls measured in `taproot_upstream_duration_seconds`. */
export function measuredUpstream(registry: MetricsRegistry, upstream: Upstream | undefined, tracing?: Tracing): Upstream | undefined {
  if (upstream === undefined) return undefined
  const durations = new Durations<'operation' | 'outcome'>({
    name: 'taproot_upstream_duration_seconds',
    help: 'Time from a call to the upstream until its answer, or until the content of a blob begins',
    buckets: upstreamBuckets,
    registry,
  })
  const measures = { durations, tracing, start: (operation: string): SpanStart => ({ kind: 'part', name: `upstream ${operation}` }) }
  return {
    ...measured(upstream, ['ready', 'getManifest', 'hasManifest', 'putManifest', 'deleteManifest'], measures),
    ...measured(upstream, ['statBlob', 'readBlob', 'locateBlob', 'deleteBlob', 'mountBlob'], measures),
    ...measured(upstream, ['startUpload', 'uploadStatus', 'appendUpload', 'finishUpload', 'cancelUpload'], measures),
    close: () => upstream.close(),
  }
}

/** Receives measurements of sign-in, for metrics. */
export interface SignInObserver {
  /** Called for each signature that is checked; cached results do not count. */
  readonly onSignatureCheck: () => void
  /** Returns the exchange, with its outcomes counted. */
  counted(exchange: TokenExchange): TokenExchange
}

/** Registers `taproot_token_signature_checks_total`, and `taproot_token_exchanges_total` by the name of the gRPC code. */
export function createSignInMetrics(registry: Registry): SignInObserver {
  const registers = [registry]
  const checks = new Counter({ name: 'taproot_token_signature_checks_total', help: 'Verified token signatures, without cached ones', registers })
  const exchanges = new Counter({ name: 'taproot_token_exchanges_total', help: 'Token exchanges answered', labelNames: ['code'], registers })
  return {
    onSignatureCheck: () => checks.inc(),
    counted: (exchange) => async (input, signal) => {
      try {
        const made = await exchange(input, signal)
        exchanges.inc({ code: 'OK' })
        return made
      } catch (error) {
        exchanges.inc({ code: error instanceof DomainError ? codeNames[error.code] : signal.aborted ? 'CANCELLED' : 'INTERNAL' })
        throw error
      }
    },
  }
}

/** Registers `taproot_key_expiry_seconds`, by what the keys are for. */
export function registerKeys(registry: Registry, { signingKeys, eventKeys, pageKeys, registryKeys }: Engine, clock: Clock): void {
  const keys = {
    access_tokens: signingKeys,
    events: eventKeys,
    page_tokens: pageKeys,
    ...(registryKeys === undefined ? {} : { registry_tokens: registryKeys }),
  }
  const expiry: Gauge<'keys'> = new Gauge({
    name: 'taproot_key_expiry_seconds',
    help: 'Seconds until the newest key is to be replaced',
    labelNames: ['keys'],
    registers: [registry],
    collect() {
      for (const [name, { lastUseMs }] of Object.entries(keys)) expiry.set({ keys: name }, (lastUseMs() - clock.now()) / 1000)
    },
  })
}
