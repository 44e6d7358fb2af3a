import { Counter, Gauge, Histogram, type Registry } from 'prom-client'
import type { ControllerObserver } from '../../kubernetes/controller.ts'
import type { WorkQueueObserver } from '../../kubernetes/runtime/work-queue.ts'

/** Bounds in seconds: from a look that finds nothing to do, to an API server that is slow. */
const buckets = [0.001, 0.01, 0.05, 0.1, 0.5, 1, 5, 30]

/** Registers the metrics of the controller, `taproot_kube_*`: see docs/operations.md. */
export function createControllerMetrics(registry: Registry): ControllerObserver {
  const registers = [registry]
  const leader = new Gauge({ name: 'taproot_kube_leader', help: '1 in the controller that works', registers })
  const reconciled = new Counter({
    name: 'taproot_kube_reconciled_total',
    help: 'Objects that were dealt with, by what their Ready condition says; "released" for those that are let go',
    labelNames: ['kind', 'reason'],
    registers,
  })
  const written = new Counter({ name: 'taproot_kube_records_written_total', help: 'Records written for objects', labelNames: ['kind'], registers })
  const dropped = new Counter({ name: 'taproot_kube_events_dropped_total', help: 'Kubernetes Events that were not written', registers })
  const unmirrored = new Gauge({ name: 'taproot_kube_unmirrored_records', help: 'Records that have no mirror for want of room', registers })
  const abandoned = new Gauge({ name: 'taproot_kube_abandoned_records', help: 'Records whose object is not there', registers })
  const informers = new Gauge({
    name: 'taproot_kube_informer_watching',
    help: '1 while the cache of a type follows the API server',
    labelNames: ['type'],
    registers,
  })
  const queue = queueMetrics(registry)
  return {
    leading: (leads) => leader.set(leads ? 1 : 0),
    abandoned: (count) => abandoned.set(count),
    reconciled(kind, applied) {
      reconciled.inc({ kind, reason: applied.verdict?.reason ?? 'released' })
      if (applied.written) written.inc({ kind })
    },
    objects: queue('objects'),
    mirrors: queue('mirrors'),
    pullSecrets: queue('pull_secrets'),
    grants: queue('grants'),
    informers: {
      state: (type, state) => informers.set({ type: type.plural }, state.is === 'watching' ? 1 : 0),
      listed: () => undefined,
    },
    eventsDropped: (count) => dropped.inc(count),
    unmirrored: (count) => unmirrored.set(count),
  }
}

function queueMetrics(registry: Registry): (queue: string) => WorkQueueObserver {
  const shared = { labelNames: ['queue'], registers: [registry] }
  const depth = new Gauge({ name: 'taproot_kube_queue_depth', help: 'Objects that wait for a worker', ...shared })
  const waited = new Histogram({ name: 'taproot_kube_queue_wait_seconds', help: 'From when an object is due to when it is dealt with', buckets, ...shared })
  const took = new Histogram({ name: 'taproot_kube_reconcile_duration_seconds', help: 'How long it takes to deal with an object', buckets, ...shared })
  const failed = new Counter({ name: 'taproot_kube_reconcile_failures_total', help: 'Tries that failed and are repeated', ...shared })
  return (queue) => ({
    depth: (keys) => depth.set({ queue }, keys),
    started: (waitedMs) => waited.observe({ queue }, waitedMs / 1_000),
    finished(outcome, tookMs) {
      took.observe({ queue }, tookMs / 1_000)
      if (outcome === 'failed') failed.inc({ queue })
    },
    retry: () => undefined,
  })
}
