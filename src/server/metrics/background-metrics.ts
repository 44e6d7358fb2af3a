import { Counter, Gauge, type Registry } from 'prom-client'
import type { BackgroundObserver } from '../background.ts'

/** Registers `taproot_leader`, `taproot_trimmed_total` by what was trimmed, and `taproot_background_failures_total` by work. */
export function createBackgroundMetrics(registry: Registry): BackgroundObserver {
  const registers = [registry]
  const leader = new Gauge({ name: 'taproot_leader', help: '1 in the process that sweeps and trims', registers })
  const trimmed = new Counter({ name: 'taproot_trimmed_total', help: 'Entries removed because of their age or size', labelNames: ['what'], registers })
  const failures = new Counter({ name: 'taproot_background_failures_total', help: 'Rounds of background work that failed', labelNames: ['work'], registers })
  return {
    leading: (leads) => leader.set(leads ? 1 : 0),
    trimmed: (what, count) => trimmed.inc({ what }, count),
    failed: (work) => failures.inc({ work }),
  }
}
