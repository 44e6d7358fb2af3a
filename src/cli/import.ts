import { existsSync } from 'node:fs'
import { stat } from 'node:fs/promises'
import { resolve } from 'node:path'
import { createSafeFetch } from '../auth/safe-fetch.ts'
import { errorMessage } from '../base/error-text.ts'
import type { Log } from '../base/log.ts'
import type { Uid } from '../base/uid.ts'
import type { RecordTables } from '../cache/record-tables.ts'
import { groupNamed, importInServer, isDownloaded, type BeginReason, type ImportRefusal, type ImportSummary, type ImportWatcher } from '../catalogue/index.ts'
import { ReloadedFiles } from '../config/files/reloaded-files.ts'
import type { Config } from '../config/config.ts'
import { loadConfig } from '../config/load-config.ts'
import { auditedCommand } from '../server/audit/audited-command.ts'
import { createRecordCache, startEngine } from '../server/engine.ts'
import { createLogs } from '../server/logs/logger.ts'
import { openStore } from '../server/open-store.ts'
import { openUpstream } from '../server/open-upstream.ts'
import { systemClock, systemRandom } from '../server/runtime.ts'
import { printable } from './client/columns.ts'
import { exitCodes, UsageError } from './exit-codes.ts'
import { namedSources, openSources, type ImportFiles } from './import-sources.ts'

/** What the command line says. */
export interface ImportCommandOptions {
  readonly role: 'api' | 'dev'
  readonly config?: string
  readonly group?: string
  readonly ecosystem?: string
  readonly replace?: boolean
  readonly dryRun?: boolean
  readonly feed?: string
  readonly tokenFile?: string
  readonly caFile?: string
  readonly allowPrivate?: boolean
}

/** Number of refusals to print. The summary counts all of them. */
const printedRefusals = 100
/** Interval of progress lines on a terminal, in milliseconds. */
const progressEveryMs = 500

/** Returns the group with this uid or path of names. Throws UsageError if there is none. */
function findGroup(tables: RecordTables, text: string): Uid {
  try {
    return groupNamed(tables, text)
  } catch (error) {
    throw new UsageError(errorMessage(error), { cause: error })
  }
}

/** Returns the number of bytes to read, as far as it is known before reading. Rejects with UsageError for a path that cannot be read. */
async function bytesOf(paths: readonly string[]): Promise<number | undefined> {
  let sum = 0
  for (const path of paths) {
    const found = await stat(path).catch((cause: unknown) => {
      throw new UsageError(`${path} cannot be read`, { cause })
    })
    if (!found.isFile()) return undefined
    sum += found.size
  }
  return sum
}

/** Prints how far an import is: documents, their rate, and the time left if the size is known. Prints nothing if standard error is no terminal. */
class Progress {
  readonly #startMs = performance.now()
  readonly #totalBytes: number | undefined
  #printedMs = 0

  constructor(totalBytes: number | undefined) {
    this.#totalBytes = totalBytes
  }

  show({ documents, bytes }: { readonly documents: number; readonly bytes: number }): void {
    const nowMs = performance.now()
    if (!process.stderr.isTTY || nowMs - this.#printedMs < progressEveryMs) return
    this.#printedMs = nowMs
    const seconds = (nowMs - this.#startMs) / 1000
    const part = this.#totalBytes === undefined || bytes === 0 ? undefined : Math.min(1, bytes / this.#totalBytes)
    const left = part === undefined ? '' : `, ${Math.floor(part * 100)} %, ${Math.ceil((seconds / part) * (1 - part))} s left`
    process.stderr.write(`\r\u001b[K${documents} documents, ${Math.round(documents / seconds)} per second${left}`)
  }

  end(): void {
    if (this.#printedMs > 0) process.stderr.write('\r\u001b[K')
  }
}

const beginReasons = {
  lost: 'the upstream does not have it',
  otherRelease: 'another release made it',
} as const satisfies Record<BeginReason, string>

/** Returns what is printed about an import: a line for all documents, and one or two for each catalogue. */
function words({ documents, refused, rows, begun, published }: ImportSummary, dryRun: boolean): string {
  const lines = [`${documents} ${documents === 1 ? 'document' : 'documents'}, ${refused} refused`]
  for (const [kind, { added, changed, unchanged, removed }] of rows)
    lines.push(`${kind}: ${added} added, ${changed} changed, ${unchanged} unchanged, ${removed} removed`)
  for (const [kind, { manifest, reason }] of begun) lines.push(`started ${kind} without the rows of ${manifest}: ${beginReasons[reason]}`)
  for (const [kind, { manifest }] of published) lines.push(`published ${kind} ${manifest}`)
  if (published.size === 0) lines.push(dryRun ? 'dry run: nothing was published' : 'nothing changed')
  return lines.map((line) => `${line}\n`).join('')
}

/** Returns what is printed: file, line and what is wrong. */
function refusalLine(refusal: ImportRefusal): string {
  const place = refusal.line === undefined ? refusal.file : `${refusal.file}:${refusal.line}`
  return `${printable(['refused', place, refusal.reason].join(': '))}\n`
}

/** Prints refusals and progress as they come. */
function watcherOf(totalBytes: number | undefined, nameOf: ImportFiles['nameOf']): ImportWatcher & { end(): void } {
  const progress = new Progress(totalBytes)
  let refused = 0
  return {
    onRefusal(refusal) {
      refused += 1
      if (refused <= printedRefusals) process.stderr.write(refusalLine({ ...refusal, file: nameOf(refusal.file) }))
    },
    onProgress: (now) => progress.show(now),
    end: () => progress.end(),
  }
}

interface RunningImport {
  readonly config: Config
  readonly paths: readonly string[]
  readonly options: Pick<ImportCommandOptions, 'group' | 'ecosystem' | 'replace' | 'dryRun'>
  readonly watcher: ImportWatcher
  readonly log: Log
}

/** Imports in this process, which opens the store. */
async function importAlone({ config, paths, options, watcher, log }: RunningImport, signal: AbortSignal): Promise<ImportSummary> {
  const files = new ReloadedFiles(log)
  const store = await openStore(config, { log, files }, signal)
  const cache = createRecordCache(store, log)
  const upstream = await openUpstream(config, { clock: systemClock, random: systemRandom, log, files })
  const fetch = createSafeFetch()
  try {
    const engine = await startEngine({ config, store, cache, upstream, fetch, issuers: [], log, clock: systemClock, random: systemRandom }, signal)
    if (engine.catalogues === undefined) throw new UsageError('no upstream is configured (registry.upstream): it stores the catalogue')
    const group = options.group === undefined ? undefined : findGroup(cache.tables, options.group)
    return await engine.catalogues.import(
      { paths, group, ecosystem: options.ecosystem, replace: options.replace === true, dryRun: options.dryRun === true, mayBegin: true, ...watcher },
      signal,
    )
  } finally {
    await fetch.close()
    await upstream?.close()
    await cache.close()
    await store.close()
  }
}

/** Imports in the server that has the embedded store. Resolves with undefined if no server runs. */
async function importThere({ config, paths, options, watcher }: RunningImport, signal: AbortSignal): Promise<ImportSummary | undefined> {
  if (config.store.kind !== 'sqlite') return undefined
  const { group, ecosystem, replace = false, dryRun = false } = options
  return importInServer({ dataDir: config.dataDir, paths: paths.map((path) => resolve(path)), group, ecosystem, replace, dryRun, watcher }, signal)
}

/**
 * Imports files, downloads or a feed, and prints what it did. With the embedded store, a running server imports them, since one process at a time has the store. Sets exit code 3 if
 * something was refused. Throws ConfigError, StoreError, UpstreamError, UsageError, or an error of the file system; then nothing changed.
 */
export async function importCommand(given: readonly string[], command: ImportCommandOptions): Promise<void> {
  const { role, config: file, dryRun = false, ...access } = command
  const { config, warnings } = loadConfig({ file, env: process.env, role })
  for (const warning of warnings) process.stderr.write(`taproot: warning: ${warning}\n`)
  if (config.store.kind === 'sqlite' && !existsSync(config.store.sqlite.path))
    throw new Error(`there is no store at ${config.store.sqlite.path} (store.sqlite.path)`)
  const { log } = createLogs({ ...config.log, level: 'error' }, undefined)
  const stop = new AbortController()
  for (const name of ['SIGINT', 'SIGTERM'] as const) process.once(name, () => stop.abort(new Error('stopped: nothing changed')))
  const named = namedSources(given, access, config.catalogues.feeds)
  await bytesOf(named.sources.filter((source) => !isDownloaded(source)))
  const { paths, nameOf, remove } = await openSources(named, config.dataDir, stop.signal)
  try {
    const watcher = watcherOf(await bytesOf(paths), nameOf)
    const running = { config, paths, options: { ...named, dryRun }, watcher, log }
    const work = async (): Promise<ImportSummary> => (await importThere(running, stop.signal)) ?? importAlone(running, stop.signal)
    const imported = await (dryRun ? work() : auditedCommand({ config, role, log, method: 'import' }, work)).finally(() => watcher.end())
    process.stdout.write(words(imported, dryRun))
    if (imported.refused > 0) process.exitCode = exitCodes.partial
  } finally {
    await remove()
  }
}
