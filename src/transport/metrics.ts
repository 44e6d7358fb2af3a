import { Gauge, type Registry } from 'prom-client'
import { codeNames } from '../base/errors.ts'
import type { Code } from '../base/errors.ts'
import type { Call } from './calls/call.ts'
import { Counts, Durations, type MetricsRegistry } from './hot-metrics.ts'

/** The gRPC code of an answer, 0 for OK, and the reason in ErrorInfo of an error. */
export type CallOutcome = (code: Code | 0, reason?: string) => void

/** Counts calls and measures their time. Call `start` once per call. Call its result once. */
export interface CallMetrics {
  start(method: string, transport: Call['transport']): CallOutcome
}

const buckets = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10]

/**
 * Registers `taproot_requests_total` and `taproot_request_duration_seconds` by method, transport and code, `taproot_requests_in_flight` by transport,
 * and `taproot_requests_exhausted_total` by reason.
 * Methods are labelled `Service.Rpc`, so the schema limits their number.
 */
export function createCallMetrics(registry: MetricsRegistry): CallMetrics {
  type Label = 'method' | 'transport' | 'code'
  const requests = new Counts<Label>({ name: 'taproot_requests_total', help: 'API calls answered', registry })
  const durations = new Durations<Label>({
    name: 'taproot_request_duration_seconds',
    help: 'Time from the request headers to the answer',
    buckets,
    registry,
  })
  const running = { http: 0, grpc: 0 }
  const inFlight: Gauge = new Gauge({
    name: 'taproot_requests_in_flight',
    help: 'API calls being answered',
    labelNames: ['transport'],
    registers: [registry],
    collect: () => {
      for (const [transport, calls] of Object.entries(running)) inFlight.set({ transport }, calls)
    },
  })
  const exhausted = new Counts<'reason'>({ name: 'taproot_requests_exhausted_total', help: 'API calls answered with RESOURCE_EXHAUSTED', registry })
  // Caches the series of each method, transport and code, because looking one up by its labels takes longer than counting.
  const children = new Map<string, (seconds: number) => void>()
  const childOf = (method: string, transport: Call['transport'], code: Code | 0): ((seconds: number) => void) => {
    const id = `${transport} ${code} ${method}`
    const known = children.get(id)
    if (known !== undefined) return known
    const labels = { method, transport, code: code === 0 ? 'OK' : codeNames[code] }
    const count = requests.series(labels)
    const duration = durations.series(labels)
    const child = (seconds: number): void => {
      count()
      duration(seconds)
    }
    children.set(id, child)
    return child
  }
  return {
    start(method, transport) {
      const startedAtMs = performance.now()
      running[transport]++
      return (code, reason = codeNames[8]) => {
        if (code === 8) exhausted.series({ reason })()
        running[transport]--
        childOf(method, transport, code)((performance.now() - startedAtMs) / 1000)
      }
    },
  }
}

/** Registers `taproot_event_readers` by kind: how many requests wait for events at this moment. */
export function registerEventReaders(registry: Registry, waiting: Readonly<Record<string, number>>): void {
  const readers: Gauge = new Gauge({
    name: 'taproot_event_readers',
    help: 'Requests that wait for events: streams, and polls with `wait`',
    labelNames: ['kind'],
    registers: [registry],
    collect: () => {
      for (const [kind, count] of Object.entries(waiting)) readers.set({ kind }, count)
    },
  })
}
