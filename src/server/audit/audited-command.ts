import { mkdirSync } from 'node:fs'
import { mkdir } from 'node:fs/promises'
import { hostname, userInfo } from 'node:os'
import { join } from 'node:path'
import { Registry } from 'prom-client'
import { DomainError } from '../../base/errors.ts'
import type { Log } from '../../base/log.ts'
import type { Config, Role } from '../../config/config.ts'
import { ReloadedFiles } from '../../config/files/reloaded-files.ts'
import { SettingError, withSetting } from '../../config/setting-error.ts'
import { lockFile } from '../../store/sqlite/file-lock.ts'
import { openAuditTrail } from './open-audit-trail.ts'
import { createLogs } from '../logs/logger.ts'
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

/** True if a sink has a spool. Without one, a command writes nothing to the data directory. */
function needsFolder({ audit }: Config): boolean {
  return audit.sinks.some(({ kind }) => kind !== 'log' && kind !== 'file')
}

/** Number of commands that can run at the same time with one data directory. */
const maxCommands = 100

/** A folder below `<dataDir>/audit` that this process alone uses. */
export interface CommandFolder {
  readonly name: string
  /** Lets the next command use it. */
  readonly release: () => void
}

/** Takes a folder for this process; returns undefined if another one has it. What a killed process left is delivered by the next command. */
async function takeFolder(dataDir: string, name: string): Promise<CommandFolder | undefined> {
  const folder = join(dataDir, 'audit', name)
  await mkdir(folder, { recursive: true, mode: 0o700 })
  const release = lockFile(join(folder, 'lock'))
  return release === undefined ? undefined : { name, release }
}

/**
 * Takes the first folder below `<dataDir>/audit` that no other command uses. What an earlier command left there is delivered with the new events. Throws SettingError
 * if there is none.
 */
export async function takeCommandFolder(dataDir: string): Promise<CommandFolder> {
  try {
    for (let number = 1; number <= maxCommands; number += 1) {
      const folder = await takeFolder(dataDir, number === 1 ? 'cli' : `cli-${number}`)
      if (folder !== undefined) return folder
    }
  } catch (error) {
    throw new SettingError('dataDir', dataDir, error)
  }
  throw new SettingError('dataDir', dataDir, new Error(`${maxCommands} commands use it`))
}

/** Returns the name of the user that runs this process, or the id of a user without a name: containers often lack one. */
function userName(): string {
  try {
    return userInfo().username
  } catch {
    return String(process.getuid?.() ?? '')
  }
}

/**
 * Runs a command and records it in the audit trail. The sink `log` writes to standard error, or in role `dev` to the server's log file. If
 * other sinks are too slow, the next command delivers the events. Throws SettingError before the command, or the errors of `work`.
 */
export async function auditedCommand<T>({ config, role, log, method }: AuditedCommand, work: () => Promise<T>): Promise<T> {
  if (role === 'dev') withSetting('dataDir', config.dataDir, () => mkdirSync(config.dataDir, { recursive: true, mode: 0o700 }))
  // Two processes with one spool would lose each other's events.
  const folder = needsFolder(config) ? await takeCommandFolder(config.dataDir) : undefined
  const logs = createLogs({ ...config.log, level: 'error' }, role === 'dev' ? join(config.dataDir, 'taproot.log') : undefined)
  const trail = await openAuditTrail({
    config,
    owner: folder?.name ?? 'cli',
    files: new ReloadedFiles(log),
    log,
    auditLog: logs.auditLog,
    metrics: new Registry(),
    clock: systemClock,
    random: systemRandom,
    isGroup: () => false,
    closeMs,
  })
  const line = { method: `cli/${method}`, transport: 'cli', operator: true, actorIssuer: hostname(), actorSubject: userName() } as const
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
    folder?.release()
    await logs.close()
  }
}
