import { Counter, Gauge, Histogram, type Registry } from 'prom-client'
import type { FeedObserver } from '../../catalogue/index.ts'
import type { ContentsObserver, ScanObserver } from '../../contents/index.ts'
import type { ExpiredSort } from '../../domains/expire.ts'

/** Receives measurements of background work, for metrics. */
export interface BackgroundObserver extends FeedObserver, ContentsObserver, ScanObserver {
  leading(leads: boolean): void
  /** Whether this process runs the work of role `worker`. */
  working(works: boolean): void
  expired(what: ExpiredSort, count: number): void
  /** Called after a failure. `work` is `keys`, `leader`, `worker`, `sweep`, `trim`, `count`, `syncs`, `deliver`, `feeds`, `contents`, `scans`, `counts`, `cycles` or `collect`. */
  failed(work: string): void
}

/** Registers the metrics `taproot_leader`, `taproot_worker_active`, `taproot_trimmed_total`, `taproot_background_failures_total` and those of feeds, contents and scans. */
export function createBackgroundMetrics(registry: Registry): BackgroundObserver {
  const registers = [registry]
  const leader = new Gauge({ name: 'taproot_leader', help: '1 in the leader', registers })
  const worker = new Gauge({ name: 'taproot_worker_active', help: '1 in the active worker', registers })
  const expired = new Counter({ name: 'taproot_trimmed_total', help: 'Entries removed because of their age or size', labelNames: ['what'], registers })
  const failures = new Counter({ name: 'taproot_background_failures_total', help: 'Rounds of background work that failed', labelNames: ['work'], registers })
  const feedSuccess = new Gauge({
    name: 'taproot_feed_last_success_timestamp_seconds',
    help: 'Time at which a feed was last imported, or found unchanged, in the active worker',
    labelNames: ['feed'],
    registers,
  })
  const feedFailures = new Gauge({
    name: 'taproot_feed_failures',
    help: 'Consecutive failures of a feed, in the active worker',
    labelNames: ['feed'],
    registers,
  })
  const contents = new Counter({
    name: 'taproot_image_contents_total',
    help: 'Images whose contents were read, by source; problem is empty if they are known',
    labelNames: ['source', 'problem'],
    registers,
  })
  const scans = new Counter({
    name: 'taproot_scans_total',
    help: 'Images that left the queue of a scanner, by outcome',
    labelNames: ['scanner', 'outcome'],
    registers,
  })
  const scanSeconds = new Histogram({
    name: 'taproot_scan_duration_seconds',
    help: 'Time from the start of the work on an image to its report, in the active worker',
    labelNames: ['scanner'],
    buckets: [1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600],
    registers,
  })
  return {
    leading: (leads) => leader.set(leads ? 1 : 0),
    working: (works) => worker.set(works ? 1 : 0),
    expired: (what, count) => expired.inc({ what }, count),
    failed: (work) => failures.inc({ work }),
    read: (source, problem) => contents.inc({ source, problem }),
    scanned(scanner, outcome, seconds) {
      scans.inc({ scanner, outcome })
      if (outcome === 'kept') scanSeconds.observe({ scanner }, seconds)
    },
    ran(feed, state) {
      feedFailures.set({ feed }, state.failures)
      if (state.succeededMs !== undefined) feedSuccess.set({ feed }, state.succeededMs / 1000)
    },
  }
}
