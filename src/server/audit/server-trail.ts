import type { Registry } from 'prom-client'
import type { Log } from '../../base/log.ts'
import type { Clock } from '../../base/runtime.ts'
import type { RecordCache } from '../../cache/record-cache.ts'
import type { Config } from '../../config/config.ts'
import type { ReloadedFiles } from '../../config/files/reloaded-files.ts'
import type { Upstream } from '../../registry/index.ts'
import type { Store } from '../../store/store.ts'
import { systemClock, systemRandom } from '../runtime.ts'
import { openAuditTrail, type OpenedTrail } from './open-audit-trail.ts'

/** A server whose events are recorded. */
export interface AuditedServer {
  readonly config: Config
  readonly log: Log
  /** Where the sink `log` writes. */
  readonly auditLog: Log
  /** The machine's time by default. */
  readonly clock?: Clock
  /** The served parts; all by default. */
  readonly serves?: readonly string[]
}

/** What the audit trail of a server uses. */
export interface TrailParts {
  readonly files: ReloadedFiles
  readonly metrics: Registry
  readonly cache: RecordCache
  readonly store: Store
  /** Undefined where none is configured. */
  readonly upstream: Upstream | undefined
}

/** Opens the audit trail. Its folder has the number of the ops port, which is different for all processes of a machine. */
export function openServerTrail(
  { config, log, auditLog, clock = systemClock, serves }: AuditedServer,
  { files, metrics, cache, store, upstream }: TrailParts,
): Promise<OpenedTrail> {
  return openAuditTrail({
    config,
    owner: String(config.ops.port),
    files,
    log,
    auditLog,
    metrics,
    clock,
    random: systemRandom,
    isGroup: (uid) => cache.tables.get('Group', uid) !== undefined,
    closeMs: config.stop.graceSeconds * 1000,
    keeps: { store, upstream, isIndexed: serves?.includes('api') ?? true },
  })
}
