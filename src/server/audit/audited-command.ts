import { mkdirSync } from 'node:fs'
import { hostname, userInfo } from 'node:os'
import { join } from 'node:path'
import { Registry } from 'prom-client'
import { DomainError } from '../../base/errors.ts'
import type { Log } from '../../base/log.ts'
import type { Config, Role } from '../../config/config.ts'
import { ReloadedFiles } from '../../config/files/reloaded-files.ts'
import { withSetting } from '../../config/setting-error.ts'
import { openAuditTrail } from './open-audit-trail.ts'
import { createLogs } from '../logger.ts'
import { systemClock, systemRandom } from '../runtime.ts'

/** How long a command waits for its sinks before it ends, in milliseconds. */
const closeMs = 10_000

/** A command that writes to the store itself, without a server. */
export interface AuditedCommand {
  readonly config: Config
  readonly role: Role
  readonly log: Log
  /** Its method name in audit events: `cli/<command>`. */
  readonly method: string
}

/**
 * Runs a command and records it in the audit trail. The sink `log` writes to standard error, or in role `dev` to the server's log file. If
 * other sinks are too slow, the next command delivers the events. Throws SettingError before the command, or the errors of `work`.
 */
export async function auditedCommand<T>({ config, role, log, method }: AuditedCommand, work: () => Promise<T>): Promise<T> {
  if (role === 'dev') withSetting('dataDir', config.dataDir, () => mkdirSync(config.dataDir, { recursive: true, mode: 0o700 }))
  const logs = createLogs('error', role === 'dev' ? join(config.dataDir, 'taproot.log') : undefined)
  const trail = await openAuditTrail({
    config,
    owner: 'cli',
    files: new ReloadedFiles(log),
    log,
    auditLog: logs.auditLog,
    metrics: new Registry(),
    clock: systemClock,
    random: systemRandom,
    isGroup: () => false,
    closeMs,
  })
  const line = { method: `cli/${method}`, transport: 'cli', operator: true, actorIssuer: hostname(), actorSubject: userInfo().username } as const
  try {
    const result = await work()
    trail.record({ ...line, outcome: 'done' })
    return result
  } catch (error) {
    const { code, reason } = error instanceof DomainError ? error : new DomainError(13, '')
    trail.record({ ...line, outcome: 'failed', code, reason })
    throw error
  } finally {
    await trail.close()
    logs.flush()
  }
}
