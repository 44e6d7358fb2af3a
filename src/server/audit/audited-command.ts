import { mkdirSync } from 'node:fs'
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises'
import { hostname, userInfo } from 'node:os'
import { join } from 'node:path'
import { Registry } from 'prom-client'
import { DomainError } from '../../base/errors.ts'
import type { Log } from '../../base/log.ts'
import type { Config, Role } from '../../config/config.ts'
import { ReloadedFiles } from '../../config/files/reloaded-files.ts'
import { SettingError, withSetting } from '../../config/setting-error.ts'
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

/** True if a sink has a spool. Without one, a command writes nothing to the data directory. */
function needsFolder({ audit }: Config): boolean {
  return audit.sinks.some(({ kind }) => kind !== 'log' && kind !== 'file')
}

/** Number of commands that can run at the same time with one data directory. */
const maxCommands = 100

/** True if the process runs. */
function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return error instanceof Error && 'code' in error && error.code === 'EPERM'
  }
}

/** Takes a folder for this process; returns false if another one has it. A process that was killed leaves its file: the next command removes it. */
async function takeFolder(folder: string): Promise<boolean> {
  const path = join(folder, 'pid')
  await mkdir(folder, { recursive: true, mode: 0o700 })
  const owner = Number(await readFile(path, 'utf8').catch(() => ''))
  if (owner > 0 && isRunning(owner)) return false
  if (owner > 0) await rm(path, { force: true })
  try {
    await writeFile(path, String(process.pid), { flag: 'wx', mode: 0o600 })
    return true
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'EEXIST') return false
    throw error
  }
}

/**
 * Takes the first folder below `<dataDir>/audit` that no other command uses and returns its name. What an earlier command left there is delivered with the new events. Throws SettingError
 * if there is none.
 */
export async function takeCommandFolder(dataDir: string): Promise<string> {
  try {
    for (let number = 1; number <= maxCommands; number += 1) {
      const name = number === 1 ? 'cli' : `cli-${number}`
      if (await takeFolder(join(dataDir, 'audit', name))) return name
    }
  } catch (error) {
    throw new SettingError('dataDir', dataDir, error)
  }
  throw new SettingError('dataDir', dataDir, new Error(`${maxCommands} commands use it`))
}

/**
 * Runs a command and records it in the audit trail. The sink `log` writes to standard error, or in role `dev` to the server's log file. If
 * other sinks are too slow, the next command delivers the events. Throws SettingError before the command, or the errors of `work`.
 */
export async function auditedCommand<T>({ config, role, log, method }: AuditedCommand, work: () => Promise<T>): Promise<T> {
  if (role === 'dev') withSetting('dataDir', config.dataDir, () => mkdirSync(config.dataDir, { recursive: true, mode: 0o700 }))
  // Two processes with one spool would lose each other's events.
  const owner = needsFolder(config) ? await takeCommandFolder(config.dataDir) : 'cli'
  const logs = createLogs('error', role === 'dev' ? join(config.dataDir, 'taproot.log') : undefined)
  const trail = await openAuditTrail({
    config,
    owner,
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
    if (needsFolder(config)) await rm(join(config.dataDir, 'audit', owner, 'pid'), { force: true })
    logs.flush()
  }
}
