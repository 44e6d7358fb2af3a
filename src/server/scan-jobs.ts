import { join } from 'node:path'
import type { AuditTrail } from '../base/audit-line.ts'
import { trustedUid } from '../base/uid.ts'
import type { Config } from '../config/config.ts'
import { openScanners } from '../config/files/open-files.ts'
import type { ReloadedFiles } from '../config/files/reloaded-files.ts'
import { ReportTurns, ScanJob, ScannerClient } from '../contents/index.ts'
import { RepoDelegate, type Upstream } from '../registry/index.ts'
import type { Engine } from './engine.ts'

const secondMs = 1_000
const longestTokenSeconds = 3600
const defaults = { timeoutSeconds: 30, scanMinutes: 30, concurrent: 4 } as const

/** What the jobs need. */
interface ScanJobsOptions {
  readonly config: Config
  readonly files: ReloadedFiles
  readonly engine: Engine
  readonly upstream: Upstream | undefined
  readonly auditLog: AuditTrail
  /** Whether this process may become the active worker. */
  readonly works: boolean
}

/** Returns the jobs of the configured scanners; none in a process that never runs them. Throws SettingError if a file cannot be read. */
export function createScanJobs({ config, files, engine, upstream, auditLog, works }: ScanJobsOptions): ScanJob[] {
  const { services, registryKeys: keys } = engine
  if (!works || upstream === undefined || keys === undefined) return []
  const { registry, baseUrl: issuer, dataDir } = config
  const minter = { issuer, service: registry.host, keys, clock: services.clock, random: services.random }
  const turns = new ReportTurns()
  return openScanners(config, files).map(({ row, headers, ca }) => {
    const { name, url, identity, registryUrl = `${registry.scheme}://${registry.host}`, timeoutSeconds, scanMinutes, concurrent } = { ...defaults, ...row }
    return new ScanJob({
      services,
      upstream,
      // A scanner may pull at any time until the scan ends. The rights are checked at each request.
      delegate: new RepoDelegate({
        services,
        minter: { ...minter, tokenSeconds: Math.min(scanMinutes * 60, longestTokenSeconds) },
        identity: trustedUid(identity),
        subject: `scanner:${name}`,
      }),
      client: new ScannerClient({ url, headers, ca, timeoutMs: timeoutSeconds * secondMs }),
      name,
      registryUrl,
      registryHost: registry.host,
      auditLog,
      folder: join(dataDir, 'scan-reading'),
      turns,
      scanMs: scanMinutes * 60 * secondMs,
      concurrent,
    })
  })
}
