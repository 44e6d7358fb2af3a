import { Counter, Histogram, type Registry } from 'prom-client'
import type { Observe, RegistryHostOptions } from '../../registry/index.ts'

const buckets = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60, 300]

/** Registers `taproot_registry_requests_total` and `taproot_registry_request_duration_seconds` by route, method and status, `taproot_registry_blobs_total` by source, and `taproot_registry_lost_pull_events_total`. */
export function createRegistryMetrics(registry: Registry): Required<Pick<RegistryHostOptions, 'observe' | 'observeToken' | 'observeBlob' | 'lostPulls'>> {
  const registers = [registry]
  const labelNames = ['route', 'method', 'status'] as const
  const requests = new Counter({ name: 'taproot_registry_requests_total', help: 'Requests to the registry host', labelNames, registers })
  const help = 'Time from the request headers to the end of the answer'
  const durations = new Histogram({ name: 'taproot_registry_request_duration_seconds', help, labelNames: ['route', 'method'], buckets, registers })
  const blobs = new Counter({ name: 'taproot_registry_blobs_total', help: 'Blobs that were pulled', labelNames: ['source'], registers })
  const lost = new Counter({ name: 'taproot_registry_lost_pull_events_total', help: 'Events of pulls that were not kept', registers })
  const methods = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE'])
  // Looked up by their labels once: that costs more than counting.
  const children = new Map<string, (seconds: number) => void>()
  const childOf = (route: string, method: string, status: number): ((seconds: number) => void) => {
    const id = `${route} ${method} ${status}`
    const known = children.get(id)
    if (known !== undefined) return known
    const counted = requests.labels({ route, method, status: String(status) })
    const timed = durations.labels({ route, method })
    const child = (seconds: number): void => {
      counted.inc()
      timed.observe(seconds)
    }
    children.set(id, child)
    return child
  }
  // Whatever a client sends as its method: the number of series is bounded.
  const count: Observe = (route, method, { status, seconds }) => childOf(route, methods.has(method) ? method : 'other', status)(seconds)
  return {
    observe: count,
    observeToken: ({ status, seconds }) => childOf('token', 'any', status)(seconds),
    observeBlob: (source) => blobs.inc({ source }),
    lostPulls: (lostCount) => lost.inc(lostCount),
  }
}
