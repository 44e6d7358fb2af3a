import { existsSync } from 'node:fs'
import { auditedCommand } from '../server/audit/audited-command.ts'
import { createSafeFetch } from '../auth/safe-fetch.ts'
import { Collector, isEmbedded, type Collected } from '../registry/index.ts'
import type { Config } from '../config/config.ts'
import { loadConfig } from '../config/load-config.ts'
import { createRecordCache, startEngine } from '../server/engine.ts'
import { ReloadedFiles } from '../config/files/reloaded-files.ts'
import { createLogs } from '../server/logs/logger.ts'
import { openStore } from '../server/open-store.ts'
import { openUpstream } from '../server/open-upstream.ts'
import { systemClock, systemRandom } from '../server/runtime.ts'

/** Options of the command. */
export interface CollectGarbageOptions {
  readonly role: 'registry' | 'dev'
  readonly config?: string
  readonly dryRun?: boolean
  readonly graceHours?: number
}

function words(collected: Collected, orphans: { manifests: number; blobs: number } | undefined, dryRun: boolean): string {
  const verb = dryRun ? 'would remove' : 'removed'
  const mib = (collected.bytes / 1024 / 1024).toFixed(1)
  const lines = [`${collected.repos} repos: ${verb} ${collected.manifests} manifests and ${collected.blobs} blobs (${mib} MiB)`]
  if (collected.refused > 0) lines.push(`the upstream refuses to remove the bytes of ${collected.refused} manifests and blobs: allow deletes there`)
  if (collected.uploads > 0) lines.push(`unfinished uploads: removed ${collected.uploads}`)
  if (orphans !== undefined) lines.push(`bytes without a record: ${verb} ${orphans.manifests} manifests and ${orphans.blobs} blobs`)
  return `${lines.join('\n')}\n`
}

/** Throws if the embedded store does not exist. Opening it would create it. */
function assertStore({ store }: Config): void {
  if (store.kind === 'sqlite' && !existsSync(store.sqlite.path)) throw new Error(`there is no store at ${store.sqlite.path} (store.sqlite.path)`)
}

/**
 * Runs one garbage collection and prints the result. With the embedded store the server must be stopped, since only one process at a time
 * can use that store. Throws ConfigError, StoreError or UpstreamError, and Error if some repos were skipped.
 */
export async function collectGarbage(options: CollectGarbageOptions): Promise<void> {
  const { config, warnings } = loadConfig({ file: options.config, env: process.env, role: options.role })
  for (const warning of warnings) process.stderr.write(`taproot: warning: ${warning}\n`)
  assertStore(config)
  const { log } = createLogs({ ...config.log, level: 'error' }, undefined)
  const files = new ReloadedFiles(log)
  const stop = new AbortController()
  for (const name of ['SIGINT', 'SIGTERM'] as const) process.once(name, () => stop.abort(new Error('stopped')))
  const { signal } = stop
  const store = await openStore(config, { log, files }, signal)
  const cache = createRecordCache(store, log)
  const upstream = await openUpstream(config, { clock: systemClock, random: systemRandom, log, files })
  const fetch = createSafeFetch()
  try {
    if (upstream === undefined) throw new Error('no upstream is configured (registry.upstream): there is nothing to collect')
    const { services } = await startEngine({ config, store, cache, upstream, fetch, issuers: [], log, clock: systemClock, random: systemRandom }, signal)
    const dryRun = options.dryRun === true
    const collector = new Collector(services, upstream, { graceMs: (options.graceHours ?? config.registry.collect.graceHours) * 3_600_000, dryRun })
    const collect = async (): Promise<{ collected: Collected; orphans: Awaited<ReturnType<Collector['collectOrphans']>> | undefined }> => ({
      collected: await collector.collect(signal),
      orphans: isEmbedded(upstream) ? await collector.collectOrphans(upstream, signal) : undefined,
    })
    const audited = { config, role: options.role, log, method: 'collect-garbage' }
    const { collected, orphans } = await (dryRun ? collect() : auditedCommand(audited, collect))
    process.stdout.write(words(collected, orphans, dryRun))
    if (collected.left > 0)
      throw new Error(`${collected.left} repos were skipped: the upstream failed, or another process is removing their bytes; run it again in a minute`)
  } finally {
    await fetch.close()
    await upstream?.close()
    await cache.close()
    await store.close()
  }
}
